use std::str::FromStr;

use super::{IdError, text_id};

/// The name of a cluster node: a DNS label, `pve1`. Case is kept; PVE tells `PVE1` and `pve1` apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(String);

text_id!(NodeName);

impl NodeName {
    /// Whether the text is the name of a node.
    pub(crate) fn is_valid(text: &str) -> bool {
        text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && (1..=63).contains(&text.len())
            && !text.starts_with('-')
            && !text.ends_with('-')
    }
}

impl FromStr for NodeName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if Self::is_valid(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a node name",
                text,
                "1 to 63 letters, digits and inner hyphens, without the domain",
            ))
        }
    }
}
