use std::str::FromStr;

use super::{IdError, text_id};

/// The name of a virtual machine or the host name of a container: labels of letters, digits and inner hyphens,
/// joined by dots (`dns-name` of PVE's schema). No `_`, and nothing outside ASCII.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DnsName(String);

text_id!(DnsName);

impl FromStr for DnsName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let label = |part: &str| {
            (1..=63).contains(&part.len())
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if text.len() <= 253 && text.split('.').all(label) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a guest name",
                text,
                "labels of letters, digits and inner hyphens joined by dots, such as `web1.example`",
            ))
        }
    }
}
