//! What a server asks a client to bring back, sealed: `requestState` of revision 2026-07-28.
//!
//! A sealed state is bound to the caller, to the method and its arguments, and to a moment after which it is
//! refused. HMAC-SHA-256; the state can be read by whoever holds it, so put no secret in it. Pure: the time is
//! an argument.

use std::{fmt, time::Duration};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Says what the tag is for, so that no other use of the key can be passed off as this one.
const PURPOSE: &[u8] = b"mcp-wire request state 1";

/// The tag's length in bytes.
const TAG: usize = 32;

/// Longest sealed text that is opened, in bytes.
pub const MAX_SEALED: usize = 64 * 1024;

/// Why a sealed state was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Not made with this seal's keys for this caller and this call, or changed since.
    #[error("`requestState` was not given by this server for this call; start the call anew without it")]
    Forged,
    /// Made here, but too long ago.
    #[error("`requestState` has expired; start the call anew without it")]
    Expired,
    /// Too long to seal.
    #[error("the state to keep exceeds 48 KiB")]
    TooLong,
}

/// Whose call a state belongs to, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    owner: String,
    call: [u8; 32],
}

impl Binding {
    /// A state of `owner`'s call of `method` with `arguments`: the request's parameters without `_meta`,
    /// `inputResponses` and `requestState`.
    #[must_use]
    pub fn new(owner: &str, method: &str, arguments: &Map<String, Value>) -> Self {
        let mut digest = Sha256::new();
        part(&mut digest, method.as_bytes());
        members(&mut digest, arguments);
        Self { owner: owner.to_owned(), call: digest.finalize().into() }
    }
}

/// Seals and opens states. Keep the key as long as states shall stay valid; a restart with a new key voids them.
#[derive(Clone)]
pub struct StateSeal {
    key: [u8; 32],
    former: Vec<[u8; 32]>,
    lifetime: Duration,
}

impl fmt::Debug for StateSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateSeal").field("lifetime", &self.lifetime).finish_non_exhaustive()
    }
}

impl StateSeal {
    /// A seal with this key. States are valid for ten minutes.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, former: Vec::new(), lifetime: Duration::from_secs(600) }
    }

    /// The same, which also opens what `key` has sealed: for the time after a change of keys.
    #[must_use]
    pub fn also_opening(mut self, key: [u8; 32]) -> Self {
        self.former.push(key);
        self
    }

    /// The same with states that are valid for `lifetime`.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Seals `state` for `binding` at `now`, the time since 1970.
    ///
    /// # Errors
    /// [`SealError::TooLong`].
    pub fn seal(&self, state: &Value, binding: &Binding, now: Duration) -> Result<String, SealError> {
        let text = state.to_string();
        if text.len() > MAX_SEALED / 4 * 3 - 64 {
            return Err(SealError::TooLong);
        }
        let mut sealed = (now + self.lifetime).as_secs().to_be_bytes().to_vec();
        sealed.extend_from_slice(text.as_bytes());
        let tag = mac(&self.key, binding, &sealed).finalize().into_bytes();
        sealed.extend_from_slice(&tag);
        Ok(data_encoding::BASE64URL_NOPAD.encode(&sealed))
    }

    /// Opens what [`StateSeal::seal`] gave for the same `binding`.
    ///
    /// # Errors
    /// [`SealError::Forged`] and [`SealError::Expired`]; which part of the binding differs is not told.
    pub fn open(&self, sealed: &str, binding: &Binding, now: Duration) -> Result<Value, SealError> {
        if sealed.len() > MAX_SEALED {
            return Err(SealError::Forged);
        }
        let bytes =
            data_encoding::BASE64URL_NOPAD.decode(sealed.as_bytes()).map_err(|_| SealError::Forged)?;
        let at = bytes.len().checked_sub(TAG).ok_or(SealError::Forged)?;
        let (body, tag) = bytes.split_at(at);
        let genuine = std::iter::once(&self.key)
            .chain(&self.former)
            .any(|key| mac(key, binding, body).verify_slice(tag).is_ok());
        let (Some((expires, text)), true) = (body.split_first_chunk::<8>(), genuine) else {
            return Err(SealError::Forged);
        };
        if now.as_secs() >= u64::from_be_bytes(*expires) {
            return Err(SealError::Expired);
        }
        serde_json::from_slice(text).map_err(|_| SealError::Forged)
    }
}

fn mac(key: &[u8; 32], binding: &Binding, body: &[u8]) -> Hmac<Sha256> {
    // HMAC's own padding of a key that is shorter than its block.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new((&block).into());
    mac.update(PURPOSE);
    mac.update(&(binding.owner.len() as u64).to_be_bytes());
    mac.update(binding.owner.as_bytes());
    mac.update(&binding.call);
    mac.update(body);
    mac
}

/// A part of the digest, after its length, so that no two sequences of parts read the same.
fn part(digest: &mut Sha256, bytes: &[u8]) {
    digest.update((bytes.len() as u64).to_be_bytes());
    digest.update(bytes);
}

fn members(digest: &mut Sha256, map: &Map<String, Value>) {
    digest.update([b'{']);
    digest.update((map.len() as u64).to_be_bytes());
    // Sorted: without `preserve_order` the map is, but a feature of another crate could turn that on.
    let mut keys: Vec<_> = map.keys().collect();
    keys.sort_unstable();
    for key in keys {
        part(digest, key.as_bytes());
        node(digest, &map[key]);
    }
}

