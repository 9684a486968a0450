//! Sessions of the older revisions.

use std::time::Duration;

use mcp_wire::legacy::SessionLimits;
use serde_json::{Value, json};

use crate::support::{MODERN, Server, Stream, body, call, legacy, modern, said};

#[tokio::test]
async fn e01_an_unknown_session_is_404_and_a_missing_one_400_where_it_is_needed() {
    let server = Server::new();
    let ping = legacy(1, "ping", json!({}));
    let session = server.begin("alice", "2025-11-25", json!({})).await;
    assert_eq!(server.within("alice", &session, &ping).await.status(), 200);
    // Unknown, somebody else's, unreadable: all the same.
    for (who, id) in [("alice", "from-before-the-restart"), ("bob", session.as_str()), ("alice", "")] {
        for message in [
            &ping,
            &legacy(1, "tools/call", call("hold")),
            &json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        ] {
            let refused = server.within(who, id, message).await;
            assert_eq!(refused.status(), 404, "{who} {message}");
            assert_eq!(body(refused).await["error"], "session_not_found");
        }
        for method in ["GET", "DELETE"] {
            let refused = server.send(method, &[("who", who), ("mcp-session-id", id)], &Value::Null).await;
            assert_eq!(refused.status(), 404, "{method}");
        }
    }
    // Most needs none.
    assert_eq!(server.send("POST", &[], &ping).await.status(), 200);
    for method in ["GET", "DELETE"] {
        assert_eq!(server.send(method, &[], &Value::Null).await.status(), 400);
    }
    let level = legacy(1, "logging/setLevel", json!({"level": "debug"}));
    let refused = body(server.send("POST", &[], &level).await).await;
    assert_eq!(refused["error"]["code"], -32600);
}

#[tokio::test]
async fn e01_a_client_with_a_stale_session_may_begin_anew() {
    let server = Server::new();
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    let response = server.within("alice", "stale", &legacy(1, "initialize", params)).await;
    assert_eq!(response.status(), 200);
    assert_ne!(response.headers()["mcp-session-id"], "stale");
    // A failed handshake begins nothing.
    let response = server.send("POST", &[], &legacy(1, "initialize", json!({}))).await;
    assert!(!response.headers().contains_key("mcp-session-id"));
}

#[tokio::test]
async fn e03_a_session_works_in_full_or_not_at_all() {
    let server = Server::new();
    let session = server.begin("alice", "2025-11-25", json!({"elicitation": {}})).await;
    // Without `notifications/initialized` as well: it is not waited for.
    let response = server.within("alice", &session, &legacy(1, "tools/call", call("name"))).await;
    let mut stream = Stream::of(response);
    stream.message().await;
    assert_eq!(stream.message().await["method"], "elicitation/create");
    let ended = server.send("DELETE", &[("mcp-session-id", &session)], &Value::Null).await;
    assert_eq!(ended.status(), 204);
    // Its call was cancelled with it, and everything that names it is 404.
    assert!(stream.next().await.is_none());
    let again = server.within("alice", &session, &legacy(2, "ping", json!({}))).await;
    assert_eq!(again.status(), 404);
    let again = server.send("DELETE", &[("mcp-session-id", &session)], &Value::Null).await;
    assert_eq!(again.status(), 404);
}

