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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> DestError {
        Dest::parse(text).unwrap_err()
    }

    #[test]
    fn dp_01_shell_syntax_is_kept_byte_for_byte() {
        for name in [
            "$(touch PWNED);x y.bin",
            "`id`",
            "a && b | c > d",
            "*",
            "~",
            "!",
            "'\"\\",
            "-rf",
            "--perms=0777",
        ] {
            let path = format!("/root/{name}");
            assert_eq!(Dest::parse(&path).unwrap().as_str(), path);
        }
    }

    #[test]
    fn dp_03_control_characters_are_refused_and_named() {
        for (text, code, at) in [
            ("/a\nb", 0x0a, 2),
            ("/a\r", 0x0d, 2),
            ("/\tb", 0x09, 1),
            ("/ä\u{1b}[2J", 0x1b, 3),
            ("/a\u{7f}", 0x7f, 2),
            ("/a\u{85}", 0x85, 2),
            ("\n", 0x0a, 0),
        ] {
            assert_eq!(refused(text), DestError::Control { code, at });
        }
        assert!(refused("/a\nb").to_string().contains("U+000A at byte 2"));
    }

    #[test]
    fn dp_04_relative_paths_are_refused_so_none_can_be_an_option() {
        for text in ["-rf", "--perms=0777", "a/b", "~/x", "~root/x", "$HOME/x", "./a", " /a", "C:\\x"] {
            assert_eq!(refused(text), DestError::Relative, "{text}");
        }
    }

    #[test]
    fn dp_05_nothing_is_normalised_silently() {
        assert_eq!(refused("/a/../etc/shadow"), DestError::DotComponent(".."));
        assert_eq!(refused("/.."), DestError::DotComponent(".."));
        assert_eq!(refused("/a/./b"), DestError::DotComponent("."));
        assert_eq!(refused("//x"), DestError::EmptyComponent);
        assert_eq!(refused("/a//b"), DestError::EmptyComponent);
        assert_eq!(refused("//"), DestError::EmptyComponent);
        for directory in ["/", "/a/", "/a/b/"] {
            assert_eq!(refused(directory), DestError::Directory);
        }
        for fine in ["/...", "/..a", "/a..", "/.a", "/a/.b/c"] {
            assert!(Dest::parse(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn dp_06_nul_and_empty_are_refused() {
        assert_eq!(refused(""), DestError::Empty);
        assert_eq!(refused("/a\0b"), DestError::Control { code: 0, at: 2 });
    }

    #[test]
    fn dp_08_the_limits_are_those_of_linux() {
        let name = "x".repeat(255);
        assert!(Dest::parse(&format!("/{name}")).is_ok());
        assert_eq!(refused(&format!("/{name}x")), DestError::ComponentTooLong(256));
        assert_eq!(refused(&format!("/{}/f", "ä".repeat(128))), DestError::ComponentTooLong(256));
        let path = |length: usize| {
            let mut path = String::new();
            while path.len() < length {
                let rest = (length - path.len() - 1).min(200);
                path = format!("{path}/{}", "y".repeat(rest));
            }
            path
        };
        assert_eq!(path(4095).len(), 4095);
        assert!(Dest::parse(&path(4095)).is_ok());
        assert_eq!(refused(&path(4096)), DestError::TooLong(4096));
        assert_eq!(refused(&"/a".repeat(5000)), DestError::TooLong(10_000));
    }

    #[test]
    fn dp_12_unicode_is_kept_as_it_is() {
        for path in ["/e\u{301}", "/é", "/\u{202e}gpj.exe", "/ａ", "/\u{feff}x"] {
            assert_eq!(Dest::parse(path).unwrap().as_str(), path);
        }
        assert_ne!(Dest::parse("/e\u{301}").unwrap(), Dest::parse("/é").unwrap());
    }

    #[test]
    fn the_sibling_is_in_the_same_directory() {
        assert_eq!(Dest::parse("/f").unwrap().sibling(".t"), "/.t");
        assert_eq!(Dest::parse("/a/b/f").unwrap().sibling(".t"), "/a/b/.t");
        assert_eq!(Dest::parse("/a/f").unwrap().parent(), "/a");
    }

    proptest! {
        #[test]
        fn dp_05_what_is_accepted_means_to_a_kernel_what_it_says(text in "[/a.~$-]{0,12}|/\\PC{0,40}") {
            if let Ok(dest) = Dest::parse(&text) {
                prop_assert_eq!(dest.as_str(), &text);
                let path = std::path::Path::new(&text);
                // `Path::components` drops what is redundant: nothing was.
                let rebuilt: std::path::PathBuf = path.components().collect();
                prop_assert_eq!(rebuilt.as_os_str(), path.as_os_str());
                prop_assert!(path.is_absolute() && path.file_name().is_some());
                prop_assert!(!text.chars().any(char::is_control));
            }
        }
    }
}
