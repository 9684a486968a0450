//! The two hashes an entry may hold, and the one slow check.

use std::fmt;
use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, Version};
use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::format::{Form, TokenRefusal, parse};
use crate::principal::Principal;

/// Memory in KiB: no less than 19 MiB (OWASP's floor), no more than 128 MiB per check.
const M_COST: std::ops::RangeInclusive<u32> = 19_456..=131_072;
const T_COST: std::ops::RangeInclusive<u32> = 2..=10;
const P_COST: std::ops::RangeInclusive<u32> = 1..=16;
const SALT_BYTES: std::ops::RangeInclusive<usize> = 8..=48;
const OUTPUT_BYTES: std::ops::RangeInclusive<usize> = 16..=64;

/// The hash of one entry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Hash {
    /// SHA-256 of the whole token text.
    Sha256([u8; 32]),
    /// Argon2id of the whole token text, within bounds.
    Argon2(Argon2Hash),
}

/// The parts of an argon2id entry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Argon2Hash {
    m_cost: u32,
    t_cost: u32,
    p_cost: u32,
    salt: Vec<u8>,
    output: Vec<u8>,
}

/// Why the text of an entry is no hash this crate checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HashError {
    #[error("expected `$argon2id$v=19$m=..,t=..,p=..$salt$hash` or `sha256:` and 43 characters of base64url")]
    Form,
    #[error("`{0}` is no hash this server checks; expected `argon2id` or `sha256`")]
    Algorithm(String),
    #[error("argon2id must say `v=19`")]
    Version,
    #[error("argon2id parameter `{name}` is {value}; expected {min} to {max}")]
    Bounds { name: &'static str, value: u32, min: u32, max: u32 },
    #[error("the argon2id salt must be {min} to {max} bytes of unpadded base64", min = SALT_BYTES.start(), max = SALT_BYTES.end())]
    Salt,
    #[error("the argon2id hash must be {min} to {max} bytes of unpadded base64", min = OUTPUT_BYTES.start(), max = OUTPUT_BYTES.end())]
    Output,
}

impl Hash {
    /// The word for the way it is stored.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Hash::Sha256(_) => "sha256",
            Hash::Argon2(_) => "argon2id",
        }
    }

    /// Reads an entry's hash. The bounds are checked here, at load, so that no request ever pays for
    /// outlandish parameters.
    pub(crate) fn parse(text: &str) -> Result<Hash, HashError> {
        if let Some(digest) = text.strip_prefix("sha256:") {
            let bytes = BASE64URL_NOPAD.decode(digest.as_bytes()).map_err(|_| HashError::Form)?;
            return bytes.try_into().map(Hash::Sha256).map_err(|_| HashError::Form);
        }
        let mut parts = text.strip_prefix('$').ok_or(HashError::Form)?.split('$');
        match parts.next() {
            Some("argon2id") => {}
            Some(name) => return Err(HashError::Algorithm(crate::names::escape_untrusted(name, 16))),
            None => return Err(HashError::Form),
        }
        if parts.next() != Some("v=19") {
            return Err(HashError::Version);
        }
        let (Some(params), Some(salt), Some(output), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(HashError::Form);
        };
        let mut params = params.split(',');
        let mut param = |name, prefix, bounds: std::ops::RangeInclusive<u32>| {
            let text = params.next().and_then(|p| p.strip_prefix(prefix)).ok_or(HashError::Form)?;
            if text.is_empty() || text.starts_with('0') || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(HashError::Form);
            }
            let value = text.parse().unwrap_or(u32::MAX);
            let (min, max) = (*bounds.start(), *bounds.end());
            if bounds.contains(&value) { Ok(value) } else { Err(HashError::Bounds { name, value, min, max }) }
        };
        let m_cost = param("m", "m=", M_COST)?;
        let t_cost = param("t", "t=", T_COST)?;
        let p_cost = param("p", "p=", P_COST)?;
        if params.next().is_some() {
            return Err(HashError::Form);
        }
        let salt = BASE64_NOPAD.decode(salt.as_bytes()).map_err(|_| HashError::Salt)?;
        if !SALT_BYTES.contains(&salt.len()) {
            return Err(HashError::Salt);
        }
        let output = BASE64_NOPAD.decode(output.as_bytes()).map_err(|_| HashError::Output)?;
        if !OUTPUT_BYTES.contains(&output.len()) {
            return Err(HashError::Output);
        }
        Ok(Hash::Argon2(Argon2Hash { m_cost, t_cost, p_cost, salt, output }))
    }
}

