//! `mcp-wire`: a message is understood in one way or refused, and every answer is one line of JSON.

use mcp_wire::builtin::{Routed, route};
use mcp_wire::jsonrpc::Limits;
use mcp_wire::ladder::{Field, RoutingHeaders, http_status};
use mcp_wire::reply::{encode_error, encode_value};
use mcp_wire::{Era, Identity, Message, RequestId, RpcError, ServerInfo};

use crate::json::Json;

/// Small enough for a fuzzer to reach.
const LIMITS: Limits = Limits { bytes: 2048, depth: 8, nodes: 64 };

/// Any bytes as the body of a request.
pub fn mcp_request(data: &[u8]) {
    let json = Json::parse(data);
    let message = match Message::parse(data, &LIMITS) {
        Ok(message) => message,
        Err(refused) => {
            assert!([-32700, -32600, -32602].contains(&refused.error.code), "{refused:?}");
            if let (Some(id), Some(json)) = (&refused.id, &json) {
                assert!(same_id(id, json.get("id")), "an error answers to an id that was not sent");
            }
            check_answer(&encode_error(refused.id.as_ref(), &refused.error), refused.id.as_ref());
            return;
        }
    };
    let json = json.expect("what was understood is JSON");
    check_message(&message, &json, data);
    let Message::Request { id, method, params } = message else { return };

    let identity = Identity::new(ServerInfo::new("fuzz", "0"));
    let name =
        json.get("params").and_then(|params| params.get("name")).and_then(Json::text).unwrap_or_default();
    let headers = RoutingHeaders {
        protocol_version: Field::One("2026-07-28"),
        method: Field::One(&method),
        name: Field::One(name),
    };
    for headers in [None, Some(&RoutingHeaders::default()), Some(&headers)] {
        match route(&identity, &id, &method, params.clone(), headers) {
            Err(error) => {
                assert!(
                    matches!(http_status(Era::Modern, &error), 400 | 404),
                    "a refusal rides on 4xx: {error:?}"
                );
                check_answer(&encode_error(Some(&id), &error), Some(&id));
            }
            Ok(Routed::Answered(_, answered, outcome)) => {
                assert_eq!(answered, id);
                assert!(!matches!(&*method, "tools/call" | "tools/list") || outcome.is_err());
                check_answer(&encode_value(&id, &outcome), Some(&id));
            }
            Ok(Routed::Call(call)) => {
                assert_eq!((call.id, call.method.as_str()), (id.clone(), &*method));
                let outcome = Err(RpcError::unknown_tool(name));
                check_answer(&encode_value(&id, &outcome), Some(&id));
            }
        }
    }
}

fn check_message(message: &Message, json: &Json, data: &[u8]) {
    assert!(!json.repeats_a_key(), "two readers could understand two things");
    assert!(data.len() <= LIMITS.bytes && depth(json) <= LIMITS.depth);
    let Json::Object(members) = json else { panic!("not an object") };
    assert_eq!(json.get("jsonrpc").and_then(Json::text), Some("2.0"));
    assert_eq!(json.get("method").and_then(Json::text), Some(message.method()));
    assert!(
        members.iter().all(|(key, _)| key != "result" && key != "error"),
        "a response passes for a request"
    );
    match message {
        Message::Request { id, .. } => assert!(same_id(id, json.get("id"))),
        Message::Notification { method, .. } => {
            assert!(members.iter().all(|(key, _)| key != "id") && method.starts_with("notifications/"));
        }
    }
    let wire = serde_json::to_vec(message).expect("a message can be written");
    let again = Message::parse(&wire, &Limits::default());
    // serde_json may read a fraction one step beside its nearest double, and then writes that one.
    if json.has_a_fraction() {
        assert_eq!(again.map(|again| again.method().to_owned()), Ok(message.method().to_owned()));
    } else {
        assert_eq!(again.as_ref(), Ok(message), "a message reads back");
    }
}

fn same_id(id: &RequestId, json: Option<&Json>) -> bool {
    match (id, json) {
        (RequestId::String(id), Some(Json::Text(sent))) => id == sent,
        (RequestId::Integer(id), Some(Json::Number(sent))) => id == sent,
        _ => false,
    }
}

fn depth(json: &Json) -> usize {
    match json {
        Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Json::Object(members) => 1 + members.iter().map(|(_, value)| depth(value)).max().unwrap_or(0),
        _ => 0,
    }
}

/// One line of JSON-RPC with the id that was sent, and either a result or an error.
fn check_answer(line: &[u8], id: Option<&RequestId>) {
    assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "an answer is one line");
    let json = Json::parse(line).expect("an answer is JSON");
    assert!(!json.repeats_a_key());
    assert_eq!(json.get("jsonrpc").and_then(Json::text), Some("2.0"));
    match id {
        Some(id) => assert!(same_id(id, json.get("id"))),
        None => assert_eq!(json.get("id"), None),
    }
    assert!(json.get("result").is_some() != json.get("error").is_some());
}