#[tokio::test]
async fn modern_requests_know_no_session() {
    let server = Server::new();
    let message = modern("tools/list", json!({}), json!({}));
    let headers = [("mcp-session-id", "x"), ("mcp-protocol-version", MODERN), ("mcp-method", "tools/list")];
    let response = server.send("POST", &headers, &message).await;
    assert_eq!(response.status(), 200);
    assert!(!response.headers().contains_key("mcp-session-id"));
    let session = server.begin("alice", "2025-11-25", json!({})).await;
    for method in ["GET", "DELETE"] {
        let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", MODERN)];
        assert_eq!(server.send(method, &headers, &Value::Null).await.status(), 405);
    }
    assert_eq!(server.within("alice", &session, &legacy(1, "ping", json!({}))).await.status(), 200);
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let refused = server.modern("alice", &modern(method, json!({"uri": "x"}), json!({}))).await;
        assert_eq!(refused.status(), 404, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_are_bounded_and_expire() {
    let limits = SessionLimits { total: 3, per_caller: 2, ..SessionLimits::default() };
    let server = Server::with(limits);
    let ping = legacy(1, "ping", json!({}));
    let first = server.begin("alice", "2025-11-25", json!({})).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let second = server.begin("alice", "2025-11-25", json!({})).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    // One more ends the caller's own least used.
    let third = server.begin("alice", "2025-11-25", json!({})).await;
    assert_eq!(server.within("alice", &first, &ping).await.status(), 404);
    for id in [&second, &third] {
        assert_eq!(server.within("alice", id, &ping).await.status(), 200);
    }
    server.begin("bob", "2025-11-25", json!({})).await;
    // Somebody else's are not ended for a newcomer.
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let refused = server.send("POST", &[("who", "carol")], &legacy(1, "initialize", params)).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"60".parse().unwrap()));
    tokio::time::advance(Duration::from_secs(30 * 60)).await;
    assert_eq!(server.within("alice", &second, &ping).await.status(), 404);
    server.begin("carol", "2025-11-25", json!({})).await;
}

#[tokio::test]
async fn a_cancelled_call_is_told_and_answers_nothing() {
    let server = Server::new();
    let session = server.begin("alice", "2025-06-18", json!({})).await;
    let call = legacy(5, "tools/call", call("hold"));
    let running = server.within("alice", &session, &call);
    let cancel = async {
        server.service.holding.notified().await;
        let params = json!({"requestId": 5});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
        assert_eq!(server.within("alice", &session, &message).await.status(), 202);
    };
    let (response, ()) = tokio::join!(running, cancel);
    // It was not a stream yet, so that something must be answered; the client does not wait for it.
    assert_eq!(said(&body(response).await), "cancelled");
}

#[tokio::test]
async fn log_messages_follow_the_level_of_the_session() {
    let server = Server::new();
    let session = server.begin("alice", "2025-06-18", json!({})).await;
    let levels = async || {
        let mut stream =
            Stream::of(server.within("alice", &session, &legacy(1, "tools/call", call("log"))).await);
        let mut levels = Vec::new();
        loop {
            let message = stream.message().await;
            if message["method"] != "notifications/message" {
                assert_eq!(said(&message), "logged");
                return levels;
            }
            levels.push(message["params"]["level"].as_str().unwrap().to_owned());
        }
    };
    assert_eq!(levels().await, ["info", "error"]);
    for (level, expected) in [("debug", vec!["debug", "info", "error"]), ("error", vec!["error"])] {
        let set = legacy(1, "logging/setLevel", json!({"level": level}));
        assert_eq!(body(server.within("alice", &session, &set).await).await["result"], json!({}));
        assert_eq!(levels().await, expected);
    }
    let set = legacy(1, "logging/setLevel", json!({"level": "loud"}));
    assert_eq!(body(server.within("alice", &session, &set).await).await["error"]["code"], -32602);
    // In the modern era the request says it, and without it nothing is logged.
    let quiet = server.ask("alice", json!({}), "tools/call", call("log")).await;
    assert_eq!(said(&quiet), "logged");
    let mut loud = call("log");
    loud["_meta"] = json!({"io.modelcontextprotocol/logLevel": "warning"});
    let mut stream = Stream::of(server.modern("alice", &modern("tools/call", loud, json!({}))).await);
    assert_eq!(
        stream.message().await["params"],
        json!({"level": "error", "logger": "t", "data": {"at": "error"}})
    );
    assert_eq!(said(&stream.message().await), "logged");
}

