//! The ways bytes can take into a guest. Each route is one file.

pub(crate) mod sftp_pct;
