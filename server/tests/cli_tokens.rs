//! `proxward token` and `proxward authz explain`, as the program runs them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "not every test file uses the whole fixture")]

mod fixture;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use authz::{Lookup, TokenTable};
use fixture::Fixture;
use serde_json::{Value, json};

struct Cli {
    fixture: Fixture,
}

impl Cli {
    fn new() -> Cli {
        Cli { fixture: Fixture::new() }
    }

    fn tokens(&self) -> PathBuf {
        self.fixture.path("tokens.json")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_proxward"))
            .args(arguments)
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// `token VERB …` on this fixture's file and state directory.
    fn token(&self, verb: &str, more: &[&str]) -> Output {
        let (file, state) =
            (self.tokens().display().to_string(), self.fixture.path("state").display().to_string());
        let mut arguments = vec!["token", verb, "--tokens-file", &file];
        if !matches!(verb, "add" | "list") {
            arguments.extend(["--state-dir", &state]);
        }
        arguments.extend(more);
        self.run(&arguments)
    }

    fn explain(&self, more: &[&str]) -> Output {
        let path = |name: &str| self.fixture.path(name).display().to_string();
        let (clusters, tokens, waivers) = (path("clusters.json"), path("tokens.json"), path("waivers.json"));
        let files = ["--clusters-file", &clusters, "--tokens-file", &tokens, "--waivers-file", &waivers];
        self.run(&[&["authz", "explain"], &files[..], more].concat())
    }

    fn entry(&self, name: &str) -> Value {
        let file: Value = serde_json::from_slice(&std::fs::read(self.tokens()).unwrap()).unwrap();
        file["tokens"][name].clone()
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.tokens()).unwrap()
    }
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

#[test]
fn tk_11_widening_needs_a_yes_and_narrowing_does_not() {
    let cli = Cli::new();
    let before = cli.bytes();
    for flags in [
        &["reader", "--tools", "*,start_vm"][..],
        &["reader", "--devices", "*"],
        &["reader", "--guests", "*", "--actions", "read,low"],
        &["--name", "reader", "--tools", "get_vms,stop_vm"],
    ] {
        let output = cli.token("set-scopes", flags);
        assert_eq!(output.status.code(), Some(1), "{flags:?}");
        assert!(
            stderr(&output).contains("--yes") && stderr(&output).contains("adds rights"),
            "{}",
            stderr(&output)
        );
        assert_eq!(cli.bytes(), before, "{flags:?}");
    }
    // --actions alone would invent the guests, --guests alone the actions; nothing at all changes nothing.
    for flags in [&["reader", "--actions", "read"][..], &["reader", "--guests", "*"]] {
        assert_eq!(cli.token("set-scopes", flags).status.code(), Some(2), "{flags:?}");
    }
    assert!(stderr(&cli.token("set-scopes", &["reader"])).contains("nothing to change"));
    assert_eq!(cli.bytes(), before);

    let narrowed = cli.token("set-scopes", &["reader", "--guests", "vmid:600-699", "--actions", "read"]);
    assert!(narrowed.status.success(), "{}", stderr(&narrowed));
    assert_eq!(cli.entry("reader")["grant"], json!({"guests": ["vmid:600-699"], "actions": ["read"]}));
    assert_eq!(cli.entry("reader")["tools"], json!(["*"]), "omitted is unchanged");

    let widened =
        cli.token("set-scopes", &["--name", "reader", "--tools", "*,start_vm", "--devices", "*", "--yes"]);
    assert!(widened.status.success(), "{}", stderr(&widened));
    assert_eq!(cli.entry("reader")["tools"], json!(["*", "start_vm"]));
    assert_eq!(cli.entry("reader")["grant"]["guests"], json!(["vmid:600-699"]));
    assert_eq!(std::fs::metadata(cli.tokens()).unwrap().permissions().mode() & 0o7777, 0o600);
    assert!(stderr(&widened).contains("NOT been told"), "{}", stderr(&widened));
}

#[test]
fn a_token_is_rotated_and_revoked_and_the_list_shows_no_hash() {
    let cli = Cli::new();
    let added = cli.token("add", &["fast", "--hash", "sha256", "--on-behalf-of", "team-a"]);
    let old = stdout(&added).trim().to_owned();
    let rotated = cli.token("rotate", &["fast"]);
    assert!(rotated.status.success(), "{}", stderr(&rotated));
    let new = stdout(&rotated).trim().to_owned();
    assert!(new != old && !stderr(&rotated).contains(&new));
    let table = TokenTable::parse(&cli.bytes()).unwrap();
    let now = jiff::Timestamp::now();
    assert!(matches!(table.lookup(&new, now), Lookup::Principal(found) if found.name() == "fast"));
    assert!(matches!(table.lookup(&old, now), Lookup::Refused(_)));
    assert_eq!(table.stored("fast").unwrap().hash, "sha256", "stored as it was");
    assert_eq!(cli.entry("fast")["on_behalf_of"], "team-a");

    let list = cli.token("list", &["--json"]);
    let entries: Value = serde_json::from_str(stdout(&list)).unwrap();
    assert_eq!((&entries[0]["token"], &entries[0]["hash"]), (&json!("fast"), &json!("sha256")));
    assert_eq!((&entries[1]["token"], &entries[1]["expired"]), (&json!("reader"), &json!(false)));
    let list = cli.token("list", &[]);
    assert!(stdout(&list).contains("reader\n  person   reader (unattributed)\n"), "{}", stdout(&list));
    let hash = cli.entry("fast")["hash"].as_str().unwrap().to_owned();
    assert!(!stdout(&list).contains(hash.strip_prefix("sha256:").unwrap()));

    for verb in ["revoke", "rotate"] {
        let missing = cli.token(verb, &["nobody"]);
        assert_eq!(missing.status.code(), Some(1));
        assert!(stderr(&missing).contains("no entry named `nobody`"), "{}", stderr(&missing));
    }
    let before = cli.entry("reader");
    let revoked = cli.token("revoke", &["fast"]);
    assert!(revoked.status.success() && stderr(&revoked).contains("No server runs"), "{}", stderr(&revoked));
    assert_eq!((cli.entry("fast"), cli.entry("reader")), (Value::Null, before));

    // What has expired needs a new end with its new secret.
    let mut file: Value = serde_json::from_slice(&cli.bytes()).unwrap();
    file["tokens"]["reader"]["expires"] = json!("2020-01-01T00:00:00Z");
    cli.fixture.write("tokens.json", &file.to_string());
    assert!(stderr(&cli.token("rotate", &["reader"])).contains("--expires"));
    assert!(cli.token("rotate", &["reader", "--expires", "30d", "--hash", "sha256"]).status.success());
}

/// A server process, killed when the test ends.
struct Serving(std::process::Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn tk_08_revoking_tells_the_running_server_and_says_so() {
    let cli = Cli::new();
    let path = |name: &str| cli.fixture.path(name).display().to_string();
    let mut child = Command::new(env!("CARGO_BIN_EXE_proxward"))
        .args(["serve", "-t", "streamable-http", "-p", "0", "--clusters-file", &path("clusters.json")])
        .args(["--tokens-file", &path("tokens.json"), "--waivers-file", &path("waivers.json")])
        .args(["--state-dir", &path("state")])
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let pid = child.id();
    let _serving = Serving(child);
    while !lines.next().unwrap().unwrap().contains("serving MCP") {}
    assert!(cli.token("add", &["gone", "--hash", "sha256"]).status.success());
    let revoked = cli.token("revoke", &["gone"]);
    assert!(revoked.status.success(), "{}", stderr(&revoked));
    assert!(stderr(&revoked).contains(&format!("process {pid}) has been told")), "{}", stderr(&revoked));
    // The server's own word that it read the files again.
    while !lines.next().unwrap().unwrap().to_lowercase().contains("reload") {}
    let quiet = cli.token("set-scopes", &["reader", "--tools", "get_vms", "--no-reload"]);
    assert!(stderr(&quiet).contains("NOT been told"), "{}", stderr(&quiet));
}

#[test]
fn explain_tells_every_check_and_exits_by_the_decision() {
    let cli = Cli::new();
    let read = ["--token", "reader", "--tool", "get_guest_status", "--vmid", "600", "--tags", "web"];
    let allowed = cli.explain(&read);
    assert_eq!(allowed.status.code(), Some(0), "{}{}", stdout(&allowed), stderr(&allowed));
    assert!(stdout(&allowed).starts_with("ALLOW: token `reader`"), "{}", stdout(&allowed));
    assert!(
        stdout(&allowed).contains("  pass  guest       selector `*` matches the guest\n"),
        "{}",
        stdout(&allowed)
    );

    let denied =
        cli.explain(&["--token", "reader", "--tool", "stop_vm", "--vmid", "905", "--tags", "", "--json"]);
    assert_eq!(denied.status.code(), Some(1), "{}", stderr(&denied));
    let decision: Value = serde_json::from_str(stdout(&denied)).unwrap();
    assert_eq!((&decision["allowed"], &decision["code"]), (&json!(false), &json!("insufficient_scope")));
    let failed: Vec<&str> = decision["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["result"] == "failed")
        .map(|check| check["check"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["tool", "tier", "protection"]);

    for (flags, status) in [
        (&["--token", "stdio", "--tool", "get_vms"][..], 0),
        (&["--token", "anonymous", "--tool", "start_vm", "--vmid", "600", "--tags", "web"], 1),
        (&["--token", "reader", "--tool", "get_vms", "--cluster", "elsewhere"], 1),
        (&["--token", "reader", "--tool", "get_vms", "--at", "2001-01-01T00:00:00Z"], 0),
        (&["--token", "nobody", "--tool", "get_vms"], 2),
        (&["--token", "reader", "--tool", "no_such_tool"], 2),
        (&["--token", "reader", "--tool", "get_guest_status"], 2),
        (&["--token", "reader", "--tool", "get_guest_status", "--vmid", "7"], 2),
    ] {
        let output = cli.explain(flags);
        assert_eq!(output.status.code(), Some(status), "{flags:?}: {}{}", stdout(&output), stderr(&output));
    }
    // The cluster of the fixture answers nobody: nothing is decided, and the way out is named.
    let unreachable = cli.explain(&["--token", "reader", "--tool", "get_guest_status", "--vmid", "600"]);
    assert_eq!(unreachable.status.code(), Some(3), "{}", stdout(&unreachable));
    assert!(stderr(&unreachable).contains("--tags"), "{}", stderr(&unreachable));
    cli.fixture.write("tokens.json", "{}");
    assert_eq!(cli.explain(&read).status.code(), Some(78));
}
