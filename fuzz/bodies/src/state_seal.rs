//! `mcp-wire`: a sealed state opens for its own call and caller, unchanged, and for nothing else.

use std::time::Duration;

use mcp_wire::Message;
use mcp_wire::jsonrpc::Limits;
use mcp_wire::state_seal::{Binding, SealError, StateSeal};
use serde_json::{Map, Value};

use crate::bytes::Bytes;

const NOW: Duration = Duration::from_secs(1_800_000_000);
const LIFETIME: Duration = Duration::from_secs(60);

/// A byte of key, one of change, two owners and then arguments and a state, as a message's parameters.
pub fn state_seal(data: &[u8]) {
    let mut bytes = Bytes(data);
    let (key, flip, at) = (bytes.byte(), bytes.byte(), usize::from(u16::from_be_bytes(bytes.array())));
    let owners = [owner(&mut bytes), owner(&mut bytes)];
    let (arguments, state) = parts(bytes.0);

    let seal = StateSeal::new([key; 32]).lifetime(LIFETIME);
    let binding = Binding::new(&owners[0], "tools/call", &arguments);
    let Ok(sealed) = seal.seal(&state, &binding, NOW) else { return };
    let opened = seal.open(&sealed, &binding, NOW);
    // A fraction may be read one step beside what was written.
    assert!(opened.as_ref() == Ok(&state) || has_a_fraction(&state), "{opened:?}");
    assert_eq!(seal.open(&sealed, &binding, NOW + LIFETIME), Err(SealError::Expired));

    let forged = Err(SealError::Forged);
    let other = StateSeal::new([key.wrapping_add(1); 32]).lifetime(LIFETIME);
    assert_eq!(other.open(&sealed, &binding, NOW), forged);
    assert_eq!(seal.open(&sealed, &Binding::new(&owners[0], "prompts/get", &arguments), NOW), forged);
    if owners[0] != owners[1] {
        assert_eq!(seal.open(&sealed, &Binding::new(&owners[1], "tools/call", &arguments), NOW), forged);
    }
    let mut more = arguments.clone();
    if more.insert("one more".to_owned(), Value::Null).is_none() {
        assert_eq!(seal.open(&sealed, &Binding::new(&owners[0], "tools/call", &more), NOW), forged);
    }

    // One changed byte, and the input itself as a sealed text.
    let mut changed = sealed.clone().into_bytes();
    let place = at % changed.len();
    changed[place] ^= flip & 0x7f;
    if let Ok(changed) = String::from_utf8(changed)
        && changed != sealed
    {
        assert_eq!(seal.open(&changed, &binding, NOW), forged);
    }
    assert_eq!(seal.open(&String::from_utf8_lossy(data), &binding, NOW), forged);
}

fn owner(bytes: &mut Bytes<'_>) -> String {
    let length = usize::from(bytes.byte() % 16);
    String::from_utf8_lossy(bytes.take(length)).into_owned()
}

/// `params.arguments` and `params.state` of a message, where there are any.
fn parts(data: &[u8]) -> (Map<String, Value>, Value) {
    let params = match Message::parse(data, &Limits::default()) {
        Ok(message) => message.params().clone(),
        Err(_) => Map::new(),
    };
    let arguments = params.get("arguments").and_then(Value::as_object).cloned().unwrap_or_default();
    (arguments, params.get("state").cloned().unwrap_or_default())
}

fn has_a_fraction(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_a_fraction),
        Value::Object(map) => map.values().any(has_a_fraction),
        _ => false,
    }
}
