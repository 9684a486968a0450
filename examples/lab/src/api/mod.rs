//! The HTTPS API: transport rules, authentication, routing, parameter checks, permissions and the endpoints.

mod check;
mod format;
mod handlers;
mod permission;
mod quorum;
mod reply;
mod request;
pub(crate) mod route;
pub(crate) mod serve;
