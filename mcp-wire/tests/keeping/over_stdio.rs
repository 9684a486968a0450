//! The same over stdio, where the connection is the session.

use std::time::Duration;

use mcp_wire::{events::Events, legacy::SessionLimits, stdio};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};

use crate::support::{Service, call, identity, legacy, modern, said, stateful};

struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
    events: Events,
}

impl Client {
    fn new() -> Self {
        let (near, far) = tokio::io::duplex(64 * 1024);
        let events = Events::new();
        let stateful = stateful(&events, SessionLimits::default());
        let (stdin, stdout) = tokio::io::split(far);
        let config = stdio::Config::new(identity());
        tokio::spawn(stdio::serve_keeping(
            Service::default(),
            "alice".to_owned(),
            stdin,
            stdout,
            config,
            stateful,
        ));
        let (read, out) = tokio::io::split(near);
        Self { lines: BufReader::new(read).lines(), out, events }
    }

    async fn say(&mut self, message: &Value) {
        self.out.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(20), self.lines.next_line());
        let line = line.await.expect("nothing is said").unwrap().expect("it ended");
        serde_json::from_str(&line).unwrap()
    }

    async fn ask(&mut self, message: &Value) -> Value {
        self.say(message).await;
        self.next().await
    }
}

#[tokio::test]
async fn a_client_is_asked_in_the_way_of_the_message_it_sent() {
    let mut client = Client::new();
    let accept = json!({"action": "accept", "content": {"name": "Ann"}});
    // Before a handshake there is nobody to ask.
    let refused = client.ask(&legacy(1, "tools/call", call("name"))).await;
    assert_eq!(refused["error"]["code"], -32602);
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {"elicitation": {}}});
    client.ask(&legacy(2, "initialize", params)).await;
    let question = client.ask(&legacy(3, "tools/call", call("name"))).await;
    assert_eq!(question["method"], "elicitation/create");
    client.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": accept})).await;
    let answer = client.next().await;
    assert_eq!((&answer["id"], said(&answer)), (&json!(3), "Hello, Ann, says alice"));
    // An answer to nothing is refused without an id.
    let refused = client.ask(&json!({"jsonrpc": "2.0", "id": question["id"], "result": accept})).await;
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&Value::Null, &json!(-32600)));
    // On the same connection, a modern message is asked the modern way.
    let asked = client.ask(&modern("tools/call", call("name"), json!({"elicitation": {}}))).await;
    assert_eq!(asked["result"]["resultType"], "input_required");
}

#[tokio::test]
async fn changes_are_told_to_a_session_and_to_a_subscription_until_it_is_cancelled() {
    let mut client = Client::new();
    let wanted = json!({"notifications": {"toolsListChanged": true}});
    let first = client.ask(&modern("subscriptions/listen", wanted.clone(), json!({}))).await;
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
    client.events.prompts_changed();
    client.events.tools_changed();
    let told = client.next().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], 1);
    client
        .say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
        .await;
    // The answer comes after the cancel was read.
    client.ask(&legacy(9, "ping", json!({}))).await;
    client.events.tools_changed();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    assert_eq!(client.ask(&legacy(2, "initialize", params)).await["id"], 2);
    client.ask(&legacy(3, "resources/subscribe", json!({"uri": "test://a"}))).await;
    client.events.resource_updated("test://a");
    assert_eq!(client.next().await["params"], json!({"uri": "test://a"}));
}

#[tokio::test]
async fn e04_log_messages_are_lines_of_json() {
    let mut client = Client::new();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    client.ask(&legacy(1, "initialize", params)).await;
    let first = client.ask(&legacy(2, "tools/call", call("log"))).await;
    assert_eq!(
        (&first["method"], &first["params"]["level"]),
        (&json!("notifications/message"), &json!("info"))
    );
    assert_eq!(client.next().await["params"]["level"], "error");
    assert_eq!(said(&client.next().await), "logged");
}