impl Argon2Hash {
    fn matches(&self, bearer: &str) -> Result<bool, argon2::Error> {
        let params = Params::new(self.m_cost, self.t_cost, self.p_cost, Some(self.output.len()))?;
        let mut output = Zeroizing::new(vec![0; self.output.len()]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params).hash_password_into(
            bearer.as_bytes(),
            &self.salt,
            &mut output,
        )?;
        Ok(output.ct_eq(&self.output).into())
    }
}

/// A bearer whose id is known and whose secret is still to be checked. Holds everything the check needs,
/// so it can be moved to a thread that may block.
pub struct Argon2Candidate {
    pub(crate) id: String,
    pub(crate) hash: Argon2Hash,
    pub(crate) principal: Arc<Principal>,
}

impl Argon2Candidate {
    /// The token's public id: what a failure limiter counts by.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The name of the entry the bearer claims to be. Not proved yet.
    pub fn claimed_name(&self) -> &str {
        self.principal.name()
    }

    /// Checks the bearer. Slow on purpose (tens of milliseconds) and it takes the entry's `m` of memory
    /// (19 to 128 MiB): run it where blocking is allowed, behind a bound on how many run at once.
    ///
    /// # Errors
    /// [`TokenRefusal::WrongSecret`] when it is another token, also one with another id.
    pub fn verify(self, bearer: &str) -> Result<Arc<Principal>, TokenRefusal> {
        if parse(bearer) != Ok(Form::Full(&self.id)) {
            return Err(TokenRefusal::WrongSecret);
        }
        match self.hash.matches(bearer) {
            Ok(true) => Ok(self.principal),
            // The parameters were checked at load; should the library refuse them all the same, fail closed.
            Ok(false) | Err(_) => Err(TokenRefusal::WrongSecret),
        }
    }
}

impl fmt::Debug for Argon2Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Argon2Candidate")
            .field("id", &self.id)
            .field("claimed_name", &self.claimed_name())
            .finish_non_exhaustive()
    }
}