#[tokio::test]
async fn a_client_that_was_let_go_comes_back_for_the_rest() {
    let server = Server::new();
    let session = server.begin("alice", "2025-11-25", json!({})).await;
    let response = server.within("alice", &session, &legacy(3, "tools/call", call("pause"))).await;
    let mut stream = Stream::of(response);
    let primer = stream.next().await.unwrap();
    assert_eq!(primer.message, Value::Null);
    assert!(stream.next().await.is_none());
    server.service.release.notify_one();
    let back = async |who: &str, id: &str| {
        let headers = [("who", who), ("mcp-session-id", session.as_str()), ("last-event-id", id)];
        server.send("GET", &headers, &Value::Null).await
    };
    let primer = primer.id.unwrap();
    let mut rest = Stream::of(back("alice", &primer).await);
    let last = rest.next().await.unwrap();
    assert_eq!(said(&last.message), "after the pause");
    assert!(rest.next().await.is_none());
    // Once more is the same, after the last there is nothing, and nobody else sees any of it.
    assert_eq!(Stream::of(back("alice", &primer).await).message().await["id"], 3);
    assert!(Stream::of(back("alice", &last.id.unwrap()).await).next().await.is_none());
    assert_eq!(back("bob", &primer).await.status(), 404);
    assert_eq!(back("alice", "9-0").await.status(), 400);
}

#[tokio::test]
async fn capabilities_say_what_works() {
    let server = Server::new();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let response = server.send("POST", &[], &legacy(0, "initialize", params)).await;
    let declared = body(response).await["result"]["capabilities"].clone();
    let lists = json!({"listChanged": true});
    let expected = json!({"tools": lists, "prompts": lists, "logging": {}, "completions": {},
        "resources": {"listChanged": true, "subscribe": true}});
    assert_eq!(declared, expected);
    let found = server.ask("alice", json!({}), "server/discover", json!({})).await;
    let mut expected = expected;
    expected["extensions"] = json!({"io.modelcontextprotocol/tasks": {}});
    assert_eq!(found["result"]["capabilities"], expected);
}

#[tokio::test]
async fn resources_prompts_and_completions_are_answered_by_the_service() {
    let server = Server::new();
    let ask = async |method: &str, params: Value| {
        server.ask("alice", json!({}), method, params).await["result"].clone()
    };
    let listed = ask("resources/list", json!({})).await;
    assert_eq!(listed["resources"], json!([{"uri": "test://a", "name": "a", "mimeType": "text/plain"}]));
    assert_eq!((&listed["cacheScope"], &listed["ttlMs"]), (&json!("private"), &json!(60_000)));
    let read = ask("resources/read", json!({"uri": "test://a"})).await;
    assert_eq!(read["contents"], json!([{"uri": "test://a", "mimeType": "text/plain", "text": "A"}]));
    assert_eq!(read["resultType"], "complete");
    let prompts = ask("prompts/list", json!({})).await;
    assert_eq!(
        prompts["prompts"][0]["arguments"][0],
        json!({"name": "a", "description": "An argument.", "required": true})
    );
    let prompt = ask("prompts/get", json!({"name": "p", "arguments": {"a": "x"}})).await;
    assert_eq!(prompt["messages"], json!([{"role": "user", "content": {"type": "text", "text": "P"}}]));
    let completed =
        json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": "x"}});
    let completion = ask("completion/complete", completed).await;
    assert_eq!(completion["completion"], json!({"values": ["x…"], "total": 1, "hasMore": false}));
    for (method, params) in [
        ("resources/read", json!({"uri": "test://b"})),
        ("resources/read", json!({"uri": 1})),
        ("prompts/get", json!({"name": "q"})),
        ("prompts/get", json!({"name": "p", "arguments": {"a": 1}})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/tool", "name": "p"}, "argument": {"name": "a", "value": "x"}}),
        ),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a"}}),
        ),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = body(server.send("POST", &[], &message).await).await;
        let code = if params == json!({"uri": "test://b"}) { -32002 } else { -32602 };
        assert_eq!(answer["error"]["code"], code, "{message}");
    }
}
