//! The HTTPS API: transport rules, authentication, routing, parameter checks, permissions and the endpoints.

pub(crate) mod check;
mod format;
mod handlers;
mod permission;
mod quorum;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod route;
pub(crate) mod serve;
pub(crate) mod upload;
