//! `proxmox-api`: a volume id has one reading, and stays inside its path segment.

use proxmox_api::Volid;

/// Any text as a volume id, compared with a reader that goes through it character by character.
pub fn volid(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read: Option<Volid> = text.parse().ok();
    let expected = halves(text);
    assert_eq!(read.is_some(), expected.is_some(), "{text:?}");
    let (Some(volid), Some((storage, volume))) = (read, expected) else { return };
    assert_eq!((volid.storage().as_str(), volid.volume()), (storage, volume));
    assert_eq!(volid.to_string(), text, "it is given back as it came");
    assert!(!text.contains("/../") && !text.ends_with("/..") && !text.contains(":../"), "{text:?}");
}

/// Storage and volume at the first colon, each of its own alphabet.
fn halves(text: &str) -> Option<(&str, &str)> {
    let colon = text.find(':')?;
    let (storage, volume) = (&text[..colon], &text[colon + 1..]);
    let mut letters = storage.chars();
    let storage_ok = letters.next().is_some_and(|c| c.is_ascii_alphabetic())
        && storage.ends_with(|c: char| c.is_ascii_alphanumeric())
        && (2..=128).contains(&storage.len())
        && letters.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    // Since the last slash; since the last slash or colon, and how many of those are dots.
    let (mut part, mut piece, mut dots) = (0, 0, 0);
    let mut volume_ok = (1..=1024).contains(&volume.len());
    for c in volume.chars().chain(['/']) {
        match c {
            '/' | ':' => {
                volume_ok &= piece != dots || !(1..=2).contains(&dots);
                part += 1;
                if c == '/' {
                    volume_ok &= part > 1;
                    part = 0;
                }
                (piece, dots) = (0, 0);
            }
            '\\' | '?' | '#' | '%' => volume_ok = false,
            c if c.is_control() => volume_ok = false,
            c => {
                part += 1;
                piece += 1;
                dots += usize::from(c == '.');
            }
        }
    }
    (storage_ok && volume_ok).then_some((storage, volume))
}
