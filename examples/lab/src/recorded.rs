//! The requests a cluster has received.

use std::collections::BTreeMap;
use std::time::SystemTime;

/// One received request, recorded once its head and body had been read and before anything was done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// HTTP method.
    pub method: String,
    /// Path below `/api2/json`, decoded.
    pub path: String,
    /// Query and body parameters, decoded. JSON values that are not strings are as JSON prints them.
    pub params: BTreeMap<String, String>,
    /// The token it was authenticated as, if it was.
    pub token: Option<String>,
    /// When.
    pub at: SystemTime,
}

impl Recorded {
    /// Whether its method changes things: POST, PUT or DELETE.
    pub fn is_mutation(&self) -> bool {
        matches!(self.method.as_str(), "POST" | "PUT" | "DELETE")
    }
}
