//! `transfers`: a token has exactly one spelling.

use transfers::{LinkId, LinkToken};

/// Any text: taken as a token exactly when a decoder written here finds it canonical.
pub fn link_token(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let canonical = is_canonical(text);
    match LinkToken::parse(text) {
        Some(token) => {
            assert!(canonical, "a spelling that is not canonical was taken");
            assert_eq!(token.expose(), text);
            assert_eq!(format!("{token:?}"), "LinkToken(..)");
        }
        None => assert!(!canonical, "the canonical spelling was refused"),
    }
    if let Ok(id) = text.parse::<LinkId>() {
        assert_eq!(id.to_string(), text, "an id has one spelling");
        assert_eq!(LinkId::from_entropy(*id.as_bytes()), id);
    }
}

/// 43 characters of `A-Za-z0-9-_`, the last of which carries four bits in its upper four of six.
fn is_canonical(text: &str) -> bool {
    let value = |c: char| match c {
        'A'..='Z' => Some(c as u32 - 'A' as u32),
        'a'..='z' => Some(c as u32 - 'a' as u32 + 26),
        '0'..='9' => Some(c as u32 - '0' as u32 + 52),
        '-' => Some(62),
        '_' => Some(63),
        _ => None,
    };
    let values: Option<Vec<u32>> = text.chars().map(value).collect();
    values.is_some_and(|values| values.len() == 43 && values[42] % 4 == 0)
}
