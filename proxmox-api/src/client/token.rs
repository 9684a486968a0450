use std::fmt;

use http::HeaderValue;
use percent_encoding::{AsciiSet, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};

use crate::{error::Error, wire::ENCODED};

/// An API token of PVE: `user@realm!name` and its secret.
#[derive(Clone)]
pub struct ApiToken {
    id: String,
    secret: SecretString,
}

/// PVE unescapes the header's value; what structures it stays readable.
const HEADER: &AsciiSet = &ENCODED.remove(b'@').remove(b'!');

impl ApiToken {
    /// Checks the form of both parts. PVE's secrets are UUIDs; any 8 to 256 letters, digits, `-`, `_` and `.` are
    /// taken.
    ///
    /// # Errors
    /// Fails when the id is not `user@realm!name` or the secret holds anything else, such as the line break of the
    /// file it was read from. The error never shows the secret.
    pub fn new(id: impl Into<String>, secret: SecretString) -> Result<Self, Error> {
        let id = id.into();
        if !is_token_id(&id) {
            return Err(Error::config(format!(
                "{:?} is not the id of an API token; expected user@realm!name, such as proxward@pve!main",
                id.chars().take(100).collect::<String>()
            )));
        }
        let text = secret.expose_secret();
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if !(8..=256).contains(&text.len()) || !plain {
            return Err(Error::config(format!(
                "the secret of {id} is not that of an API token; expected the UUID that PVE showed once, without \
                 quotes, spaces or a line break"
            )));
        }
        Ok(Self { id, secret })
    }

    /// The id, `user@realm!name`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn secret(&self) -> &SecretString {
        &self.secret
    }

    pub(crate) fn header(&self) -> Result<HeaderValue, Error> {
        let id = utf8_percent_encode(&self.id, HEADER);
        let mut value = HeaderValue::try_from(format!("PVEAPIToken={id}={}", self.secret.expose_secret()))
            .map_err(|_| Error::config(format!("the token {} cannot be put into a header", self.id)))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// `PVE::AccessControl::split_tokenid`, on the whole string.
fn is_token_id(id: &str) -> bool {
    let name = |text: &str| {
        text.len() >= 2
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let Some((user, token)) = id.rsplit_once('!') else { return false };
    let Some((user, realm)) = user.rsplit_once('@') else { return false };
    let user_ok = !user.is_empty()
        && user.len() <= 64
        && !user.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, ':' | '/' | '!'));
    user_ok && name(realm) && name(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: &str, secret: &str) -> Result<ApiToken, Error> {
        ApiToken::new(id, SecretString::from(secret))
    }

    #[test]
    fn the_header_is_what_pve_reads() {
        let secret = "11111111-1111-1111-1111-111111111111";
        let header = token("root@pam!full", secret).unwrap().header().unwrap();
        assert!(header.is_sensitive());
        assert_eq!(header.to_str().unwrap(), format!("PVEAPIToken=root@pam!full={secret}"));
        let header = token("jörg;x@pve!t1", secret).unwrap().header().unwrap();
        assert_eq!(header.to_str().unwrap(), format!("PVEAPIToken=j%C3%B6rg%3Bx@pve!t1={secret}"));
    }

    #[test]
    fn a_malformed_token_is_refused_without_showing_the_secret() {
        for id in ["", "root", "root@pam", "root!x1", "@pam!x1", "root@pam!", "a b@pam!x1", "root@pam!x1\n"] {
            assert!(token(id, "11111111-1111").is_err(), "{id:?}");
        }
        for secret in ["", "short", "sec-ret-with-newline\n", "\"quoted-secret\"", "a=b;c-d-e-f"] {
            let error = token("root@pam!full", secret).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(secret.is_empty() || !shown.contains(secret), "{shown}");
        }
        let debug = format!("{:?}", token("root@pam!full", "11111111-1111").unwrap());
        assert!(!debug.contains("1111"), "{debug}");
    }
}
