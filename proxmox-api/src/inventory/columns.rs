//! The columns of `/cluster/resources` that are kept, as places in the answer's text, and how their text is read.

use std::{borrow::Cow, ops::Range};

use crate::wire::{Field, Scalar, flag, float, integer};

/// A stretch of an answer's text; an answer has at most 16 MiB. No JSON value is empty, so an empty one is "not there".
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    at: u32,
    len: u32,
}

impl Span {
    /// `None` beyond 4 GiB.
    pub(super) fn of(range: &Range<usize>) -> Option<Self> {
        Some(Self { at: range.start.try_into().ok()?, len: range.len().try_into().ok()? })
    }

    /// The JSON text, quotes included; `None` where there was none.
    pub(super) fn json(self, text: &str) -> Option<&str> {
        let at = self.at as usize;
        if self.len == 0 { None } else { text.get(at..at + self.len as usize) }
    }
}

macro_rules! columns {
    ($($column:ident = $name:literal,)*) => {
        /// A column that is kept.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Column {
            $($column,)*
        }

        impl Column {
            /// How many there are.
            pub(super) const COUNT: usize = [$($name),*].len();

            /// The column of a key's text without quotes and escapes.
            pub(super) fn named(name: &[u8]) -> Option<Self> {
                // A byte string's pattern is compared by length first, then in a few machine words.
                $(
                    if name == $name.as_bytes() {
                        return Some(Self::$column);
                    }
                )*
                None
            }
        }
    };
}

columns! {
    Type = "type",
    Id = "id",
    Node = "node",
    Vmid = "vmid",
    Name = "name",
    Status = "status",
    Tags = "tags",
    Pool = "pool",
    Template = "template",
    Lock = "lock",
    HaState = "hastate",
    Storage = "storage",
    PluginType = "plugintype",
    Shared = "shared",
    Cpu = "cpu",
    MaxCpu = "maxcpu",
    Mem = "mem",
    MaxMem = "maxmem",
    Disk = "disk",
    MaxDisk = "maxdisk",
    Uptime = "uptime",
}

impl Column {
    /// The column of a key as it stands in the answer, quotes included.
    pub(super) fn of_key(json: &str) -> Option<Self> {
        match unescaped(json) {
            Some(name) => Self::named(name.as_bytes()),
            None => Self::named(serde_json::from_str::<String>(json).ok()?.as_bytes()),
        }
    }
}

/// What a JSON string holds, if it has no escapes.
fn unescaped(json: &str) -> Option<&str> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.as_bytes().contains(&b'\\')).then_some(inner)
}

/// A text; numbers and booleans are spelt out as PVE would.
pub(super) fn text(json: &str) -> Field<Cow<'_, str>> {
    if let Some(text) = unescaped(json) {
        return Field::Value(Cow::Borrowed(text));
    }
    if json.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return Field::Value(Cow::Borrowed(json));
    }
    Scalar::of(json).into_text().map_or(Field::Unreadable, |text| Field::Value(Cow::Owned(text)))
}

/// A boolean in any of PVE's spellings.
pub(super) fn boolean(json: &str) -> Field<bool> {
    match json {
        "0" => Field::Value(false),
        "1" => Field::Value(true),
        other => flag(&Scalar::of(other)).map_or(Field::Unreadable, Field::Value),
    }
}

/// A counter.
pub(super) fn counter(json: &str) -> Option<u64> {
    json.parse().ok().or_else(|| integer(&Scalar::of(json)))
}

/// A decimal.
pub(super) fn decimal(json: &str) -> Option<f64> {
    float(&Scalar::of(json))
}
