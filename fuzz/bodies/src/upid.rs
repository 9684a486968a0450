//! `proxmox-api`: the handle of a task has one reading.

use proxmox_api::Upid;

/// Any text as a UPID, compared with a reader that goes through it character by character.
pub fn upid(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read: Option<Upid> = text.parse().ok();
    let fields = fields(text);
    assert_eq!(read.is_some(), fields.is_some(), "{text:?}");
    let (Some(upid), Some(fields)) = (read, fields) else { return };
    assert_eq!(upid.to_string(), text, "it is given back as it came");
    assert_eq!(upid.node().to_string(), fields[0]);
    for (number, digits) in [
        (u64::from(upid.pid()), fields[1]),
        (upid.pstart(), fields[2]),
        (u64::from(upid.starttime()), fields[3]),
    ] {
        assert_eq!(format!("{number:0width$x}", width = digits.len()), digits.to_ascii_lowercase());
    }
    assert_eq!([upid.kind(), upid.id(), upid.user()], fields[4..]);
    if let Some(vmid) = upid.guest() {
        assert_eq!(vmid.to_string(), fields[5]);
    }
    assert!(text.bytes().all(|b| b != b'/' && b != b'\n' && b != b'\0'), "it could leave its path segment");
}

/// The seven fields between `UPID:` and the last colon, each of its own alphabet.
fn fields(text: &str) -> Option<[&str; 7]> {
    let inner = text.strip_prefix("UPID:")?.strip_suffix(':')?;
    let fields: [&str; 7] = inner.split(':').collect::<Vec<_>>().try_into().ok()?;
    let hex = |text: &str, lengths: &[usize]| {
        lengths.contains(&text.len()) && text.chars().all(|c| c.is_ascii_hexdigit())
    };
    let [node, pid, pstart, starttime, kind, id, user] = fields;
    let label = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let node_ok = (1..=63).contains(&node.len()) && node.chars().all(label);
    let hyphens_inside = !node.starts_with('-') && !node.ends_with('-');
    let plain = |text: &str| !text.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/');
    let numbers = hex(pid, &[8]) && hex(pstart, &[8, 9]) && hex(starttime, &[8]);
    let words = [kind, id, user].into_iter().all(plain) && !kind.is_empty() && !user.is_empty();
    (text.len() <= 512 && node_ok && hyphens_inside && numbers && words).then_some(fields)
}