/// A value as tagged, counted parts. Nothing is hashed over JSON text, whose form depends on its writer.
fn node(digest: &mut Sha256, value: &Value) {
    match value {
        Value::Null => digest.update([b'n']),
        Value::Bool(flag) => digest.update([b'b', u8::from(*flag)]),
        Value::Number(number) => {
            if let Some(integer) = number.as_i64() {
                digest.update([b'i']);
                digest.update(integer.to_be_bytes());
            } else if let Some(integer) = number.as_u64() {
                digest.update([b'u']);
                digest.update(integer.to_be_bytes());
            } else {
                digest.update([b'f']);
                digest.update(number.as_f64().unwrap_or(f64::NAN).to_bits().to_be_bytes());
            }
        }
        Value::String(text) => {
            digest.update([b's']);
            part(digest, text.as_bytes());
        }
        Value::Array(items) => {
            digest.update([b'[']);
            digest.update((items.len() as u64).to_be_bytes());
            for item in items {
                node(digest, item);
            }
        }
        Value::Object(map) => members(digest, map),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn seal() -> StateSeal {
        StateSeal::new([7; 32])
    }

    fn binding(owner: &str, method: &str, arguments: Value) -> Binding {
        Binding::new(owner, method, arguments.as_object().unwrap())
    }

    #[test]
    fn a_state_comes_back_to_its_own_call_alone() {
        let mine = binding("alice", "tools/call", json!({"name": "x", "arguments": {"vmid": 100}}));
        let state = json!({"step": 2});
        let sealed = seal().seal(&state, &mine, NOW).unwrap();
        assert_eq!(seal().open(&sealed, &mine, NOW + Duration::from_secs(599)), Ok(state));
        for other in [
            binding("bob", "tools/call", json!({"name": "x", "arguments": {"vmid": 100}})),
            binding("alice", "prompts/get", json!({"name": "x", "arguments": {"vmid": 100}})),
            binding("alice", "tools/call", json!({"name": "y", "arguments": {"vmid": 100}})),
            binding("alice", "tools/call", json!({"name": "x", "arguments": {"vmid": 101}})),
            binding("alice", "tools/call", json!({"name": "x", "arguments": {"vmid": "100"}})),
            binding("alice", "tools/call", json!({"name": "x", "arguments": {"vmid": 100.0}})),
            binding("alice", "tools/call", json!({"name": "x", "arguments": {}, "vmid": 100})),
        ] {
            assert_eq!(seal().open(&sealed, &other, NOW), Err(SealError::Forged), "{other:?}");
        }
        assert_eq!(StateSeal::new([8; 32]).open(&sealed, &mine, NOW), Err(SealError::Forged));
        let later = NOW + Duration::from_secs(600);
        assert_eq!(seal().open(&sealed, &mine, later), Err(SealError::Expired));
        // The order of members is no difference.
        let swapped = binding("alice", "tools/call", json!({"arguments": {"vmid": 100}, "name": "x"}));
        assert!(seal().open(&sealed, &swapped, NOW).is_ok());
    }

    #[test]
    fn a_former_key_opens_and_does_not_seal() {
        let mine = binding("a", "m", json!({}));
        let old = seal().seal(&json!(1), &mine, NOW).unwrap();
        let turned = StateSeal::new([9; 32]).also_opening([7; 32]);
        assert_eq!(turned.open(&old, &mine, NOW), Ok(json!(1)));
        let new = turned.seal(&json!(1), &mine, NOW).unwrap();
        assert_eq!(seal().open(&new, &mine, NOW), Err(SealError::Forged));
    }

    #[test]
    fn an_over_long_state_is_not_sealed_and_an_over_long_text_not_read() {
        let mine = binding("a", "m", json!({}));
        let long = json!("x".repeat(MAX_SEALED));
        assert_eq!(seal().seal(&long, &mine, NOW), Err(SealError::TooLong));
        assert_eq!(seal().open(&"A".repeat(MAX_SEALED + 4), &mine, NOW), Err(SealError::Forged));
        let largest = json!("x".repeat(MAX_SEALED / 4 * 3 - 66));
        let sealed = seal().seal(&largest, &mine, NOW).unwrap();
        assert_eq!(seal().open(&sealed, &mine, NOW), Ok(largest));
    }

    proptest! {
        #[test]
        fn a_changed_character_is_noticed(at in 0_usize..200, with in "[A-Za-z0-9_-]") {
            let mine = binding("a", "m", json!({"k": [1, true, null, "t"]}));
            let sealed = seal().seal(&json!({"step": 1, "of": "several"}), &mine, NOW).unwrap();
            let at = at % sealed.len();
            let mut changed = sealed.clone();
            changed.replace_range(at..=at, &with);
            prop_assume!(changed != sealed);
            prop_assert!(seal().open(&changed, &mine, NOW).is_err());
        }

        #[test]
        fn no_text_is_taken_for_a_state(text in ".{0,120}") {
            let mine = binding("a", "m", json!({}));
            prop_assert!(seal().open(&text, &mine, NOW).is_err());
        }
    }
}
