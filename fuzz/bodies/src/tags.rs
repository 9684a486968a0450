//! `proxmox-api`: a tag is whole or it is not there.

use std::collections::BTreeSet;

use proxmox_api::Tags;

/// Any text as a tag list, compared with a reader that goes through it character by character.
pub fn tags(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let tags = Tags::parse(&text);
    let mut expected = BTreeSet::new();
    let mut tag = String::new();
    for c in text.chars().chain([';']) {
        if c == ';' || c == ',' || c == '\0' || c.is_whitespace() {
            if !tag.is_empty() {
                expected.insert(std::mem::take(&mut tag));
            }
        } else {
            tag.push(c);
        }
    }
    assert!(tags.iter().eq(expected.iter().map(String::as_str)), "{text:?}: {tags:?}");
    assert_eq!((tags.len(), tags.is_empty()), (expected.len(), expected.is_empty()));
    assert!(expected.iter().all(|tag| tags.contains(tag)), "{text:?}");
    for tag in &expected {
        // Neither a part of a tag nor a tag in another case is that tag.
        let (start, upper) =
            (&tag[..tag.len() - tag.chars().next_back().map_or(0, char::len_utf8)], tag.to_uppercase());
        assert_eq!(tags.contains(start), expected.contains(start));
        assert_eq!(tags.contains(&upper), expected.contains(&upper));
    }
    assert_eq!(Tags::parse(&tags.to_string()), tags, "what is written is read again");
}
