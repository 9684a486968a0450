//! Which URLs may be fetched, decided on what one WHATWG parser made of them.
//!
//! This module parses no URL: a second parser is how two programs come to see two hosts in one text. It says what a text must
//! not contain before it is parsed, and judges the parts afterwards.

use core::net::IpAddr;

/// The longest URL, in bytes.
pub const MAX_URL: usize = 2048;
/// The most redirects that are followed.
pub const MAX_REDIRECTS: usize = 5;

/// The schemes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

/// A host as the parser understood it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host<'a> {
    /// A name, in lower case and ASCII.
    Name(&'a str),
    /// An address, however it was written.
    Address(IpAddr),
}

/// What the parser made of a URL.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// Lower case, without the colon.
    pub scheme: &'a str,
    /// Whether a user name or a password is there.
    pub has_userinfo: bool,
    /// The host, if there is one.
    pub host: Option<Host<'a>>,
}

/// Why a URL is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlRefusal {
    /// Too long.
    #[error("the URL is longer than {MAX_URL} bytes")]
    TooLong,
    /// A character on which parsers disagree.
    #[error("the URL has a control character, a space or a backslash; write it percent-encoded")]
    Character,
    /// Not a URL at all.
    #[error("this is not a URL; expected one such as https://example.org/file")]
    Malformed,
    /// Another scheme.
    #[error("only http and https URLs are fetched")]
    Scheme,
    /// A user name or a password.
    #[error("a URL with a user name or a password is not fetched")]
    UserInfo,
    /// No host.
    #[error("the URL has no host")]
    NoHost,
    /// A name that means this machine.
    #[error(
        "the server's fetch policy does not allow this address or port; the operator can allow exactly it under `policy.fetch.allow`"
    )]
    LocalName,
    /// From TLS to plain text.
    #[error("the server redirects from https to http, which is not followed")]
    Downgrade,
    /// Too many redirects.
    #[error("the server redirects more than {MAX_REDIRECTS} times")]
    TooManyRedirects,
    /// A redirect to where it came from.
    #[error("the server redirects in a circle")]
    Circle,
}

impl UrlRefusal {
    /// A stable word for logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Character => "character",
            Self::Malformed => "malformed",
            Self::Scheme => "scheme",
            Self::UserInfo => "userinfo",
            Self::NoHost => "no_host",
            Self::LocalName => "local_name",
            Self::Downgrade => "downgrade",
            Self::TooManyRedirects => "too_many_redirects",
            Self::Circle => "circle",
        }
    }
}

/// Looks at the text before it is parsed.
///
/// # Errors
/// [`UrlRefusal::TooLong`], [`UrlRefusal::Character`].
pub fn check_text(text: &str) -> Result<(), UrlRefusal> {
    if text.len() > MAX_URL {
        return Err(UrlRefusal::TooLong);
    }
    // A WHATWG parser drops tabs and line ends and takes a backslash for a slash; others do not.
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(UrlRefusal::Character);
    }
    Ok(())
}

/// Judges the parts of a parsed URL. The address, where the host is a name, is judged once it is known.
///
/// # Errors
/// [`UrlRefusal::Scheme`], [`UrlRefusal::UserInfo`], [`UrlRefusal::NoHost`], [`UrlRefusal::LocalName`].
pub fn check_parts(parts: &Parts<'_>) -> Result<Scheme, UrlRefusal> {
    let scheme = match parts.scheme {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return Err(UrlRefusal::Scheme),
    };
    if parts.has_userinfo {
        return Err(UrlRefusal::UserInfo);
    }
    match parts.host {
        None => Err(UrlRefusal::NoHost),
        Some(Host::Name(name)) => check_host(name).map(|()| scheme),
        Some(Host::Address(_)) => Ok(scheme),
    }
}