/// SHA-256 of a token's text.
pub(crate) fn sha256_of(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// The `sha256:` entry for a token's text. For tokens machines use at a high rate: 256 random bits need
/// no slow hash.
pub fn sha256_entry(text: &str) -> String {
    format!("sha256:{}", BASE64URL_NOPAD.encode(&sha256_of(text)))
}

/// Argon2id could not hash: the library refused its own defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("argon2id could not hash the token: {0}")]
pub struct ArgonError(argon2::Error);

/// The `$argon2id$` entry for a token's text, with OWASP's parameters (19 MiB, two passes, one lane). As
/// slow as one check.
///
/// # Errors
/// When the argon2 library fails, which it does not with these parameters.
pub fn argon2id_entry(text: &str, salt: [u8; 16]) -> Result<String, ArgonError> {
    let (m, t, p) = (*M_COST.start(), *T_COST.start(), *P_COST.start());
    let params = Params::new(m, t, p, Some(32)).map_err(ArgonError)?;
    let mut output = Zeroizing::new([0_u8; 32]);
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(text.as_bytes(), &salt, output.as_mut_slice())
        .map_err(ArgonError)?;
    let (salt, output) = (BASE64_NOPAD.encode(&salt), BASE64_NOPAD.encode(output.as_slice()));
    Ok(format!("$argon2id$v=19$m={m},t={t},p={p}${salt}${output}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: &str = "c29tZXNhbHRzb21lc2FsdA";
    const OUTPUT: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

    fn entry(head: &str) -> Result<Hash, HashError> {
        Hash::parse(&format!("{head}${SALT}${OUTPUT}"))
    }

    #[test]
    fn tk_05_parameters_are_bounded_at_load() {
        for head in [
            "$argon2id$v=19$m=19456,t=2,p=1",
            "$argon2id$v=19$m=131072,t=10,p=16",
            "$argon2id$v=19$m=65536,t=3,p=4",
        ] {
            assert!(entry(head).is_ok(), "{head}");
        }
        for (head, name) in [
            ("$argon2id$v=19$m=4194304,t=3,p=1", "m"),
            ("$argon2id$v=19$m=131073,t=3,p=1", "m"),
            ("$argon2id$v=19$m=19455,t=2,p=1", "m"),
            ("$argon2id$v=19$m=99999999999999999999,t=2,p=1", "m"),
            ("$argon2id$v=19$m=19456,t=1000000,p=1", "t"),
            ("$argon2id$v=19$m=19456,t=11,p=1", "t"),
            ("$argon2id$v=19$m=19456,t=1,p=1", "t"),
            ("$argon2id$v=19$m=19456,t=2,p=64", "p"),
            ("$argon2id$v=19$m=19456,t=2,p=17", "p"),
        ] {
            assert!(
                matches!(entry(head), Err(HashError::Bounds { name: found, .. }) if found == name),
                "{head}"
            );
        }
        for head in ["$argon2i$v=19$m=19456,t=2,p=1", "$argon2d$v=19$m=19456,t=2,p=1", "$2b$12"] {
            assert!(matches!(entry(head), Err(HashError::Algorithm(_))), "{head}");
        }
        for head in ["$argon2id$v=16$m=19456,t=2,p=1", "$argon2id$m=19456,t=2,p=1"] {
            assert!(matches!(entry(head), Err(HashError::Version)), "{head}");
        }
        for head in [
            "argon2id$v=19$m=19456,t=2,p=1",
            "$argon2id$v=19$m=19456,t=2",
            "$argon2id$v=19$m=19456,t=2,p=1,keyid=x",
            "$argon2id$v=19$t=2,m=19456,p=1",
            "$argon2id$v=19$m=+19456,t=2,p=1",
            "$argon2id$v=19$m=019456,t=2,p=1",
            "$argon2id$v=19$m=0,t=2,p=1",
            "$argon2id$v=19$m=,t=2,p=1",
            "$argon2id$v=19$m=19456,t=2,p=1$x",
        ] {
            assert!(matches!(entry(head), Err(HashError::Form)), "{head} {:?}", entry(head).err());
        }
        let head = "$argon2id$v=19$m=19456,t=2,p=1";
        assert_eq!(Hash::parse(&format!("{head}$AAAA${OUTPUT}")).err(), Some(HashError::Salt));
        assert_eq!(Hash::parse(&format!("{head}${SALT}$AAAA")).err(), Some(HashError::Output));
        assert_eq!(Hash::parse(&format!("{head}${SALT}==${OUTPUT}")).err(), Some(HashError::Salt));
        assert_eq!(Hash::parse(&format!("{head}${SALT}")).err(), Some(HashError::Form));
    }

    #[test]
    fn sha256_entries_are_32_bytes_of_base64url() {
        // The digest of the empty text, from FIPS 180-4's examples.
        assert_eq!(sha256_entry(""), "sha256:47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU");
        assert!(Hash::parse(&sha256_entry("x")).is_ok());
        for text in
            ["sha256:", "sha256:AAAA", "sha256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU", "sha1:AAAA", ""]
        {
            assert_eq!(Hash::parse(text).err(), Some(HashError::Form), "{text}");
        }
    }
}
