//! What became of a link, as its owner may read it.

use std::time::Duration;

/// The longest free text an outcome keeps, in bytes; a longer one is cut at a character.
const MAX_TEXT: usize = 1024;

/// How the life of a link ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The bytes arrived and were put in place.
    Ok {
        /// How many bytes arrived.
        bytes: u64,
        /// SHA-256 of the bytes as they arrived.
        sha256: [u8; 32],
        /// Where the hash was read back and compared, in the embedder's words (Proxward: `guest` or `node`).
        verified_at: &'static str,
        /// Whether the hash was compared at the destination itself.
        checksum_verified: bool,
        /// By which way the bytes travelled, in the embedder's words.
        route: &'static str,
    },
    /// The transfer failed, and nothing remains of it.
    Failed {
        /// A stable word for programs.
        code: &'static str,
        /// What was wrong and what to do next, for people.
        message: String,
    },
    /// The client went away before it had sent everything.
    AbortedByClient {
        /// How many bytes had arrived.
        bytes: u64,
    },
    /// The work on the transfer ended without saying how: its task was dropped or panicked.
    Aborted {
        /// How many bytes had arrived, as last reported.
        bytes: u64,
    },
    /// The link was taken back, before or at its presentation.
    Voided {
        /// Why.
        reason: String,
    },
    /// Nobody presented the token in time.
    Expired,
}

impl Outcome {
    /// A stable word for programs, metrics and the audit.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Outcome::Ok { .. } => "ok",
            Outcome::Failed { .. } => "failed",
            Outcome::AbortedByClient { .. } => "aborted_by_client",
            Outcome::Aborted { .. } => "aborted",
            Outcome::Voided { .. } => "voided",
            Outcome::Expired => "expired",
        }
    }

    /// The same outcome with its free text held to [`MAX_TEXT`]: outcomes are kept for an hour, and the texts
    /// of some of them come from other machines.
    pub(crate) fn bounded(mut self) -> Outcome {
        if let Outcome::Failed { message: text, .. } | Outcome::Voided { reason: text } = &mut self {
            let mut end = text.len().min(MAX_TEXT);
            while !text.is_char_boundary(end) {
                end = end.saturating_sub(1);
            }
            text.truncate(end);
            text.shrink_to_fit();
        }
        self
    }
}

/// Where a link stands, as [`LinkStore::status`](crate::LinkStore::status) tells its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkStatus {
    /// Nobody has presented the token yet.
    Pending {
        /// How long the token still redeems the link.
        expires_in: Duration,
    },
    /// The token was presented and the transfer is under way.
    Running {
        /// Bytes so far, as last reported.
        bytes: u64,
        /// The stage as last reported, in the embedder's words; empty before the first report.
        stage: &'static str,
    },
    /// It is over.
    Done {
        /// How it ended.
        outcome: Outcome,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_a_word_of_its_own() {
        let text = String::new;
        let ok = Outcome::Ok {
            bytes: 1,
            sha256: [0; 32],
            verified_at: "guest",
            checksum_verified: true,
            route: "stream",
        };
        for (outcome, word) in [
            (ok, "ok"),
            (Outcome::Failed { code: "no_space", message: text() }, "failed"),
            (Outcome::AbortedByClient { bytes: 0 }, "aborted_by_client"),
            (Outcome::Aborted { bytes: 0 }, "aborted"),
            (Outcome::Voided { reason: text() }, "voided"),
            (Outcome::Expired, "expired"),
        ] {
            assert_eq!(outcome.code(), word);
        }
    }

    #[test]
    fn free_text_is_cut_at_a_character() {
        for (message, kept) in
            [("é".repeat(600), 1024), (format!("x{}", "é".repeat(600)), 1023), ("ok".into(), 2)]
        {
            let Outcome::Failed { message, .. } =
                (Outcome::Failed { code: "push_failed", message }).bounded()
            else {
                panic!("the kind changed");
            };
            assert_eq!(message.len(), kept);
        }
    }
}
