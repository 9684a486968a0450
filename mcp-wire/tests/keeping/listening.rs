//! Subscriptions: `subscriptions/listen`, and the stream of a legacy session.

use serde_json::{Value, json};

use crate::support::{Server, Stream, body, call, legacy, modern};

fn listen(notifications: Value) -> Value {
    modern("subscriptions/listen", json!({"notifications": notifications}), json!({}))
}

#[tokio::test]
async fn a_listener_hears_what_it_asked_for_and_nothing_else() {
    let server = Server::new();
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": ["test://a", "test://secret"]});
    let mut stream = Stream::of(server.modern("alice", &listen(wanted)).await);
    let first = stream.message().await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(
        first["params"]["notifications"],
        json!({"toolsListChanged": true, "resourceSubscriptions": ["test://a"]})
    );
    server.events.prompts_changed();
    server.events.resource_updated("test://secret");
    server.events.resource_updated("test://a");
    server.events.tools_changed();
    let updated = stream.message().await;
    assert_eq!(
        (&updated["method"], &updated["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!("test://a"))
    );
    let changed = stream.message().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    for message in [&first, &updated, &changed] {
        assert_eq!(message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1, "{message}");
    }
    server.events.end();
    let end = stream.message().await;
    assert_eq!((&end["id"], &end["result"]["resultType"]), (&json!(1), &json!("complete")));
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_task_is_heard_of_by_its_owner_alone() {
    let server = Server::new();
    let capable = || json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}});
    let created = server.ask("alice", capable(), "tools/call", call("task")).await;
    let id = created["result"]["taskId"].as_str().unwrap().to_owned();
    let mut own = Stream::of(server.modern("alice", &listen(json!({"taskIds": [id]}))).await);
    assert_eq!(own.message().await["params"]["notifications"]["taskIds"], json!([id]));
    let mut foreign = Stream::of(server.modern("bob", &listen(json!({"taskIds": [id]}))).await);
    assert_eq!(foreign.message().await["params"]["notifications"], json!({}));
    server.ask("alice", capable(), "tasks/cancel", json!({"taskId": id})).await;
    let told = loop {
        let told = own.message().await;
        if told["params"]["status"] == "cancelled" {
            break told;
        }
    };
    assert_eq!((&told["method"], &told["params"]["taskId"]), (&json!("notifications/tasks"), &json!(id)));
    server.events.end();
    assert!(foreign.message().await["result"].is_object());
}

#[tokio::test]
async fn a_filter_of_another_form_is_refused_and_json_is_not_enough() {
    let server = Server::new();
    let refused = server.modern("alice", &listen(json!([]))).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(body(refused).await["error"]["code"], -32602);
    let message = listen(json!({"toolsListChanged": true})).to_string();
    let request = http::Request::post("/mcp")
        .header("host", "localhost")
        .header("accept", "application/json")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "subscriptions/listen")
        .body(message)
        .unwrap();
    let response = tower::ServiceExt::oneshot(server.endpoint.clone(), request).await.unwrap();
    assert_eq!(response.status(), 406);
}

#[tokio::test]
async fn a_legacy_session_hears_on_its_own_stream() {
    let server = Server::new();
    let session = server.begin("alice", "2025-11-25", json!({})).await;
    let mut stream = Stream::of(server.send("GET", &[("mcp-session-id", &session)], &Value::Null).await);
    let subscribe = async |method: &str, uri: &str| {
        let message = legacy(1, method, json!({"uri": uri}));
        body(server.within("alice", &session, &message).await).await
    };
    assert_eq!(subscribe("resources/subscribe", "test://a").await["result"], json!({}));
    assert_eq!(subscribe("resources/subscribe", "test://b").await["result"], json!({}));
    assert_eq!(subscribe("resources/unsubscribe", "test://b").await["result"], json!({}));
    // What the service does not allow is not watched.
    assert_eq!(subscribe("resources/subscribe", "test://secret").await["error"]["code"], -32002);
    for uri in ["test://secret", "test://b", "test://a"] {
        server.events.resource_updated(uri);
    }
    server.events.prompts_changed();
    assert_eq!(
        stream.message().await,
        json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "test://a"}})
    );
    assert_eq!(stream.message().await["method"], "notifications/prompts/list_changed");
    let ended = server.send("DELETE", &[("mcp-session-id", &session)], &Value::Null).await;
    assert_eq!(ended.status(), 204);
    assert!(stream.next().await.is_none());
}
