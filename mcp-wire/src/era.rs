//! The revisions of MCP served here, and which of the two ways of talking a message uses.
//!
//! The era is a property of one message. Clients probe with `server/discover` and then send `initialize` on the
//! same connection, so nothing about an earlier message may decide it.

use std::fmt;

/// The modern, stateless revision.
pub const MODERN: &str = "2026-07-28";

/// Every revision served, newest first; what `server/discover` lists.
pub const SUPPORTED: [&str; 5] = [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A revision that begins with an `initialize` handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revision {
    /// 2024-11-05
    V2024_11_05,
    /// 2025-03-26
    V2025_03_26,
    /// 2025-06-18
    V2025_06_18,
    /// 2025-11-25
    V2025_11_25,
}

impl Revision {
    /// The newest handshake revision: the answer to an `initialize` that asks for an unknown one.
    pub const NEWEST: Self = Self::V2025_11_25;

    /// What the specification has servers assume when a request names no revision.
    pub const ASSUMED: Self = Self::V2025_03_26;

    /// The revision's date, as on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// The revision of that date, if it is one with a handshake.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25]
            .into_iter()
            .find(|revision| revision.as_str() == text)
    }

    /// The revision to answer an `initialize` that asks for `requested`.
    #[must_use]
    pub fn negotiate(requested: &str) -> Self {
        Self::parse(requested).unwrap_or(Self::NEWEST)
    }
}

/// How a message is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Revision 2026-07-28: every request describes itself in `_meta`.
    Modern,
    /// A revision with a handshake; nothing is kept between requests here either.
    Legacy(Revision),
}

impl Era {
    /// Whether this is [`Era::Modern`].
    #[must_use]
    pub const fn is_modern(self) -> bool {
        matches!(self, Self::Modern)
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modern => MODERN,
            Self::Legacy(revision) => revision.as_str(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_supported_date_is_modern_or_a_handshake_revision() {
        for date in SUPPORTED {
            assert_eq!(date == MODERN, Revision::parse(date).is_none(), "{date}");
        }
    }

    #[test]
    fn negotiation_echoes_known_and_answers_the_newest_handshake_otherwise() {
        assert_eq!(Revision::negotiate("2025-06-18"), Revision::V2025_06_18);
        for unknown in ["2026-07-28", "2099-01-01", "", "2025-6-18"] {
            assert_eq!(Revision::negotiate(unknown), Revision::V2025_11_25, "{unknown}");
        }
    }
}
