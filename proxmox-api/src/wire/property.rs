//! Property strings: `virtio=BC:24:11:00:00:01,bridge=vmbr0`, with at most one bare value first.

/// The parts of a property string in order; a bare part has no key.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| match part.split_once('=') {
        Some((key, value)) => (Some(key), value),
        None => (None, part),
    })
}

/// Whether `key` is `prefix` followed by an index without leading zeros, as in `net0` or `scsi12`.
pub(crate) fn is_indexed(key: &str, prefix: &str) -> bool {
    key.strip_prefix(prefix).is_some_and(|index| {
        !index.is_empty()
            && index.len() <= 3
            && index.bytes().all(|b| b.is_ascii_digit())
            && (index == "0" || !index.starts_with('0'))
    })
}
