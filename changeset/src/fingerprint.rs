//! What the target looked like when the plan was made.

use std::collections::{BTreeMap, BTreeSet};

/// Named facts that must not have moved between plan and apply.
///
/// The crate does not know what a fact means: it compares whole strings, and names the ones that moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fingerprint {
    /// Fact name to value, each as text in one canonical spelling.
    pub fields: BTreeMap<String, String>,
}

impl Fingerprint {
    /// A fingerprint of the given facts.
    pub fn new<K: Into<String>, V: Into<String>>(fields: impl IntoIterator<Item = (K, V)>) -> Self {
        Self { fields: fields.into_iter().map(|(k, v)| (k.into(), v.into())).collect() }
    }

    /// Names of the fields that differ, are missing or are new in `other`, sorted.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Vec<String> {
        self.fields
            .keys()
            .chain(other.fields.keys())
            .filter(|name| self.fields.get(*name) != other.fields.get(*name))
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_changed_missing_and_new_fields() {
        let before = Fingerprint::new([("name", "web"), ("digest", "aa"), ("gone", "1"), ("same", "1")]);
        let after = Fingerprint::new([("name", "web2"), ("digest", "aa"), ("new", "1"), ("same", "1")]);
        assert_eq!(before.diff(&after), ["gone", "name", "new"]);
        assert!(before.diff(&before).is_empty());
    }
}
