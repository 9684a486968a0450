//! The real program over standard input and output.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "support/program.rs"]
mod program;
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use lab::{Action, Fault};
use program::{Program, StdioClient, command};
use rustix::process::Signal;
use serde_json::{Value, json};
use support::{AGENT, Rights, Stage, path_of, request, send};

fn client(stage: &Stage, more: &[&str]) -> StdioClient {
    StdioClient::start(&stage.stdio_line(more))
}

/// Every file below a directory with its content.
fn contents(dir: &Path) -> BTreeSet<(String, Vec<u8>)> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        found.insert((path.display().to_string(), std::fs::read(&path).unwrap_or_default()));
        if path.is_dir() {
            found.extend(contents(&path));
        }
    }
    found
}

fn initialize(client: &mut StdioClient) -> Value {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    });
    let id = client.send_plain("initialize", params);
    let answer = client.answer(id);
    client.write(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    answer
}

/// What a client asks of the second process that it starts only to look.
fn probe(client: &mut StdioClient) {
    assert_eq!(initialize(client)["result"]["protocolVersion"], "2025-11-25");
    assert!(!client.tools().is_empty());
    let discovered = client.rpc("server/discover", json!({}));
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28", "{discovered}");
    let id = client.send_plain("ping", json!({}));
    assert_eq!(client.answer(id)["result"], json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_35_starting_over_stdio_takes_no_lock_and_writes_nothing() {
    let stage = Stage::new().await;
    let before = contents(stage.dir.path());
    let mut first = client(&stage, &[]);
    let mut second = client(&stage, &["--transfer-listen", "127.0.0.1:0"]);
    probe(&mut first);
    probe(&mut second);
    for client in [first, second] {
        let exit = client.end();
        assert_eq!(exit.code, Some(0), "{}", exit.log);
    }
    assert!(!stage.path("state").exists());
    assert_eq!(contents(stage.dir.path()), before);

    // Nor does it touch a state directory that another process serves.
    let (server, _) = Program::serve(&stage.command_line(&[]));
    let before = contents(stage.dir.path());
    let mut third = client(&stage, &["--stdio-principal", "agent"]);
    probe(&mut third);
    assert_eq!(third.end().code, Some(0));
    assert_eq!(contents(stage.dir.path()), before);
    assert_eq!(server.terminate().code, Some(0));
    assert!(stage.alpha().requests().is_empty(), "no cluster hears of a process that only looks");
}

#[tokio::test(flavor = "multi_thread")]
async fn stdout_carries_frames_only_however_much_is_logged() {
    let stage = Stage::new().await;
    let mut line = command(&stage.stdio_line(&["--stdio-principal", "agent"]));
    let mut client = StdioClient::spawn(line.env("RUST_LOG", "trace"));
    probe(&mut client);
    client.call("get_nodes", json!({"cluster": "alpha"})).unwrap();
    client.call("get_vms", json!({"cluster": "nowhere"})).unwrap_err();
    client.call("stop_vm", json!({"cluster": "alpha", "vmid": 105})).unwrap();
    client.program.signal(Signal::HUP);
    client.program.log.until("the configuration was read again");
    client.call("get_nodes", json!({"cluster": "alpha"})).unwrap();
    // Frames that are still to come are looked at as well.
    let exit = client.end();
    assert_eq!(exit.code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_principal_sees_every_read_and_nothing_else() {
    let stage = Stage::new().await;
    let mut client = client(&stage, &[]);
    let listed = client.list();
    for tool in &listed {
        assert_eq!(tool["annotations"]["readOnlyHint"], true, "{tool}");
    }
    let names: Vec<_> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let reads: Vec<_> = proxward::catalog::all()
        .filter(|spec| !spec.mutates() && !spec.needs_transfers)
        .map(|spec| spec.name())
        .collect();
    assert_eq!(names, reads);

    let nodes = client.call("get_nodes", json!({"cluster": "alpha"})).unwrap();
    assert_eq!(nodes["total"], 3, "{nodes}");
    assert_eq!(client.call("get_vms", json!({"cluster": "beta"})).unwrap()["total"], 1);
    for tool in ["start_vm", "stop_vm"] {
        let refused = client.call(tool, json!({"cluster": "alpha", "vmid": 104})).unwrap_err();
        assert_eq!(refused["code"], "insufficient_scope", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("--stdio-principal"), "{refused}");
    }
    assert_eq!(client.end().code, Some(0));
    assert_eq!(stage.alpha().mutations(), 0);
    let calls = stage.audit().into_iter().filter(|record| record["principal"] == "stdio").count();
    assert_eq!(calls, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_35_the_first_call_takes_the_lock_or_names_its_holder() {
    let stage = Stage::new().await;
    let refusal = |client: &mut StdioClient, holder: u32| {
        let refused = client.call("get_nodes", json!({"cluster": "alpha"})).unwrap_err();
        assert_eq!(refused["code"], "state_in_use", "{refused}");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&format!("process {holder}:")), "{refused}");
        assert!(message.contains("--state-dir"), "{refused}");
    };
    let (server, _) = Program::serve(&stage.command_line(&[]));
    let mut first = client(&stage, &[]);
    let mut second = client(&stage, &[]);
    refusal(&mut first, server.pid());
    assert_eq!(server.terminate().code, Some(0));

    // Once it is free, the same process gets it, and keeps it until it ends.
    first.call("get_nodes", json!({"cluster": "alpha"})).unwrap();
    refusal(&mut second, first.program.pid());
    let late = Program::start(&stage.command_line(&[])).exit();
    assert_eq!(late.code, Some(75), "{}", late.log);
    assert!(late.log.contains(&format!("process {}", first.program.pid())), "{}", late.log);
    assert_eq!(first.end().code, Some(0));
    second.call("get_nodes", json!({"cluster": "alpha"})).unwrap();
    assert_eq!(second.end().code, Some(0));
    proxward::audit::verify(&stage.path("state/audit.jsonl")).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_line_ends_and_malformed_lines_do_not_end_the_session() {
    let stage = Stage::new().await;
    let mut client = client(&stage, &[]);
    client.write(b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\"}\r\n\r\n");
    assert_eq!(client.frame().unwrap(), json!({"jsonrpc": "2.0", "id": "a", "result": {}}));
    for (line, code) in [
        (&b"{\"jsonrpc\":\"2.0\",\r\n"[..], -32700),
        (b"hello\n", -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\xfe\"}\n", -32700),
        (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n", -32600),
        (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}\n", -32600),
        (b"42\n", -32600),
    ] {
        client.write(line);
        let frame = client.frame().unwrap();
        assert_eq!(frame["error"]["code"], code, "{line:?}: {frame}");
    }
    let long = format!("{}\n", "x".repeat(5 * 1024 * 1024));
    client.write(long.as_bytes());
    assert_eq!(client.frame().unwrap()["error"]["code"], -32600);
    let crlf = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "get_nodes", "arguments": {"cluster": "alpha"}}});
    client.write(format!("{crlf}\r\n").as_bytes());
    let frame = client.answer(7);
    assert_eq!(frame["result"]["structuredContent"]["total"], 3, "{frame}");
    // The last line needs no end.
    client.write(b"{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\"}");
    client.close_input();
    assert_eq!(client.answer(8)["result"], json!({}));
    assert_eq!(client.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_principal_acts_with_its_tokens_rights_as_they_are_now() {
    let mut stage = Stage::new().await;
    stage.token("narrow", Rights { guests: &["vmid:105"], clusters: &["alpha"], ..AGENT });
    let mut narrow = client(&stage, &["--stdio-principal", "narrow"]);
    let without_links: Vec<_> = support::AGENT_TOOLS
        .iter()
        .filter(|name| !support::LINK_TOOLS.contains(name))
        .filter(|name| !name.starts_with("delete_"))
        .map(|name| (*name).to_owned())
        .collect();
    assert_eq!(narrow.tools(), without_links);
    assert_eq!(narrow.call("get_vms", json!({"cluster": "alpha"})).unwrap()["total"], 1);
    let beyond = narrow.call("stop_vm", json!({"cluster": "alpha", "vmid": 100})).unwrap_err();
    assert_eq!(beyond["message"], "authorization failed");
    let beyond = narrow.call("get_vms", json!({"cluster": "beta"})).unwrap_err();
    assert_eq!(beyond["code"], "cluster_unavailable", "{beyond}");
    let task = narrow.call("stop_vm", json!({"cluster": "alpha", "vmid": 105})).unwrap();
    assert_eq!(task["vmid"], 105, "{task}");

    // A process that was told of a reload before its first call reads it as well.
    let mut idle = client(&stage, &["--stdio-principal", "narrow"]);
    assert_eq!(idle.tools(), without_links);
    let path = stage.path("tokens.json");
    let mut tokens: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let kept = tokens["tokens"].as_object_mut().unwrap().remove("narrow").unwrap();
    std::fs::write(&path, tokens.to_string()).unwrap();
    for client in [&narrow, &idle] {
        client.program.signal(Signal::HUP);
        client.program.log.until("the configuration was read again");
    }
    assert_eq!(narrow.tools(), Vec::<String>::new());
    assert_eq!(idle.tools(), Vec::<String>::new());
    let gone = narrow.call("get_vms", json!({"cluster": "alpha"})).unwrap_err();
    assert_eq!(gone["code"], "unauthorized", "{gone}");
    assert!(gone["message"].as_str().unwrap().contains("`narrow`"), "{gone}");
    assert_eq!(narrow.end().code, Some(0));
    let gone = idle.call("stop_vm", json!({"cluster": "alpha", "vmid": 105})).unwrap_err();
    assert_eq!(gone["code"], "unauthorized", "{gone}");

    // And gets it back.
    tokens["tokens"]["narrow"] = kept;
    std::fs::write(&path, tokens.to_string()).unwrap();
    idle.program.signal(Signal::HUP);
    idle.program.log.until("the configuration was read again");
    assert_eq!(idle.tools(), without_links);
    idle.call("get_vms", json!({"cluster": "alpha"})).unwrap();
    assert_eq!(idle.end().code, Some(0));
    let events: Vec<_> = stage.audit().iter().map(|record| record["event"].clone()).collect();
    for event in ["config.reload", "auth.failure", "stop"] {
        assert!(events.contains(&event.into()), "{event}: {events:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cs_09_over_stdio_nobody_approves_even_with_a_humans_token() {
    let stage = Stage::new().await;
    let mut planner = client(&stage, &["--stdio-principal", "agent"]);
    let arguments = json!({"cluster": "alpha", "vmid": 201, "op": "destroy_guest"});
    let plan = planner.call("plan_proxmox_destroy", arguments).unwrap();
    assert_eq!(plan["state"], "planned", "{plan}");
    assert_eq!(planner.end().code, Some(0));

    let set = json!({"change_set_id": plan["change_set_id"]});
    let mut approver = client(&stage, &["--stdio-principal", "approver"]);
    assert_eq!(approver.tools(), ["get_proxmox_change_set", "list_change_sets"]);
    let seen = approver.call("get_proxmox_change_set", set.clone()).unwrap();
    assert_eq!(seen["digest"], plan["digest"]);
    let approval =
        json!({"change_set_id": plan["change_set_id"], "digest": plan["digest"], "confirm_vmid": 201});
    let refused = approver.call("approve_proxmox_change_set", approval.clone()).unwrap_err();
    assert_eq!(refused["code"], "approver_not_human", "{refused}");
    assert_eq!(approver.call("get_proxmox_change_set", set.clone()).unwrap()["state"], "planned");
    assert_eq!(approver.end().code, Some(0));

    // The same token over HTTP can; the plan outlived both processes.
    let (server, address) = Program::serve(&stage.command_line(&[]));
    let approved =
        stage.client(address, "approver").call("approve_proxmox_change_set", approval).await.unwrap();
    assert_eq!(approved["state"], "approved");
    assert_eq!(server.terminate().code, Some(0));
    let mut planner = client(&stage, &["--stdio-principal", "agent"]);
    assert_eq!(planner.call("apply_proxmox_change_set", set).unwrap()["state"], "applied");
    assert_eq!(planner.end().code, Some(0));
    assert!(!stage.alpha().guest_exists(201));
}

#[tokio::test(flavor = "multi_thread")]
async fn link_tools_need_a_listener_and_then_an_upload_goes_through_it() {
    let stage = Stage::new().await;
    let links = |names: &[String]| {
        names.iter().filter(|name| ["proxmox_upload_link", "get_transfer"].contains(&name.as_str())).count()
    };
    let arguments = json!({"cluster": "alpha", "vmid": 200, "dest": "/root/over-stdio.bin"});
    let mut plain = client(&stage, &["--stdio-principal", "agent"]);
    assert_eq!(links(&plain.tools()), 0);
    let unknown = plain.rpc("tools/call", json!({"name": "proxmox_upload_link", "arguments": arguments}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    assert_eq!(plain.end().code, Some(0));

    let mut client = client(&stage, &["--stdio-principal", "agent", "--transfer-listen", "127.0.0.1:0"]);
    assert_eq!(links(&client.tools()), 2);
    let minted = client.call("proxmox_upload_link", arguments).unwrap();
    let url = minted["url"].as_str().unwrap();
    let address = url.strip_prefix("http://").unwrap().split('/').next().unwrap().parse().unwrap();
    for (method, path, status) in
        [(Method::POST, "/mcp", 404), (Method::GET, "/healthz", 200), (Method::GET, &*path_of(&minted), 405)]
    {
        let answer = send(address, request(address, method, path, "")).await.unwrap();
        assert_eq!(answer.status, status, "{path}");
    }
    let put = request(address, Method::PUT, &path_of(&minted), "bytes beside stdio");
    let answer = send(address, put).await.unwrap();
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    let landed = std::fs::read(stage.alpha().guest_root(200).join("root/over-stdio.bin")).unwrap();
    assert_eq!(landed, b"bytes beside stdio");
    let outcome = client.call("get_transfer", json!({"link_id": minted["link_id"]})).unwrap();
    assert_eq!((&outcome["state"], &outcome["bytes"]), (&"ok".into(), &18.into()), "{outcome}");
    let exit = client.end();
    assert_eq!(exit.code, Some(0));
    let token = url.rsplit('/').next().unwrap();
    assert!(!exit.log.contains(token));
    assert!(!std::fs::read_to_string(stage.path("state/audit.jsonl")).unwrap().contains(token));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_cannot_be_opened_is_said_to_the_caller() {
    let stage = Stage::new().await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut client = client(&stage, &["--transfer-listen", &address]);
    let refused = client.call("get_nodes", json!({"cluster": "alpha"})).unwrap_err();
    assert_eq!(refused["code"], "cannot_start", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains(&address), "{refused}");
    drop(taken);
    client.call("get_nodes", json!({"cluster": "alpha"})).unwrap();
    assert_eq!(client.end().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_input_lets_calls_finish_and_ends_the_process_at_once() {
    let stage = Stage::new().await;
    let mut idle = client(&stage, &[]);
    probe(&mut idle);
    let started = Instant::now();
    assert_eq!(idle.end().code, Some(0));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());

    // A call that runs when the input ends is still answered.
    let mut client = client(&stage, &[]);
    client.call("get_nodes", json!({"cluster": "beta"})).unwrap();
    let mut held = stage.alpha().inject(Fault::once("GET", "/nodes", Action::HoldBefore));
    let id = client.send("tools/call", json!({"name": "get_nodes", "arguments": {"cluster": "alpha"}}));
    held.struck().await;
    client.close_input();
    held.release();
    assert_eq!(client.answer(id)["result"]["structuredContent"]["total"], 3);
    let started = Instant::now();
    assert_eq!(client.end().code, Some(0));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(stage.audit().last().unwrap()["event"], "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_it_in_order_even_while_a_read_hangs() {
    let stage = Stage::new().await;
    let mut idle = client(&stage, &[]);
    probe(&mut idle);
    idle.program.signal(Signal::TERM);
    assert!(idle.frame().is_none());
    assert_eq!(idle.end().code, Some(0));

    let mut client = client(&stage, &[]);
    client.call("get_nodes", json!({"cluster": "beta"})).unwrap();
    let mut held = stage.alpha().inject(Fault::once("GET", "/nodes", Action::HoldBefore));
    client.send("tools/call", json!({"name": "get_nodes", "arguments": {"cluster": "alpha"}}));
    held.struck().await;
    client.program.signal(Signal::TERM);
    assert!(client.frame().is_none());
    assert_eq!(client.end().code, Some(0));
    held.release();
    assert_eq!(stage.audit().last().unwrap()["event"], "stop");
    proxward::audit::verify(&stage.path("state/audit.jsonl")).unwrap();
}
