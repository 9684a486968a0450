//! What can go wrong while a lab starts or is asked for something.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why the lab could not do what it was asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// The lab file is wrong.
    Config(String),
    /// A file or socket operation failed.
    Io {
        /// What was attempted.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A certificate or key could not be made.
    Keys(String),
    /// There is no such cluster, node or guest.
    Unknown(String),
}

impl LabError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LabError {
        let path = path.to_owned();
        move |source| LabError::Io { doing, path, source }
    }

    pub(crate) fn keys(error: impl fmt::Display) -> LabError {
        LabError::Keys(error.to_string())
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Config(problem) => write!(f, "the lab file is wrong: {problem}"),
            LabError::Io { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            LabError::Keys(problem) => write!(f, "cannot make keys or certificates: {problem}"),
            LabError::Unknown(what) => write!(f, "the lab has no {what}"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LabError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
