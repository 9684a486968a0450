//! Property strings: `virtio=BC:24:11:00:00:01,bridge=vmbr0`, with at most one bare value first.

use crate::error::Error;

/// The parts of a property string in order; a bare part has no key.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = (Option<&str>, &str)> {
    text.split(',').filter(|part| !part.is_empty()).map(|part| match part.split_once('=') {
        Some((key, value)) => (Some(key), value),
        None => (None, part),
    })
}

/// Writes a property string; refuses parts that would be read as something else. `slot` is the key it is for, in
/// errors.
pub(crate) fn join<'a>(
    slot: &str,
    bare: Option<String>,
    parts: impl Iterator<Item = (&'a str, String)>,
) -> Result<String, Error> {
    let odd = |text: &str| text.is_empty() || text.contains(',') || text.chars().any(char::is_control);
    let mut text = bare.unwrap_or_default();
    if odd(&text) && !text.is_empty() {
        return Err(Error::argument(slot, "a comma or control character in the first part"));
    }
    for (key, value) in parts {
        let word = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if key.is_empty() || !word || odd(&value) {
            let shown: String = key.escape_debug().take(64).collect();
            let problem = format!("`{shown}`: a part needs a plain name and a value without commas");
            return Err(Error::argument(slot, problem));
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(key);
        text.push('=');
        text.push_str(&value);
    }
    Ok(text)
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
