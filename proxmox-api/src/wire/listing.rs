use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{Record, Scan, ScanError};

/// Entries a list may have. The largest clusters have some ten thousand guests; what a hostile answer of many tiny
/// entries would take in memory is a multiple of its bytes.
pub(crate) const ENTRIES_CAP: usize = 100_000;

/// A list as PVE answered it.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing<T> {
    /// The entries, in PVE's order.
    pub items: Vec<T>,
    /// How many entries could not be read at all, because what identifies them is missing or makes no sense. Odd
    /// values elsewhere in an entry never skip it.
    pub skipped: usize,
    /// The number of entries before paging, where PVE says it.
    pub total: Option<u64>,
}

impl<T> Default for Listing<T> {
    /// No entries.
    fn default() -> Self {
        Self { items: Vec::new(), skipped: 0, total: None }
    }
}

impl<T> Listing<T> {
    /// Iterates over the entries.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// How many entries were read.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether no entry was read. Look at [`Listing::skipped`] before taking it for "there are none".
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Reads an array entry by entry, without keeping more of it than the entries themselves.
    pub(crate) fn read(
        raw: &RawValue,
        row: impl FnMut(&Record<'_>) -> Option<T>,
    ) -> Result<Self, serde_json::Error> {
        // Counted before anything is made of them.
        let (mut scan, mut entries) = (Scan::new(raw.get()), 0_usize);
        let counted = scan.array(|scan| {
            entries += 1;
            if entries > ENTRIES_CAP { Err(ScanError::Entries) } else { scan.skip().map(drop) }
        });
        counted.map_err(serde::de::Error::custom)?;
        let mut json = serde_json::Deserializer::from_str(raw.get());
        json.deserialize_seq(Rows(row))
    }
}

impl<T> IntoIterator for Listing<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Listing<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.items.iter()
    }
}

struct Rows<F>(F);

impl<'de, T, F: FnMut(&Record<'_>) -> Option<T>> Visitor<'de> for Rows<F> {
    type Value = Listing<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut list = Listing::default();
        while let Some(raw) = seq.next_element::<&RawValue>()? {
            match Record::parse(raw).as_ref().and_then(&mut self.0) {
                Some(item) => list.items.push(item),
                None => list.skipped += 1,
            }
        }
        Ok(list)
    }
}
