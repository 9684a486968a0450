use std::fmt;

use secrecy::{ExposeSecret, SecretString};

/// Makes text that came from outside fit to be shown: no token secret, no control characters, bounded length.
#[derive(Clone)]
pub(crate) struct Scrubber(SecretString);

/// Room for PVE's longest messages; an answer may be 16 MiB.
const MAX_LEN: usize = 4096;

impl Scrubber {
    pub(crate) fn new(secret: SecretString) -> Self {
        Self(secret)
    }

    /// For text that no secret of ours can be in.
    pub(crate) fn without_secret() -> Self {
        Self(SecretString::from(String::new()))
    }

    /// The text, trimmed, without the secret, with line breaks kept and other control characters blanked.
    pub(crate) fn clean(&self, text: &str) -> String {
        // The secret goes first: cutting the text could leave half of it.
        let clean = match self.0.expose_secret() {
            // The empty text is between any two characters.
            "" => text.trim().to_owned(),
            secret => text.trim().replace(secret, "[redacted]"),
        };
        let mut clean: String =
            clean.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
        if clean.len() > MAX_LEN {
            let cut = (0..=MAX_LEN).rev().find(|at| clean.is_char_boundary(*at)).unwrap_or(0);
            let rest = clean.len() - cut;
            clean.truncate(cut);
            clean.push_str(&format!("… ({rest} more bytes)"));
        }
        clean
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrubber")
    }
}
