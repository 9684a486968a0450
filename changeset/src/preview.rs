//! What the approver reads.

use std::collections::BTreeMap;

/// The text an approver sees, and the facts it was made from. Both are bound in the digest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// The preview itself. Text from outside goes in through [`Preview::quote`].
    pub text: String,
    /// The same facts by name, for programs.
    pub facts: BTreeMap<String, String>,
}

impl Preview {
    /// Characters of untrusted text that [`quote`](Self::quote) shows.
    pub const QUOTE_MAX: usize = 120;

    /// A preview.
    pub fn new<K: Into<String>, V: Into<String>>(
        text: impl Into<String>,
        facts: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        Self { text: text.into(), facts: facts.into_iter().map(|(k, v)| (k.into(), v.into())).collect() }
    }

    /// Quotes text that somebody else wrote, so that it cannot pass for the preview's own words.
    ///
    /// The result is one line between double quotes. Quotes, backslashes, control characters, line separators,
    /// direction marks, zero-width and combining characters are escaped; letters of any script stay as they
    /// are, so look-alike letters stay look-alikes. Text over [`QUOTE_MAX`](Self::QUOTE_MAX) characters is cut
    /// and its full length is told.
    ///
    /// ```
    /// use changeset::Preview;
    /// assert_eq!(Preview::quote("web\u{202e}\n\"APPROVED\""), r#""web\u{202e}\n\"APPROVED\"""#);
    /// ```
    #[must_use]
    pub fn quote(untrusted: &str) -> String {
        let mut out = String::from("\"");
        for c in untrusted.chars().take(Self::QUOTE_MAX) {
            match c {
                '\'' => out.push(c),
                _ => out.extend(c.escape_debug()),
            }
        }
        out.push('"');
        if untrusted.chars().nth(Self::QUOTE_MAX).is_some() {
            out.push_str(&format!("... ({} characters, cut)", untrusted.chars().count()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cs_06_untrusted_text_stays_inside_its_quotes() {
        for (text, shown) in [
            ("APPROVED BY root", r#""APPROVED BY root""#),
            ("\u{1b}[31mred\u{1b}[0m", r#""\u{1b}[31mred\u{1b}[0m""#),
            ("a\"}, {\"op\": \"none\"", r#""a\"}, {\"op\": \"none\"""#),
            ("a\r\nstatus: stopped", r#""a\r\nstatus: stopped""#),
            ("x\u{2066}y\u{200b}z\u{feff}", r#""x\u{2066}y\u{200b}z\u{feff}""#),
            ("l1\u{2028}l2\u{85}", r#""l1\u{2028}l2\u{85}""#),
            ("e\u{301}", r#""e\u{301}""#),
            ("back\\slash", r#""back\\slash""#),
            ("it's Käse", r#""it's Käse""#),
        ] {
            assert_eq!(Preview::quote(text), shown);
        }
    }

    #[test]
    fn cs_06_long_text_is_cut_and_its_length_told() {
        let shown = Preview::quote(&"x".repeat(100 * 1024));
        assert!(shown.ends_with("\"... (102400 characters, cut)"), "{shown}");
        assert!(shown.len() < 200);
        assert!(!Preview::quote(&"x".repeat(Preview::QUOTE_MAX)).contains("cut"));
        assert!(Preview::quote(&"x".repeat(Preview::QUOTE_MAX + 1)).contains("(121 characters, cut)"));
    }

    #[test]
    fn cs_06_every_character_beyond_plain_text_is_escaped() {
        for c in ('\0'..=char::MAX).filter(|c| c.is_control() || matches!(*c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{e0001}'..='\u{e007f}')) {
            let shown = Preview::quote(&c.to_string());
            assert!(shown.is_ascii() && !shown.contains(c), "{c:?} came out raw");
        }
    }
}
