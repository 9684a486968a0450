//! The HTTPS API: transport rules, authentication, routing, parameter checks, permissions and the endpoints.

mod check;
mod format;
mod handlers;
mod permission;
mod reply;
mod request;
mod route;
pub(crate) mod serve;
