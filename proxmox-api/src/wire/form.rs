use std::fmt::Display;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// RFC 3986's unreserved characters stay, everything else is encoded: PVE splits forms at `&` *and* `;`, cuts a
/// value at a second `=`, and reads `+` as a space.
pub(crate) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Parameters of a call, encoded for a query or a form body alike. What is unset is not sent: PVE refuses an empty
/// text or a 0 where it wants a value or nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Form(String);

impl Form {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a parameter; a repeated key makes an array.
    pub(crate) fn put(mut self, key: &str, value: impl Display) -> Self {
        if !self.0.is_empty() {
            self.0.push('&');
        }
        self.0.extend(utf8_percent_encode(key, ENCODED));
        self.0.push('=');
        self.0.extend(utf8_percent_encode(&value.to_string(), ENCODED));
        self
    }

    /// Adds a parameter if it is set.
    pub(crate) fn put_some(self, key: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }

    /// Adds a boolean if it is on; PVE's default being off.
    pub(crate) fn put_if(self, key: &str, value: bool) -> Self {
        if value { self.put_flag(key, true) } else { self }
    }

    /// Adds a list that PVE takes as one text, separated by `,`, unless it is empty.
    pub(crate) fn put_list(self, key: &str, values: impl IntoIterator<Item = impl Display>) -> Self {
        let joined: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        if joined.is_empty() { self } else { self.put(key, joined.join(",")) }
    }

    /// Adds a boolean, which PVE takes only as 0 or 1.
    pub(crate) fn put_flag(self, key: &str, value: bool) -> Self {
        self.put(key, u8::from(value))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> bytes::Bytes {
        self.0.into()
    }
}
