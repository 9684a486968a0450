//! `mcp-wire`: a routing header agrees with the body exactly when it says the same, and never decides anything.

use mcp_wire::builtin::{Routed, route};
use mcp_wire::ladder::{Field, RoutingHeaders};
use mcp_wire::{Identity, Method, RequestId, ServerInfo};
use serde_json::{Map, Value, json};

/// A header's value, a line break, and the name in the body.
pub fn mcp_headers(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (header, name) = text.split_once('\n').unwrap_or((&text, ""));
    let identity = Identity::new(ServerInfo::new("fuzz", "0"));
    let params = params(name);
    for (field, sent) in [
        (Field::One(header), Some(header)),
        (Field::Absent, None),
        (Field::Repeated, None),
        (Field::Unreadable, None),
    ] {
        let headers = RoutingHeaders {
            protocol_version: Field::One("2026-07-28"),
            method: Field::One("tools/call"),
            name: field,
        };
        let id = RequestId::from(1);
        let agrees = sent.and_then(meant).is_some_and(|meant| meant == name);
        match route(&identity, &id, "tools/call", params.clone(), Some(&headers)) {
            Ok(Routed::Call(call)) => {
                assert!(agrees, "{header:?} passes for {name:?}");
                let arguments = Map::new();
                assert_eq!(call.method, Method::ToolsCall { name: name.to_owned(), arguments });
            }
            Err(error) => {
                assert_eq!(error.code, -32020);
                assert!(!agrees, "{header:?} does not pass for {name:?}");
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
}

fn params(name: &str) -> Map<String, Value> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    Map::from_iter([("name".to_owned(), json!(name)), ("_meta".to_owned(), meta)])
}

/// What a header's value means; `None` for base64 that is not exactly one text.
fn meant(value: &str) -> Option<String> {
    let value = value.trim_matches([' ', '\t']);
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        None => Some(value.to_owned()),
        Some(base64) => String::from_utf8(bytes(base64.as_bytes())?).ok(),
    }
}

/// Base64 by the letter: whole groups of four, padding at the end only, no bit that is not used.
fn bytes(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::new();
    let groups = text.len() / 4;
    for (number, group) in text.chunks(4).enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        if padding > 2 || (padding > 0 && number + 1 != groups) {
            return None;
        }
        let mut bits = 0_u32;
        for byte in &group[..4 - padding] {
            let digit = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(digit);
        }
        let whole = bits << (6 * padding);
        let [_, first, second, third] = whole.to_be_bytes();
        let kept = &[first, second, third][..3 - padding];
        if [first, second, third][3 - padding..].iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(kept);
    }
    Some(out)
}
