//! Questions to the client: the same service in the modern era and in a legacy session.

use mcp_wire::legacy::SessionLimits;
use serde_json::{Value, json};

use crate::support::{Server, Stream, body, call, legacy, modern, said};

fn accept(name: &str) -> Value {
    json!({"action": "accept", "content": {"name": name}})
}

#[tokio::test]
async fn a_modern_client_is_asked_by_the_result_and_answers_with_the_request() {
    let server = Server::new();
    let forms = || json!({"elicitation": {}});
    let asked = server.ask("alice", forms(), "tools/call", call("name")).await;
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required");
    assert_eq!(result["inputRequests"]["who"]["method"], "elicitation/create");
    assert_eq!(result["inputRequests"]["who"]["params"]["message"], "Name?");
    assert_eq!((result.get("requestState"), result.get("ttlMs")), (None, None));

    let mut again = call("name");
    again["inputResponses"] = json!({"who": accept("Ann"), "unheard-of": accept("x")});
    assert_eq!(
        said(&server.ask("alice", forms(), "tools/call", again.clone()).await),
        "Hello, Ann, says alice"
    );
    again["inputResponses"] = json!({"who": {"action": "decline"}});
    assert_eq!(said(&server.ask("alice", forms(), "tools/call", again.clone()).await), "nobody");
    // Answers to something else: asked again.
    again["inputResponses"] = json!({"other": accept("Ann")});
    let asked = server.ask("alice", forms(), "tools/call", again.clone()).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
    for wrong in [json!(null), json!([]), json!("x"), json!({"who": 12345}), json!({"who": null})] {
        again["inputResponses"] = wrong.clone();
        let refused = server.modern("alice", &modern("tools/call", again.clone(), forms())).await;
        assert_eq!(refused.status(), 400, "{wrong}");
        assert_eq!(body(refused).await["error"]["code"], -32602, "{wrong}");
    }
}

#[tokio::test]
async fn what_a_client_did_not_declare_it_is_not_asked() {
    let server = Server::new();
    for (tool, declared, needs) in [
        ("name", json!({}), json!({"elicitation": {"form": {}}})),
        ("name", json!({"elicitation": {"url": {}}}), json!({"elicitation": {"form": {}}})),
        ("model", json!({"elicitation": {}}), json!({"sampling": {}})),
    ] {
        let refused = server.modern("alice", &modern("tools/call", call(tool), declared)).await;
        assert_eq!(refused.status(), 400);
        let error = &body(refused).await["error"];
        assert_eq!((&error["code"], &error["data"]["requiredCapabilities"]), (&json!(-32021), &needs));
    }
}

