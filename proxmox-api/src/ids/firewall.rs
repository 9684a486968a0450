use std::{fmt, net::IpAddr, str::FromStr};

use super::{IdError, text_id};

/// A letter, then at least one letter, digit, `-` or `_`: what PVE's firewall calls its own things.
fn is_name(text: &str, longest: usize) -> bool {
    (2..=longest).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

/// The name of a security group of the firewall, 2 to 18 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecurityGroup(String);

text_id!(SecurityGroup);

impl FromStr for SecurityGroup {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_name(text, 18) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "a security group",
                text,
                "2 to 18 characters: a letter, then letters, digits, `_` or `-`",
            ))
        }
    }
}

/// The name of an IP set of the firewall, 2 to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpSetName(String);

text_id!(IpSetName);

impl FromStr for IpSetName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_name(text, 64) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "an IP set",
                text,
                "2 to 64 characters: a letter, then letters, digits, `_` or `-`",
            ))
        }
    }
}

/// The name of an address alias of the firewall, 2 to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AliasName(String);

text_id!(AliasName);

impl FromStr for AliasName {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_name(text, 64) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::new(
                "an alias",
                text,
                "2 to 64 characters: a letter, then letters, digits, `_` or `-`",
            ))
        }
    }
}

/// An address or a network, `10.0.0.5` or `2001:db8::/32`. The text is kept as given; PVE normalises what it stores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(String);

text_id!(Cidr);

impl FromStr for Cidr {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let expected = "an address such as 10.0.0.5, or a network such as 10.0.0.0/24 or 2001:db8::/32";
        let refused = || IdError::new("an address or network", text, expected);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refused())?;
        if let Some(prefix) = prefix {
            let longest = if address.is_ipv4() { 32 } else { 128 };
            let canonical = (1..=3).contains(&prefix.len())
                && prefix.bytes().all(|b| b.is_ascii_digit())
                && (prefix == "0" || !prefix.starts_with('0'));
            let inside = prefix.parse::<u8>().is_ok_and(|length| length <= longest);
            if !canonical || !inside {
                return Err(refused());
            }
        }
        Ok(Self(text.to_owned()))
    }
}

/// A member of an IP set: an address, a network, or an alias, `lan`, `dc/lan` or `guest/lan`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpSetMember {
    /// An address or a network.
    Cidr(Cidr),
    /// An alias, with the scope it is looked up in if one is given.
    Alias {
        /// `dc` or `guest`.
        scope: Option<AliasScope>,
        /// The alias.
        name: AliasName,
    },
}

/// Where an alias or IP set that is referred to was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AliasScope {
    /// In the cluster's firewall.
    Dc,
    /// In the guest's own.
    Guest,
}

impl fmt::Display for AliasScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dc => "dc",
            Self::Guest => "guest",
        })
    }
}

impl FromStr for IpSetMember {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if let Ok(cidr) = text.parse() {
            return Ok(Self::Cidr(cidr));
        }
        let (scope, name) = match text.split_once('/') {
            Some(("dc", name)) => (Some(AliasScope::Dc), name),
            Some(("guest", name)) => (Some(AliasScope::Guest), name),
            _ => (None, text),
        };
        let name = name.parse().map_err(|_| {
            IdError::new(
                "a member of an IP set",
                text,
                "an address, a network such as 10.0.0.0/24, or an alias such as `dc/lan`",
            )
        })?;
        Ok(Self::Alias { scope, name })
    }
}

impl fmt::Display for IpSetMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cidr(cidr) => cidr.fmt(f),
            Self::Alias { scope: Some(scope), name } => write!(f, "{scope}/{name}"),
            Self::Alias { scope: None, name } => name.fmt(f),
        }
    }
}