/// Names that mean this machine wherever they are asked: they are not even looked up.
///
/// # Errors
/// [`UrlRefusal::NoHost`] for a name of no letters, [`UrlRefusal::LocalName`].
pub fn check_host(name: &str) -> Result<(), UrlRefusal> {
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    if name.is_empty() || name.starts_with('.') || name.contains("..") {
        return Err(UrlRefusal::NoHost);
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if matches!(last, "localhost" | "localdomain") || name == "metadata.google.internal" {
        return Err(UrlRefusal::LocalName);
    }
    Ok(())
}

/// Whether hop number `hop` (1 is the first redirect) may be followed.
///
/// # Errors
/// [`UrlRefusal::TooManyRedirects`], [`UrlRefusal::Downgrade`].
pub fn check_redirect(hop: usize, from: Scheme, to: Scheme) -> Result<(), UrlRefusal> {
    if hop > MAX_REDIRECTS {
        return Err(UrlRefusal::TooManyRedirects);
    }
    if from == Scheme::Https && to == Scheme::Http {
        return Err(UrlRefusal::Downgrade);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts<'a>(scheme: &'a str, has_userinfo: bool, host: Option<Host<'a>>) -> Parts<'a> {
        Parts { scheme, has_userinfo, host }
    }

    #[test]
    fn fu_01_only_http_and_https() {
        let host = Some(Host::Name("example.org"));
        assert_eq!(check_parts(&parts("http", false, host)), Ok(Scheme::Http));
        assert_eq!(check_parts(&parts("https", false, host)), Ok(Scheme::Https));
        for other in ["file", "ftp", "gopher", "data", "unix", "jar", "ws", "", "HTTP"] {
            assert_eq!(check_parts(&parts(other, false, host)), Err(UrlRefusal::Scheme), "{other}");
        }
        assert_eq!(check_parts(&parts("http", false, None)), Err(UrlRefusal::NoHost));
    }

    // D10: a backslash, a tab, a line end.
    #[test]
    fn d10_fu_09_what_parsers_disagree_on_is_refused_before_parsing() {
        for bad in [
            "http://10.1.2.3:81\\@203.0.113.9/",
            "http://203.0.113.9\t/",
            "http://allo\nwed.test/",
            "http://h/\r",
            "http://h/ x",
            "\u{a0}http://h/",
            "http://h/\u{7f}",
        ] {
            assert_eq!(check_text(bad), Err(UrlRefusal::Character), "{bad:?}");
        }
        assert_eq!(check_text("https://h/%5C%09"), Ok(()));
        assert_eq!(check_text(&"x".repeat(MAX_URL)), Ok(()));
        assert_eq!(check_text(&"x".repeat(MAX_URL + 1)), Err(UrlRefusal::TooLong));
        let host = Some(Host::Name("h.example"));
        assert_eq!(check_parts(&parts("http", true, host)), Err(UrlRefusal::UserInfo));
    }

    #[test]
    fn fu_04_names_of_this_machine_are_not_looked_up() {
        for bad in [
            "localhost",
            "localhost.",
            "LOCALHOST",
            "foo.localhost",
            "localhost.localdomain",
            "metadata.google.internal.",
        ] {
            assert_eq!(check_host(bad), Err(UrlRefusal::LocalName), "{bad}");
        }
        for bad in ["", ".", "..", ".x.org", "a..b.org"] {
            assert_eq!(check_host(bad), Err(UrlRefusal::NoHost), "{bad}");
        }
        for good in ["example.org", "example.org.", "localhost.example.org", "xn--bcher-kva.example"] {
            assert_eq!(check_host(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn every_refusal_has_a_word_of_its_own_for_logs() {
        for (refusal, word) in [
            (UrlRefusal::TooLong, "too_long"),
            (UrlRefusal::Character, "character"),
            (UrlRefusal::Malformed, "malformed"),
            (UrlRefusal::Scheme, "scheme"),
            (UrlRefusal::UserInfo, "userinfo"),
            (UrlRefusal::NoHost, "no_host"),
            (UrlRefusal::LocalName, "local_name"),
            (UrlRefusal::Downgrade, "downgrade"),
            (UrlRefusal::TooManyRedirects, "too_many_redirects"),
            (UrlRefusal::Circle, "circle"),
        ] {
            assert_eq!(refusal.code(), word);
        }
    }

    #[test]
    fn fu_08_redirects_are_few_and_never_lose_tls() {
        use Scheme::{Http, Https};
        assert_eq!(check_redirect(5, Http, Http), Ok(()));
        assert_eq!(check_redirect(1, Http, Https), Ok(()));
        assert_eq!(check_redirect(6, Http, Http), Err(UrlRefusal::TooManyRedirects));
        assert_eq!(check_redirect(1, Https, Http), Err(UrlRefusal::Downgrade));
    }
}
