//! Eras, headers against bodies, and what the crate answers by itself.
#![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]

use mcp_wire::{
    Era, Identity, Message, Method, Revision, RpcError, ServerInfo,
    builtin::{Routed, route},
    jsonrpc::Limits,
    ladder::{Field, RoutingHeaders, http_status},
};
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";

fn identity() -> Identity {
    Identity::new(ServerInfo::new("test", "1.2.3")).instructions("Be brief.")
}

fn routed(message: &Value, headers: Option<&RoutingHeaders<'_>>) -> Result<Routed, RpcError> {
    let text = message.to_string();
    let Ok(Message::Request { id, method, params }) = Message::parse(text.as_bytes(), &Limits::default())
    else {
        panic!("not a request: {text}");
    };
    route(&identity(), &id, &method, params, headers)
}

fn answered(message: &Value, headers: Option<&RoutingHeaders<'_>>) -> (Era, Result<Value, RpcError>) {
    match routed(message, headers) {
        Ok(Routed::Answered(era, _, outcome)) => (era, outcome),
        other => panic!("not answered by the crate: {other:?}"),
    }
}

fn legacy(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn modern_as(version: &str, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    legacy(method, params)
}

fn modern(method: &str, params: Value) -> Value {
    modern_as(MODERN, method, params)
}

fn headers<'a>(version: &'a str, method: &'a str, name: Option<&'a str>) -> RoutingHeaders<'a> {
    RoutingHeaders {
        protocol_version: Field::One(version),
        method: Field::One(method),
        name: name.map_or(Field::Absent, Field::One),
    }
}

#[test]
fn initialize_answers() {
    for version in ["2025-11-25", "2024-11-05"] {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "0"}});
        let (era, outcome) = answered(&legacy("initialize", params), None);
        assert_eq!(era, Era::Legacy(Revision::parse(version).unwrap()));
        insta::assert_json_snapshot!(format!("initialize-{version}"), outcome.unwrap());
    }
}

#[test]
fn initialize_that_asks_for_the_modern_or_an_unknown_revision_gets_the_newest_handshake() {
    for version in ["2026-07-28", "2099-01-01", ""] {
        // The header of a modern client does not turn its `initialize` into a modern request.
        for header in [None, Some(&headers(MODERN, "initialize", None))] {
            let (_, outcome) = answered(&legacy("initialize", json!({"protocolVersion": version})), header);
            assert_eq!(outcome.unwrap()["protocolVersion"], "2025-11-25", "{version}");
        }
    }
}

#[test]
fn discover_answers() {
    let (era, outcome) = answered(&modern("server/discover", json!({})), None);
    assert_eq!(era, Era::Modern);
    insta::assert_json_snapshot!("discover", outcome.unwrap());
}

