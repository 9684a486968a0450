use std::{collections::BTreeSet, fmt};

/// The tags of a guest, without order or repetition.
///
/// Reading is lenient: PVE separates by `;` since 7.3 and by `,` before, and accepts spaces on input. Case is kept,
/// because clusters differ in whether tags are case sensitive.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tags(BTreeSet<String>);

impl Tags {
    /// Splits a tag list at `;`, `,`, NUL and white space; empty parts are dropped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        text.split(|c: char| matches!(c, ';' | ',' | '\0') || c.is_whitespace())
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Whether exactly this tag is among them.
    #[must_use]
    pub fn contains(&self, tag: &str) -> bool {
        self.0.contains(tag)
    }

    /// The tags in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<String> for Tags {
    fn from_iter<I: IntoIterator<Item = String>>(tags: I) -> Self {
        Self(tags.into_iter().collect())
    }
}

impl fmt::Display for Tags {
    /// The list as PVE stores it, separated by `;`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, tag) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(";")?;
            }
            f.write_str(tag)?;
        }
        Ok(())
    }
}