#[tokio::test]
async fn a_state_is_good_for_its_own_call_and_caller_alone() {
    let server = Server::new();
    let forms = || json!({"elicitation": {}});
    let first = server.ask("alice", forms(), "tools/call", call("twice")).await;
    let state = first["result"]["requestState"].as_str().unwrap().to_owned();
    let retry = |state: &str, name: &str| {
        let mut retry = call("twice");
        retry["inputResponses"] = json!({"who": accept(name)});
        retry["requestState"] = json!(state);
        retry
    };
    let second = server.ask("alice", forms(), "tools/call", retry(&state, "Ann")).await;
    let next = second["result"]["requestState"].as_str().unwrap().to_owned();
    assert_ne!(next, state);
    let third = server.ask("alice", forms(), "tools/call", retry(&next, "Bo")).await;
    assert_eq!(said(&third), r#""Ann" and "Bo""#);

    let mut other_arguments = retry(&next, "Bo");
    other_arguments["arguments"] = json!({"x": 1});
    let mut other_tool = retry(&next, "Bo");
    other_tool["name"] = json!("name");
    for (who, params) in [
        ("bob", retry(&next, "Bo")),
        ("alice", other_arguments),
        ("alice", other_tool),
        ("alice", retry(&format!("{next}-TAMPERED"), "Bo")),
        ("alice", retry("", "Bo")),
    ] {
        let refused = server.modern(who, &modern("tools/call", params.clone(), forms())).await;
        assert_eq!(refused.status(), 400, "{who} {params}");
        assert_eq!(body(refused).await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn a_legacy_client_is_asked_on_the_stream_of_its_call() {
    let server = Server::new();
    let session = server.begin("alice", "2025-06-18", json!({"elicitation": {}, "sampling": {}})).await;
    for (tool, expected) in [("name", "Hello, Ann, says alice"), ("twice", r#""Ann" and "Ann""#)] {
        let response = server.within("alice", &session, &legacy(7, "tools/call", call(tool))).await;
        let mut stream = Stream::of(response);
        let answer = loop {
            let message = stream.message().await;
            if message["method"] != "elicitation/create" {
                break message;
            }
            assert_eq!(message["params"]["message"], "Name?");
            let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": accept("Ann")});
            let taken = server.within("alice", &session, &reply).await;
            assert_eq!(taken.status(), 202);
            // The same answer once more is to nothing.
            assert_eq!(server.within("alice", &session, &reply).await.status(), 400);
        };
        assert_eq!((&answer["id"], said(&answer)), (&json!(7), expected));
        assert!(answer["result"].get("resultType").is_none());
        assert!(stream.next().await.is_none());
    }
}

#[tokio::test]
async fn answers_of_somebody_else_or_without_a_session_are_not_taken() {
    let server = Server::new();
    let capabilities = || json!({"elicitation": {}});
    let session = server.begin("alice", "2025-11-25", capabilities()).await;
    let foreign = server.begin("bob", "2025-11-25", capabilities()).await;
    let response = server.within("alice", &session, &legacy(7, "tools/call", call("name"))).await;
    let mut stream = Stream::of(response);
    assert_eq!(stream.message().await, Value::Null);
    let question = stream.message().await;
    let reply = |name: &str| json!({"jsonrpc": "2.0", "id": question["id"], "result": accept(name)});
    assert_eq!(server.within("bob", &session, &reply("Eve")).await.status(), 404);
    assert_eq!(server.within("bob", &foreign, &reply("Eve")).await.status(), 400);
    assert_eq!(server.send("POST", &[("who", "alice")], &reply("Eve")).await.status(), 400);
    assert_eq!(server.within("alice", &session, &reply("Ann")).await.status(), 202);
    assert_eq!(said(&stream.message().await), "Hello, Ann, says alice");
}

#[tokio::test]
async fn a_client_that_refuses_or_cannot_be_asked_gets_an_error_a_model_can_read() {
    let server = Server::new();
    let session = server.begin("alice", "2025-06-18", json!({"elicitation": {}})).await;
    let response = server.within("alice", &session, &legacy(1, "tools/call", call("name"))).await;
    let mut stream = Stream::of(response);
    let question = stream.message().await;
    let refusal =
        json!({"jsonrpc": "2.0", "id": question["id"], "error": {"code": -1, "message": "no\u{202e}"}});
    assert_eq!(server.within("alice", &session, &refusal).await.status(), 202);
    let answer = stream.message().await;
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(said(&answer), "the client refused elicitation/create (code -1)");

    let answer = body(server.within("alice", &session, &legacy(2, "tools/call", call("model"))).await).await;
    assert_eq!(answer["result"]["isError"], true);
    assert!(said(&answer).contains("sampling/createMessage"), "{answer}");
    // Without a session there is nobody to ask.
    let answer = body(server.send("POST", &[], &legacy(3, "tools/call", call("name"))).await).await;
    assert_eq!(answer["error"]["code"], -32602);
    assert!(answer["error"]["message"].as_str().unwrap().contains("elicitation/create"));
}

#[tokio::test(start_paused = true)]
async fn questions_end_by_time_and_by_number() {
    let server = Server::with(SessionLimits { questions: 2, ..SessionLimits::default() });
    let session = server.begin("alice", "2025-06-18", json!({"elicitation": {}})).await;
    let mut streams = Vec::new();
    for id in 0..2 {
        let response = server.within("alice", &session, &legacy(id, "tools/call", call("name"))).await;
        let mut stream = Stream::of(response);
        stream.message().await;
        streams.push(stream);
    }
    let over = server.within("alice", &session, &legacy(2, "tools/call", call("name"))).await;
    assert!(said(&body(over).await).contains("too many questions"));
    tokio::time::advance(std::time::Duration::from_secs(301)).await;
    for mut stream in streams {
        let answer = stream.message().await;
        assert_eq!(answer["result"]["isError"], true);
        assert!(said(&answer).contains("did not answer"), "{answer}");
    }
    // A tool that never has enough is stopped.
    let response = server.within("alice", &session, &legacy(9, "tools/call", call("forever"))).await;
    let mut stream = Stream::of(response);
    let mut rounds = 0;
    let answer = loop {
        let message = stream.message().await;
        if message["method"].is_null() {
            break message;
        }
        rounds += 1;
        let reply = json!({"jsonrpc": "2.0", "id": message["id"], "result": accept("Ann")});
        assert_eq!(server.within("alice", &session, &reply).await.status(), 202);
    };
    assert_eq!((rounds, &answer["error"]["code"]), (16, &json!(-32603)));
}
