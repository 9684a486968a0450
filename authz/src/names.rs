//! Which words may name things, and how untrusted text is shown.

use std::fmt::Write as _;

/// The longest token or person name accepted, in bytes.
pub(crate) const MAX_NAME: usize = 128;

/// A tag as PVE stores it: `[A-Za-z0-9_][A-Za-z0-9_.+-]*`.
pub(crate) fn is_tag(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'.'))
}

/// A pool as PVE names it: up to three levels of `[A-Za-z0-9._-]+` joined by `/`.
pub(crate) fn is_pool(text: &str) -> bool {
    text.split('/').count() <= 3
        && text.split('/').all(|level| {
            !level.is_empty()
                && level.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        })
}

/// A word that may stand in a scope list: a tool's name or a cluster's.
pub(crate) fn is_scope_word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

/// Why `text` cannot name a token or a person, if it cannot.
pub(crate) fn name_fault(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("must not be empty");
    }
    if text.len() > MAX_NAME {
        return Some("must not be longer than 128 bytes");
    }
    if text.chars().any(char::is_control) {
        return Some("must not hold control characters");
    }
    if text.chars().any(char::is_whitespace) {
        return Some("must not hold white space");
    }
    // Two names that look the same must be the same, or one person passes for two.
    if text.chars().any(|c| is_invisible(c) || is_combining(c)) {
        return Some("must not hold invisible, direction-changing or combining characters");
    }
    None
}

/// Token names that stand for callers without a token, in audit records and in refusals. No entry may have
/// one: it would pass for them.
pub const RESERVED_NAMES: [&str; 2] = ["anonymous", "stdio"];

/// Whether `text` is one of [`RESERVED_NAMES`], in any case.
pub(crate) fn is_reserved(text: &str) -> bool {
    RESERVED_NAMES.iter().any(|name| same_person(name, text))
}

/// Whether two names mean one person: compared without regard to case.
pub(crate) fn same_person(left: &str, right: &str) -> bool {
    fold(left).eq(fold(right))
}

/// Upper then lower, so that letters with several lower-case forms (`ß`, `ς`) fold together.
fn fold(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}

/// A short text that is kept without asking for memory; only a longer one is allocated.
#[derive(Debug, Clone)]
pub(crate) enum ShortText {
    Inline { bytes: [u8; SHORT], len: u8 },
    Long(Box<str>),
}

/// Long enough for every cluster name of Proxward.
const SHORT: usize = 64;

impl ShortText {
    pub(crate) fn new(text: &str) -> ShortText {
        let mut bytes = [0; SHORT];
        match (bytes.get_mut(..text.len()), u8::try_from(text.len())) {
            (Some(start), Ok(len)) => {
                start.copy_from_slice(text.as_bytes());
                ShortText::Inline { bytes, len }
            }
            _ => ShortText::Long(text.into()),
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        match self {
            // INVARIANT: the bytes came from a `str` of this length.
            ShortText::Inline { bytes, len } => {
                std::str::from_utf8(bytes.get(..usize::from(*len)).unwrap_or_default()).unwrap_or_default()
            }
            ShortText::Long(text) => text,
        }
    }
}

/// Shows untrusted text on one line: control, invisible and direction-changing characters become
/// `\u{..}`, backslashes are doubled, and anything beyond `max_chars` characters is cut with a note of
/// the full length in bytes.
pub fn escape_untrusted(text: &str, max_chars: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max_chars).saturating_add(16));
    for (index, c) in text.chars().enumerate() {
        if index == max_chars {
            // Writing to a String cannot fail.
            let _ = write!(out, "… ({} bytes in all)", text.len());
            break;
        }
        if c == '\\' {
            out.push_str("\\\\");
        } else if c.is_control() || is_invisible(c) {
            let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// Format characters: zero width, bidi controls, line separators, tags, variation selectors.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

fn is_combining(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_pools_follow_pve() {
        for tag in ["a", "_a", "0", "web-1", "a.b+c", "Prod"] {
            assert!(is_tag(tag), "{tag}");
        }
        for tag in ["", "-a", ".a", "+a", "a;b", "a,b", "a b", "é", "a\n"] {
            assert!(!is_tag(tag), "{tag:?}");
        }
        for pool in ["p", "test-vms", "a/b/c", "a.b_c"] {
            assert!(is_pool(pool), "{pool}");
        }
        for pool in ["", "/", "a/", "/a", "a//b", "a/b/c/d", "a b", "é"] {
            assert!(!is_pool(pool), "{pool:?}");
        }
    }

    #[test]
    fn cs_08_one_person_in_two_spellings_is_one_person() {
        for (left, right) in [("alice", "ALICE"), ("José", "JOSÉ"), ("Weiß", "WEISS"), ("Σας", "ΣΑΣ")]
        {
            assert!(same_person(left, right), "{left} {right}");
        }
        for (left, right) in [("alice", "alicia"), ("alice", "alic"), ("", "a")] {
            assert!(!same_person(left, right), "{left} {right}");
        }
    }

    #[test]
    fn tk_07_names_that_could_mislead_are_named_with_the_fault() {
        assert_eq!(name_fault("ops-token"), None);
        assert_eq!(name_fault("José"), None);
        assert_eq!(name_fault(&"a".repeat(MAX_NAME)), None);
        for name in ["", "a\nb", "a b", "a\u{200b}", "\u{202e}a", "e\u{301}", "a\u{7f}", "a\u{85}b"] {
            assert!(name_fault(name).is_some(), "{name:?}");
        }
        assert!(name_fault(&"a".repeat(MAX_NAME + 1)).is_some());
    }

    #[test]
    fn short_and_long_texts_read_back() {
        for text in ["", "pve3", "é", &"x".repeat(SHORT), &"x".repeat(SHORT + 1), &"é".repeat(200)] {
            let kept = ShortText::new(text);
            assert_eq!(kept.as_str(), text);
            assert_eq!(matches!(kept, ShortText::Inline { .. }), text.len() <= SHORT, "{text}");
        }
    }

    #[test]
    fn names_of_callers_without_a_token_are_reserved_in_any_case() {
        for name in ["anonymous", "stdio", "Anonymous", "STDIO"] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["anonymous2", "std", "stdio-ops", ""] {
            assert!(!is_reserved(name), "{name}");
        }
    }

    #[test]
    fn pw_12_untrusted_text_is_shown_on_one_line_and_cut() {
        assert_eq!(escape_untrusted("plain é", 100), "plain é");
        assert_eq!(escape_untrusted("a\nb\u{1b}[31m\\", 100), "a\\u{a}b\\u{1b}[31m\\\\");
        assert_eq!(escape_untrusted("\u{202e}x\u{2028}", 100), "\\u{202e}x\\u{2028}");
        assert_eq!(escape_untrusted("abcdef", 3), "abc… (6 bytes in all)");
        assert_eq!(escape_untrusted("abc", 3), "abc");
    }
}
