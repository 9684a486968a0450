//! Where a file goes inside the guest.

use std::fmt;

/// The longest path Linux accepts, without its terminating NUL (`PATH_MAX` is 4096).
pub const MAX_PATH: usize = 4095;
/// The longest single name Linux file systems accept (`NAME_MAX`).
pub const MAX_COMPONENT: usize = 255;

/// A destination path inside a guest: absolute, already canonical, safe to show in a log line.
///
/// The bytes are kept exactly as given; nothing is normalised and nothing is expanded. What a shell would treat
/// specially (`$`, `;`, quotes, spaces) is an ordinary part of a name here. Names that are not UTF-8 cannot be
/// expressed: the callers' JSON cannot carry them, and a lossy conversion would name a different file.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dest(String);

/// Why a text is not a destination.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DestError {
    /// Nothing was given.
    #[error("the destination is empty; give an absolute path inside the guest such as /root/file.bin")]
    Empty,
    /// The path does not start at the root of the guest's file system.
    #[error(
        "the destination is not absolute; it must begin with \"/\" (\"~\" and variables are not expanded)"
    )]
    Relative,
    /// A NUL, newline, tab, escape or another control character.
    #[error(
        "the destination has the control character U+{code:04X} at byte {at}; use a name of printable characters"
    )]
    Control {
        /// The character's code point.
        code: u32,
        /// Byte offset in the text.
        at: usize,
    },
    /// `/`, or a path that ends in `/`: both name a directory.
    #[error("the destination names a directory; give the full path of the file, with no trailing \"/\"")]
    Directory,
    /// Two slashes in a row.
    #[error("the destination has an empty component (\"//\"); write it with single slashes")]
    EmptyComponent,
    /// A `.` or `..` component.
    #[error("the destination has a \"{0}\" component; write the path without it")]
    DotComponent(&'static str),
    /// A name longer than [`MAX_COMPONENT`] bytes.
    #[error("a name in the destination is {0} bytes long; the most a file system takes is {MAX_COMPONENT}")]
    ComponentTooLong(usize),
    /// A path longer than [`MAX_PATH`] bytes.
    #[error("the destination is {0} bytes long; the most Linux takes is {MAX_PATH}")]
    TooLong(usize),
}

impl Dest {
    /// Checks a path and keeps its bytes as they are.
    ///
    /// # Errors
    /// [`DestError`] names the first rule the text breaks.
    pub fn parse(text: &str) -> Result<Self, DestError> {
        if text.is_empty() {
            return Err(DestError::Empty);
        }
        if text.len() > MAX_PATH {
            return Err(DestError::TooLong(text.len()));
        }
        if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
            return Err(DestError::Control { code: u32::from(c), at });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(DestError::Relative);
        };
        if rest.is_empty() {
            return Err(DestError::Directory);
        }
        let mut components = rest.split('/').peekable();
        while let Some(component) = components.next() {
            match component {
                "" if components.peek().is_none() => return Err(DestError::Directory),
                "" => return Err(DestError::EmptyComponent),
                "." => return Err(DestError::DotComponent(".")),
                ".." => return Err(DestError::DotComponent("..")),
                long if long.len() > MAX_COMPONENT => return Err(DestError::ComponentTooLong(long.len())),
                _ => {}
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// The path, byte for byte as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The directory the file goes into; `/` for a file at the root.
    pub fn parent(&self) -> &str {
        match self.0.rfind('/') {
            Some(0) | None => "/",
            Some(at) => &self.0[..at],
        }
    }

    /// A path for a file of another name in the same directory.
    pub(crate) fn sibling(&self, name: &str) -> String {
        match self.parent() {
            "/" => format!("/{name}"),
            parent => format!("{parent}/{name}"),
        }
    }
}

impl fmt::Display for Dest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Dest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dest({:?})", self.0)
    }
}

impl std::str::FromStr for Dest {
    type Err = DestError;

    fn from_str(text: &str) -> Result<Self, DestError> {
        Self::parse(text)
    }
}
