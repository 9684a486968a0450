//! Where a server may fetch from on somebody else's behalf: URLs and addresses, decided without asking anybody.
//!
//! Deny by default. What is not a plain public address is refused unless the operator named exactly it; what would reach the
//! server's own infrastructure is refused even then.

mod address;
mod url;

pub use address::{AddressRefusal, Rules};
pub use url::{
    Host, MAX_REDIRECTS, MAX_URL, Parts, Scheme, UrlRefusal, check_host, check_parts, check_redirect,
    check_text,
};
