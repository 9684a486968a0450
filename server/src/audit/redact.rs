//! `--audit-redact`: what callers put into a call, replaced by a keyed digest or left out.
//!
//! Redacted are the arguments, what clients assert about themselves, and the peer's address: every scalar of
//! whatever type, at every depth, and the keys of nested maps. What the server established (tool, cluster, vmid,
//! decision) stays readable, or the trail would say nothing.

use std::fmt;

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;

use super::record::Record;
use crate::keys::Key;

/// The mode named by `--audit-redact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Redaction {
    /// Values stay readable.
    #[default]
    Off,
    /// Values become a keyed digest: equal values can still be recognised as equal.
    Hmac,
    /// Values are left out.
    Drop,
}

/// Applies a [`Redaction`].
#[derive(Clone)]
pub struct Redactor {
    mode: Redaction,
    key: Key,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("mode", &self.mode).finish_non_exhaustive()
    }
}

impl Redactor {
    /// A redactor; the key is used by [`Redaction::Hmac`] only.
    pub fn new(mode: Redaction, key: Key) -> Self {
        Self { mode, key }
    }

    pub(super) fn apply(&self, record: &mut Record) {
        if self.mode == Redaction::Off {
            return;
        }
        if let Some(peer) = &mut record.peer {
            *peer = self.text("peer", peer);
        }
        for map in [&mut record.arguments, &mut record.asserted] {
            let whole = std::mem::take(map);
            for (key, mut value) in whole {
                self.value(&mut value);
                // Names of arguments are the catalog's; anything else in that place came from the caller.
                let key = if is_argument_name(&key) { key } else { self.text("key", &key).into() };
                map.insert(key, value);
            }
        }
    }

    fn value(&self, value: &mut Value) {
        match value {
            Value::Null => {}
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                *value = match self.mode {
                    Redaction::Drop => Value::Null,
                    // With its JSON spelling, so that 100 and "100" stay apart.
                    _ => Value::String(self.text("value", &value.to_string())),
                };
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => {
                let whole: Map<String, Value> = std::mem::take(map);
                for (index, (key, mut inner)) in whole.into_iter().enumerate() {
                    self.value(&mut inner);
                    let key = match self.mode {
                        Redaction::Drop => format!("dropped {index}"),
                        _ => self.text("key", &key),
                    };
                    map.insert(key, inner);
                }
            }
        }
    }

    fn text(&self, kind: &str, text: &str) -> String {
        if self.mode == Redaction::Drop {
            return "dropped".to_owned();
        }
        let mut block = [0u8; 64];
        block[..self.key.expose().len()].copy_from_slice(self.key.expose());
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(b"pxw-audit-redact-v1\0");
        mac.update(kind.as_bytes());
        mac.update(b"\0");
        mac.update(text.as_bytes());
        let digest = mac.finalize().into_bytes();
        // 128 bits are plenty to recognise equal values.
        format!("hmac:{}", HEXLOWER.encode(&digest[..16]))
    }
}

fn is_argument_name(key: &str) -> bool {
    key.len() <= 40 && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::audit::Event;

    fn redacted(mode: Redaction, value: Value) -> String {
        let mut record = Record::new(Event::ToolCall)
            .tool("proxmox_upload_link")
            .vmid(905)
            .peer("203.0.113.9".parse().unwrap())
            .argument("dest", value.clone())
            .asserted("client_name", value);
        Redactor::new(mode, Key::from_bytes([1; 32])).apply(&mut record);
        serde_json::to_string(&record).unwrap()
    }

    #[test]
    fn au_05_every_type_at_every_depth_is_covered() {
        let value = json!({"secretkey": ["secrettext", 4711, true, {"innerkey": -0.25}]});
        for mode in [Redaction::Hmac, Redaction::Drop] {
            let text = redacted(mode, value.clone());
            for gone in ["secretkey", "secrettext", "4711", "true", "innerkey", "0.25", "203.0.113.9"] {
                assert!(!text.contains(gone), "{mode:?} {gone}: {text}");
            }
            for kept in ["proxmox_upload_link", "905", "\"dest\"", "\"client_name\""] {
                assert!(text.contains(kept), "{mode:?} {kept}: {text}");
            }
        }
        assert!(redacted(Redaction::Off, value).contains("secrettext"));
    }

    #[test]
    fn au_05_equal_values_stay_recognisable_and_types_stay_apart() {
        assert_eq!(redacted(Redaction::Hmac, json!("a")), redacted(Redaction::Hmac, json!("a")));
        assert_ne!(redacted(Redaction::Hmac, json!(100)), redacted(Redaction::Hmac, json!("100")));
        assert_ne!(redacted(Redaction::Hmac, json!("a")), redacted(Redaction::Hmac, json!("b")));
    }

    proptest! {
        #[test]
        fn au_05_no_long_text_survives(text in "[a-z]{12,40}", number in 100_000_000u64..) {
            for mode in [Redaction::Hmac, Redaction::Drop] {
                let value = json!([{ text.clone(): [text.clone(), number] }, number, {"x": {text.clone(): null}}]);
                let out = redacted(mode, value);
                prop_assert!(!out.contains(&text), "{}", out);
                prop_assert!(!out.contains(&number.to_string()), "{}", out);
            }
        }
    }
}
