//! The tasks extension.

use serde_json::{Value, json};

use crate::support::{Server, body, call, modern};

fn capable() -> Value {
    json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

async fn state(server: &Server, who: &str, id: &str) -> Value {
    server.ask(who, capable(), "tasks/get", json!({"taskId": id})).await
}

/// The task once it stands as named.
async fn until(server: &Server, id: &str, status: &str) -> Value {
    for _ in 0..10_000 {
        let task = state(server, "alice", id).await["result"].clone();
        if task["status"] == status {
            return task;
        }
        tokio::task::yield_now().await;
    }
    panic!("the task never became {status}: {}", state(server, "alice", id).await);
}

async fn start(server: &Server, tool: &str) -> String {
    let created = server.ask("alice", capable(), "tools/call", call(tool)).await["result"].clone();
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
    assert_eq!((created.get("inputRequests"), created.get("requestState")), (None, None));
    created["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_task_asks_takes_answers_one_by_one_and_completes() {
    let server = Server::new();
    let id = start(&server, "task").await;
    assert_eq!(id.len(), 26);
    let waiting = until(&server, &id, "input_required").await;
    assert_eq!(waiting["statusMessage"], "asking");
    assert_eq!(waiting["inputRequests"].as_object().unwrap().len(), 2);
    let update = async |who: &str, responses: Value| {
        let params = json!({"taskId": id, "inputResponses": responses});
        server.ask(who, capable(), "tasks/update", params).await
    };
    let answer = |name: &str| json!({"action": "accept", "content": {"name": name}});
    let keys: Vec<String> = waiting["inputRequests"].as_object().unwrap().keys().cloned().collect();
    // Somebody else's answers change nothing, nor do unknown keys.
    assert_eq!(update("bob", json!({keys[0].as_str(): answer("Eve")})).await["error"]["code"], -32602);
    let ack = update("alice", json!({"unheard-of": answer("x")})).await["result"].clone();
    assert_eq!((&ack["resultType"], ack.get("taskId")), (&json!("complete"), None));
    update("alice", json!({keys[0].as_str(): answer("Ann")})).await;
    let waiting = state(&server, "alice", &id).await["result"].clone();
    assert_eq!(waiting["status"], "input_required");
    assert_eq!(waiting["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), [&keys[1]]);
    // An answer that comes twice is taken once.
    update("alice", json!({keys[0].as_str(): answer("Eve"), keys[1].as_str(): answer("Bo")})).await;
    let done = until(&server, &id, "completed").await;
    assert_eq!(done["result"]["content"][0]["text"], "Ann and Bo");
    assert_eq!(done["resultType"], "complete");
    assert_eq!(done.get("inputRequests"), None);
}

#[tokio::test]
async fn a_task_is_its_callers_alone_and_ids_say_nothing() {
    let server = Server::new();
    let id = start(&server, "task").await;
    let unknown = state(&server, "alice", "nonexistent").await;
    let foreign = state(&server, "bob", &id).await;
    assert_eq!(foreign["error"]["code"], -32602);
    let without_id =
        |answer: &Value, id: &str| answer["error"]["message"].as_str().unwrap().replace(id, "ID");
    assert_eq!(without_id(&unknown, "nonexistent"), without_id(&foreign, &id));
    let cancelled = server.ask("bob", capable(), "tasks/cancel", json!({"taskId": id})).await;
    assert_eq!(cancelled["error"]["code"], -32602);
    until(&server, &id, "input_required").await;
}

#[tokio::test]
async fn a_cancelled_task_stays_cancelled() {
    let server = Server::new();
    let id = start(&server, "task").await;
    until(&server, &id, "input_required").await;
    for _ in 0..2 {
        let ack = server.ask("alice", capable(), "tasks/cancel", json!({"taskId": id})).await;
        assert_eq!(ack["result"]["resultType"], "complete");
    }
    let task = state(&server, "alice", &id).await["result"].clone();
    assert_eq!((&task["status"], task.get("result"), task.get("error")), (&json!("cancelled"), None, None));
}

#[tokio::test]
async fn a_task_that_panics_has_failed_without_detail() {
    let server = Server::new();
    let id = start(&server, "task that panics").await;
    let task = until(&server, &id, "failed").await;
    assert_eq!(task["error"]["code"], -32603);
    assert!(!task.to_string().contains("on purpose"));
}

#[tokio::test]
async fn clients_that_do_not_know_tasks_are_told_what_they_need() {
    let server = Server::new();
    let forms = || json!({"elicitation": {}});
    let needs = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    for (method, params) in [
        ("tools/call", call("task")),
        ("tasks/get", json!({"taskId": "x"})),
        ("tasks/cancel", json!({"taskId": "x"})),
        ("tasks/update", json!({"taskId": "x", "inputResponses": {}})),
    ] {
        let refused = server.modern("alice", &modern(method, params, forms())).await;
        assert_eq!(refused.status(), 400, "{method}");
        let error = &body(refused).await["error"];
        assert_eq!(
            (&error["code"], &error["data"]["requiredCapabilities"]),
            (&json!(-32021), &needs),
            "{method}"
        );
    }
    for method in ["tasks/list", "tasks/result"] {
        let refused = server.modern("alice", &modern(method, json!({"taskId": "x"}), capable())).await;
        assert_eq!(
            (refused.status().as_u16(), body(refused).await["error"]["code"].clone()),
            (404, json!(-32601))
        );
    }
    // The older revisions have no tasks at all, and no code for saying so.
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call("task")});
    assert_eq!(body(server.send("POST", &[], &message).await).await["error"]["code"], -32602);
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": "x"}});
    assert_eq!(body(server.send("POST", &[], &message).await).await["error"]["code"], -32601);
}

#[tokio::test]
async fn mc_02_the_name_header_of_a_task_must_be_its_id() {
    let server = Server::new();
    let id = start(&server, "task").await;
    let message = modern("tasks/get", json!({"taskId": id}), capable());
    for name in [None, Some("another")] {
        let mut headers = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tasks/get")];
        headers.extend(name.map(|name| ("mcp-name", name)));
        let refused = server.send("POST", &headers, &message).await;
        assert_eq!(refused.status(), 400);
        assert_eq!(body(refused).await["error"]["code"], -32020);
    }
}
