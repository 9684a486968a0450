//! The ways bytes can take into a guest, and out of it. Each route is one file.

pub(crate) mod agent;
pub(crate) mod attempt;
pub(crate) mod guest;
pub(crate) mod intake;
pub(crate) mod read;
pub(crate) mod sftp_pct;
pub(crate) mod ssh;
pub(crate) mod stream;
