//! What a caller may choose about a push.

use std::fmt;
use std::str::FromStr;

/// Options of one push. `PushOptions::default()` refuses an existing file, makes no directory and writes
/// `root:root 0644`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushOptions {
    /// Permission bits of the new file.
    pub mode: Mode,
    /// Owner inside the guest; `None` is root.
    pub owner: Option<Account>,
    /// Group inside the guest; `None` is root.
    pub group: Option<Account>,
    /// Make missing parent directories (as root, with the guest's umask).
    pub mkdir: bool,
    /// Replace an existing regular file. Without it an existing file is refused.
    pub overwrite: bool,
    /// Refuse the push once the source has delivered more than this many bytes.
    pub max_bytes: Option<u64>,
    /// Refuse to commit when the source's SHA-256 is another one.
    pub expected_sha256: Option<[u8; 32]>,
    /// Which way into an LXC guest.
    pub route: LxcRoute,
}

/// The way of the bytes into an LXC guest. Both verify in the guest and rename last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LxcRoute {
    /// Into the standard input of `pct exec`, which writes the temporary file itself: no copy on the node, no
    /// configuration lock.
    #[default]
    Stream,
    /// By SFTP to the node's staging directory and from there by `pct push`: the node's copy is complete before the guest
    /// sees a byte, at the price of writing everything twice.
    SftpPctPush,
}

impl LxcRoute {
    /// `stream` or `sftp+pct_push`, as in receipts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::SftpPctPush => "sftp+pct_push",
        }
    }
}

impl fmt::Display for LxcRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for LxcRoute {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        [Self::Stream, Self::SftpPctPush]
            .into_iter()
            .find(|route| route.as_str() == text)
            .ok_or(OptionError::Route)
    }
}

/// A bad option value, found before anything is sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// Not three or four octal digits.
    #[error("the mode is not three or four octal digits; write for example 644 or 0755")]
    Mode,
    /// Not the name of a route.
    #[error("the route is neither stream nor sftp+pct_push")]
    Route,
    /// Neither a numeric id nor a Linux account name.
    #[error(
        "the owner or group is neither a number below 4294967295 nor an account name (letters, digits, \"_\", \"-\", \".\", at most 32)"
    )]
    Account,
}

/// File permission bits, `0000` to `7777`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode(u16);

impl Mode {
    /// Reads three or four octal digits, nothing else: `pct push` reads its argument with `strtoul`, which would
    /// take `0x1ff` and an empty text as well.
    ///
    /// # Errors
    /// [`OptionError::Mode`].
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let octal = text.bytes().all(|b| matches!(b, b'0'..=b'7'));
        if !octal || !matches!(text.len(), 3 | 4) {
            return Err(OptionError::Mode);
        }
        u16::from_str_radix(text, 8).map(Self).map_err(|_| OptionError::Mode)
    }

    /// The bits.
    pub fn bits(self) -> u16 {
        self.0
    }
}

impl Default for Mode {
    fn default() -> Self {
        Self(0o644)
    }
}

impl fmt::Display for Mode {
    /// Four octal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl FromStr for Mode {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        Self::parse(text)
    }
}

/// A user or group of the guest: a numeric id or a name that the guest resolves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account(String);

impl Account {
    /// Reads an id (`0` to `4294967294`, canonical decimal) or a name as `useradd` would accept it.
    ///
    /// # Errors
    /// [`OptionError::Account`].
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let valid = match text.parse::<u32>() {
            Ok(id) => id != u32::MAX && id.to_string() == text,
            Err(_) => is_account_name(text),
        };
        if valid { Ok(Self(text.to_owned())) } else { Err(OptionError::Account) }
    }

    /// The id or name as given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Account {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        Self::parse(text)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_account_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    text.len() <= 32
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_takes_three_or_four_octal_digits_and_nothing_else() {
        assert_eq!(Mode::parse("755").unwrap().to_string(), "0755");
        assert_eq!(Mode::parse("0644").unwrap(), Mode::default());
        assert_eq!(Mode::parse("4755").unwrap().bits(), 0o4755);
        for bad in ["", "9", "0o755", "u=rw", "75", "07555", "0x1f", "+755", " 755", "٧٥٥"] {
            assert_eq!(Mode::parse(bad), Err(OptionError::Mode), "{bad:?}");
        }
    }

    #[test]
    fn account_takes_ids_and_names() {
        for good in ["0", "1000", "4294967294", "app", "_apt", "www-data", "a.b_c-d"] {
            assert_eq!(Account::parse(good).unwrap().as_str(), good);
        }
        for bad in ["", "4294967295", "4294967296", "01", "-1", "+1", "a b", "a:b", "$(id)", "-rf", "1a", "é"]
        {
            assert_eq!(Account::parse(bad), Err(OptionError::Account), "{bad:?}");
        }
        assert!(Account::parse(&"a".repeat(32)).is_ok());
        assert!(Account::parse(&"a".repeat(33)).is_err());
    }
}
