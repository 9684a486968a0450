//! What is wrong with a configuration, one finding at a time.

use std::fmt;
use std::path::{Path, PathBuf};

/// One finding: where, and what to do about it. Several are reported together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, or `None` for a flag or the environment.
    pub file: Option<PathBuf>,
    /// Line and column from 1; `None` where the file as a whole is meant.
    pub position: Option<(usize, usize)>,
    /// The place inside the file, such as `devices.pve3.endpoint`; may be empty.
    pub place: String,
    /// What was wrong, what was expected, what to do.
    pub message: String,
}

impl Problem {
    /// A finding about a flag or the environment.
    pub fn flag(message: impl Into<String>) -> Self {
        Self { file: None, position: None, place: String::new(), message: message.into() }
    }

    /// A finding about a file as a whole.
    pub fn file(path: &Path, message: impl Into<String>) -> Self {
        Self { file: Some(path.to_owned()), position: None, place: String::new(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}:", file.display())?;
            if let Some((line, column)) = self.position {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.message)
    }
}