#[test]
fn lists_are_empty_and_only_modern_ones_are_cacheable() {
    for (method, key) in [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ] {
        assert_eq!(answered(&legacy(method, json!({})), None).1.unwrap(), json!({key: []}));
        let result = answered(&modern(method, json!({})), None).1.unwrap();
        assert_eq!(
            result,
            json!({key: [], "resultType": "complete", "ttlMs": 60_000, "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "test", "version": "1.2.3"}}})
        );
        assert_eq!(answered(&modern(method, json!({"cursor": "x"})), None).1.unwrap_err().code, -32602);
    }
}

#[test]
fn missing_resources_and_prompts_are_errors_of_their_era() {
    let uri = json!({"uri": "test://x"});
    let error = answered(&modern("resources/read", uri.clone()), None).1.unwrap_err();
    assert_eq!((error.code, error.data), (-32602, Some(json!({"uri": "test://x"}))));
    assert_eq!(answered(&legacy("resources/read", uri), None).1.unwrap_err().code, -32002);
    for message in [modern("prompts/get", json!({"name": "x"})), legacy("prompts/get", json!({"name": "x"}))]
    {
        assert_eq!(answered(&message, None).1.unwrap_err().code, -32602);
    }
}

#[test]
fn methods_of_the_other_era_do_not_exist() {
    for method in
        ["initialize", "ping", "logging/setLevel", "resources/subscribe", "subscriptions/listen", "x"]
    {
        let (era, outcome) = answered(&modern(method, json!({})), None);
        let error = outcome.unwrap_err();
        assert_eq!((error.code, http_status(era, &error)), (-32601, 404), "{method}");
    }
    for method in ["server/discover", "logging/setLevel", "subscriptions/listen", "completion/complete", "x"]
    {
        let (era, outcome) = answered(&legacy(method, json!({})), None);
        let error = outcome.unwrap_err();
        assert_eq!((error.code, http_status(era, &error)), (-32601, 200), "{method}");
    }
    assert_eq!(answered(&legacy("ping", json!({})), None).1.unwrap(), json!({}));
}

#[test]
fn the_era_is_chosen_by_the_message_alone() {
    let era_of = |message: &Value, headers: RoutingHeaders<'_>| match routed(message, Some(&headers)) {
        Ok(Routed::Call(call)) => Ok(call.era),
        Ok(Routed::Answered(era, ..)) => Ok(era),
        Err(error) => Err(error.code),
    };
    let list = legacy("tools/list", json!({}));
    assert_eq!(era_of(&list, RoutingHeaders::default()), Ok(Era::Legacy(Revision::V2025_03_26)));
    assert_eq!(era_of(&list, headers("2025-06-18", "", None)), Ok(Era::Legacy(Revision::V2025_06_18)));
    assert_eq!(era_of(&list, headers("2024-11-05", "", None)), Ok(Era::Legacy(Revision::V2024_11_05)));
    // A header that is no handshake revision makes the request modern, and then it lacks its `_meta`.
    assert_eq!(era_of(&list, headers(MODERN, "tools/list", None)), Err(-32602));
    assert_eq!(era_of(&list, headers("nonsense", "tools/list", None)), Err(-32602));
    let discover = legacy("server/discover", json!({}));
    assert_eq!(era_of(&discover, headers(MODERN, "server/discover", None)), Err(-32602));
    let modern_list = modern("tools/list", json!({}));
    assert_eq!(era_of(&modern_list, headers(MODERN, "tools/list", None)), Ok(Era::Modern));
    assert_eq!(era_of(&modern_list, headers("2025-11-25", "tools/list", None)), Err(-32020));
}

#[test]
fn modern_requests_must_describe_themselves() {
    let key = "io.modelcontextprotocol/protocolVersion";
    for meta in [
        json!({key: MODERN}),
        json!({key: MODERN, "io.modelcontextprotocol/clientCapabilities": []}),
        json!({key: 20_260_728, "io.modelcontextprotocol/clientCapabilities": {}}),
    ] {
        let message = legacy("tools/list", json!({"_meta": meta}));
        let error = routed(&message, None).unwrap_err();
        assert_eq!((error.code, http_status(Era::Modern, &error)), (-32602, 400), "{meta}");
    }
}

#[test]
fn mc_02_headers_must_agree_with_the_body() {
    let message = modern("tools/call", json!({"name": "apply_change_set"}));
    let name = Some("apply_change_set");
    assert!(routed(&message, Some(&headers(MODERN, "tools/call", name))).is_ok());
    assert!(
        routed(&message, Some(&headers(" 2026-07-28\t", "tools/call ", Some(" apply_change_set")))).is_ok()
    );
    let refused = [
        headers(MODERN, "tools/call", Some("list_nodes")),
        headers(MODERN, "tools/call", Some("Apply_change_set")),
        headers(MODERN, "tools/call", None),
        headers(MODERN, "tools/list", name),
        headers("2025-11-25", "tools/call", name),
        RoutingHeaders { method: Field::Absent, ..headers(MODERN, "x", name) },
        RoutingHeaders { protocol_version: Field::Absent, ..headers(MODERN, "tools/call", name) },
        RoutingHeaders { name: Field::Repeated, ..headers(MODERN, "tools/call", name) },
        RoutingHeaders { name: Field::Unreadable, ..headers(MODERN, "tools/call", name) },
    ];
    for headers in refused {
        let error = routed(&message, Some(&headers)).unwrap_err();
        assert_eq!((error.code, http_status(Era::Modern, &error)), (-32020, 400), "{headers:?}");
    }
}

#[test]
fn mc_02_base64_sentinels_are_strict() {
    let call = |name: &str, header: &str| {
        let message = modern("tools/call", json!({"name": name}));
        routed(&message, Some(&headers(MODERN, "tools/call", Some(header)))).map(|_| ()).map_err(|e| e.code)
    };
    assert_eq!(call("echo", "=?base64?ZWNobw==?="), Ok(()));
    assert_eq!(call("é\n", "=?base64?w6kK?="), Ok(()));
    assert_eq!(call("", "=?base64??="), Ok(()));
    for bad in [
        "=?base64?ZWNobw?=",
        "=?base64?ZWNobw=?=",
        "=?base64?ZWNobx==?=",
        "=?base64?ZWNo bw==?=",
        "=?base64?ZWNo-w==?=",
        "=?base64?/w==?=",
        "=?base64?b3RoZXI=?=",
    ] {
        assert_eq!(call("echo", bad), Err(-32020), "{bad}");
    }
    // Without both ends the value is literal.
    for literal in ["=?base64?ZWNobw==", "ZWNobw==?=", "=?BASE64?ZWNobw==?="] {
        assert_eq!(call(literal, literal), Ok(()), "{literal}");
        assert_eq!(call("echo", literal), Err(-32020), "{literal}");
    }
}

#[test]
fn mc_02_the_call_is_taken_from_the_body_alone() {
    let message = modern("tools/call", json!({"name": "echo", "arguments": {"a": 1}}));
    let Ok(Routed::Call(call)) = routed(&message, Some(&headers(MODERN, "tools/call", Some("echo")))) else {
        panic!()
    };
    let arguments = json!({"a": 1}).as_object().unwrap().clone();
    assert_eq!(call.method, Method::ToolsCall { name: "echo".into(), arguments });
}

#[test]
fn mismatch_comes_before_an_unsupported_version() {
    let message = modern_as("2099-01-01", "tools/list", json!({}));
    assert_eq!(routed(&message, Some(&headers(MODERN, "tools/list", None))).unwrap_err().code, -32020);
    let error = routed(&message, Some(&headers("2099-01-01", "tools/list", None))).unwrap_err();
    assert_eq!((error.code, http_status(Era::Modern, &error)), (-32022, 400));
    let all = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    assert_eq!(error.data, Some(json!({"supported": all, "requested": "2099-01-01"})));
    // A handshake revision claimed in a modern request: the answer does not offer it again.
    let error = routed(&modern_as("2025-06-18", "tools/list", json!({})), None).unwrap_err();
    assert_eq!(error.code, -32022);
    assert!(!error.data.unwrap()["supported"].as_array().unwrap().contains(&json!("2025-06-18")));
}

#[test]
fn arguments_may_be_left_out_but_not_be_a_list() {
    let Ok(Routed::Call(call)) = routed(&legacy("tools/call", json!({"name": "x"})), None) else { panic!() };
    assert_eq!(call.method, Method::ToolsCall { name: "x".into(), arguments: serde_json::Map::new() });
    for params in [json!({"name": "x", "arguments": []}), json!({"name": 1}), json!({})] {
        assert_eq!(answered(&legacy("tools/call", params), None).1.unwrap_err().code, -32602);
    }
    assert_eq!(answered(&legacy("tools/list", json!({"cursor": 1})), None).1.unwrap_err().code, -32602);
}
