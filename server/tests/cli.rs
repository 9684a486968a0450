//! The program itself: exit statuses, what it prints where, what it writes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "not every test file uses the whole fixture")]

mod fixture;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use authz::{Lookup, TokenTable};
use fixture::{Fixture, good_clusters, good_tokens};
use proxward::audit::{Audit, AuditConfig, Event, Record, Redaction, Redactor};
use proxward::clock::SystemClock;
use proxward::keys::Key;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

fn proxward(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_proxward"))
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The flags that point everything into the fixture.
fn files(fixture: &Fixture) -> Vec<String> {
    [
        ("--clusters-file", "clusters.json"),
        ("--tokens-file", "tokens.json"),
        ("--waivers-file", "waivers.json"),
        ("--state-dir", "state"),
    ]
    .into_iter()
    .flat_map(|(flag, name)| [flag.to_owned(), fixture.path(name).display().to_string()])
    .collect()
}

fn with_files(verb: &str, fixture: &Fixture, more: &[&str]) -> Output {
    let files = files(fixture);
    let mut arguments = vec![verb];
    arguments.extend(files.iter().map(String::as_str));
    arguments.extend(more);
    proxward(&arguments)
}

#[test]
fn help_and_version_are_printed() {
    let help = proxward(&["--help"]);
    assert!(help.status.success());
    for flag in ["--transport", "--host", "--port", "--clusters-file", "--lab-mode", "--audit-log-file"] {
        assert!(stdout(&help).contains(flag), "{flag}");
    }
    assert_eq!(stdout(&proxward(&["--version"])), concat!("proxward ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn a_flag_that_does_not_exist_is_not_accepted() {
    for flag in ["--insecure", "--metrics-listen", "--audit-journald"] {
        assert_eq!(proxward(&["check", flag]).status.code(), Some(2), "{flag}");
    }
}

#[test]
fn token_add_prints_the_token_once_and_writes_only_its_hash() {
    let fixture = Fixture::new();
    let path = fixture.path("new.json");
    let file = path.to_str().unwrap();
    for (name, hash) in [("slow", "argon2id"), ("fast", "sha256")] {
        let output = proxward(&[
            "token",
            "add",
            name,
            "--tokens-file",
            file,
            "--hash",
            hash,
            "--tools",
            "*,start_vm",
            "--devices",
            "pve3",
            "--guests",
            "vmid:600-699,tag:disposable",
            "--actions",
            "read,low",
            "--person",
            "Ann",
            "--actor-type",
            "human",
            "--expires",
            "90d",
        ]);
        assert!(output.status.success(), "{}", stderr(&output));
        let token = stdout(&output).strip_suffix('\n').unwrap();
        assert!(token.starts_with("pxw_") && !token.contains(char::is_whitespace));
        assert!(!stderr(&output).contains(token));
        assert!(stderr(&output).contains("shown this once"));

        let bytes = std::fs::read(&path).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(&token[15..58]));
        let table = TokenTable::parse(&bytes).unwrap();
        let principal = match table.lookup(token, jiff::Timestamp::now()) {
            Lookup::Principal(principal) => principal,
            Lookup::Argon2(candidate) => candidate.verify(token).unwrap(),
            Lookup::Refused(refusal) => panic!("{refusal}"),
        };
        assert_eq!((principal.name(), principal.person()), (name, "Ann"));
        assert!(principal.expires().is_some());
    }
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn token_add_changes_nothing_when_anything_is_wrong() {
    let fixture = Fixture::new();
    let path = fixture.path("tokens.json");
    let file = path.to_str().unwrap();
    let before = std::fs::read(&path).unwrap();
    for (flags, expected) in [
        (&["reader"][..], "already has an entry"),
        (&["a\nb"], "refused"),
        (&["x", "--guests", "vmid:9-1", "--actions", "read"], "vmid:9-1"),
        (&["x", "--guests", "*"], "--actions"),
        (&["x", "--guests", "*", "--actions", "all"], "all"),
        (&["x", "--expires", "2001-01-01T00:00:00Z"], "in the past"),
        (&["x", "--expires", "tomorrow"], "expected a time"),
    ] {
        let output = proxward(&[&["token", "add", "--tokens-file", file], flags].concat());
        assert!(!output.status.success(), "{flags:?}");
        assert!(stderr(&output).contains(expected), "{flags:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{flags:?}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "{flags:?}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = proxward(&["token", "add", "x", "--tokens-file", file]);
    assert!(stderr(&output).contains("chmod 0600"), "{}", stderr(&output));
}

#[test]
fn tk_11_tokens_added_at_the_same_time_are_all_there() {
    let fixture = Fixture::new();
    let path = fixture.path("tokens.json");
    let file = path.to_str().unwrap();
    std::thread::scope(|scope| {
        for index in 0..6 {
            scope.spawn(move || {
                let name = format!("t{index}");
                let output = proxward(&["token", "add", &name, "--tokens-file", file, "--hash", "sha256"]);
                assert!(output.status.success(), "{}", stderr(&output));
            });
        }
    });
    assert_eq!(TokenTable::parse(&std::fs::read(&path).unwrap()).unwrap().len(), 7);
}

#[test]
fn check_says_ok_and_writes_nothing() {
    let fixture = Fixture::new();
    let output = with_files("check", &fixture, &["-t", "streamable-http"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).ends_with("ok\n"));
    assert!(!fixture.path("state").exists());
}

#[test]
fn f33_check_and_serve_report_flags_and_files_together_and_exit_78() {
    let fixture = Fixture::new();
    fixture.write("tokens.json", "{\n \"version\": 1,\n \"tokens\": {\"a\": {\"x\": 1}}}");
    fixture.write("pve3.token", "CHANGEME");
    for verb in ["check", "serve"] {
        let output =
            with_files(verb, &fixture, &["-t", "streamable-http", "-H", "0.0.0.0", "--allow-no-auth"]);
        assert_eq!(output.status.code(), Some(78), "{verb}");
        let text = stderr(&output);
        for expected in [
            "tokens.json:3:",
            "CHANGEME",
            "clusters.json:1:",
            "--tls-cert",
            "--allow-no-auth",
            "--allowed-host",
        ] {
            assert!(text.contains(expected), "{verb}: {expected} is not in:\n{text}");
        }
        assert!(!fixture.path("state").exists(), "{verb}");
    }
}

#[test]
fn check_warns_about_what_loads_and_is_odd() {
    let fixture = Fixture::new();
    fixture.write("tokens.json", r#"{"version": 1, "tokens": {}}"#);
    let output = with_files("check", &fixture, &["-t", "streamable-http"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("warning:") && stderr(&output).contains("nobody can log in"),
        "{}",
        stderr(&output)
    );
    let output = with_files("check", &fixture, &["--stdio-principal", "nobody"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(stderr(&output).contains("--stdio-principal nobody"));
}

/// Two hundred configurations: the good one, and the good one with one value replaced or taken away.
fn corpus() -> Vec<(String, String)> {
    let mut corpus = vec![(good_clusters().to_string(), good_tokens().to_string())];
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(905),
        json!(1e300),
        json!(""),
        json!("*"),
        json!("https://h.example:8006"),
        json!([]),
        json!({}),
        json!(["a"]),
        json!({"x": {"host": "h"}}),
    ];
    let pointers = [
        "/version",
        "/devices",
        "/policy",
        "/devices/pve3",
        "/devices/pve3/endpoint",
        "/devices/pve3/token_id",
        "/devices/pve3/token_secret_file",
        "/devices/pve3/tls_fingerprint",
        "/devices/pve3/protected_vmids",
        "/devices/pve3/protected_tags",
        "/policy/resource_cache_ttl_secs",
    ];
    for pointer in pointers {
        for value in &values {
            let mut clusters = good_clusters();
            *clusters.pointer_mut(pointer).unwrap() = value.clone();
            corpus.push((clusters.to_string(), good_tokens().to_string()));
        }
    }
    for pointer in
        ["/version", "/tokens", "/tokens/reader", "/tokens/reader/tools", "/tokens/reader/grant/guests"]
    {
        for value in &values {
            let mut tokens = good_tokens();
            *tokens.pointer_mut(pointer).unwrap() = value.clone();
            corpus.push((good_clusters().to_string(), tokens.to_string()));
        }
    }
    let text = good_clusters().to_string();
    corpus.extend((1..12).map(|part| (text[..text.len() * part / 12].to_owned(), good_tokens().to_string())));
    corpus
}

#[test]
fn rl_09_check_and_serve_agree_on_two_hundred_configurations() {
    let corpus = corpus();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    let mut good = 0;
    for (clusters, tokens) in &corpus {
        let fixture = Fixture::new();
        fixture.write("clusters.json", clusters);
        fixture.write("tokens.json", tokens);
        // Over stdio with no input, a server that starts ends at once.
        let check = with_files("check", &fixture, &[]);
        let serve = with_files("serve", &fixture, &[]);
        assert_eq!(check.status.code(), serve.status.code(), "{clusters}\n{tokens}\n{}", stderr(&serve));
        match check.status.code() {
            Some(0) => good += 1,
            Some(78) => {
                let problems = |output: &Output| -> Vec<String> {
                    stderr(output)
                        .lines()
                        .filter(|line| line.starts_with("error: "))
                        .map(str::to_owned)
                        .collect()
                };
                assert!(!problems(&check).is_empty());
                assert_eq!(problems(&check), problems(&serve));
            }
            other => panic!("exit status {other:?}: {clusters}\n{}", stderr(&check)),
        }
    }
    assert!(good > 5 && good < corpus.len() / 2, "{good} of {} load", corpus.len());
}

/// A server process, killed when the test ends.
struct Serving(std::process::Child);

impl Serving {
    /// Starts over HTTP and waits until it says that it serves.
    fn start(fixture: &Fixture) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_proxward"))
            .args(["serve", "-t", "streamable-http", "-p", "0"])
            .args(files(fixture))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut serving = Self(child);
        let mut lines = BufReader::new(serving.0.stderr.take().unwrap()).lines();
        let mut seen = Vec::new();
        while !seen.last().is_some_and(|line: &String| line.contains("serving MCP")) {
            seen.push(lines.next().unwrap_or_else(|| panic!("it ended: {seen:?}")).unwrap());
        }
        // Keep the pipe empty, or the server would block on it.
        std::thread::spawn(move || lines.for_each(drop));
        serving
    }

    fn wait_until(&mut self, what: &str, condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !condition() {
            assert!(self.0.try_wait().unwrap().is_none(), "the server ended before {what}");
            assert!(Instant::now() < deadline, "waited too long until {what}");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Asks it to stop, once it listens for that.
    fn terminate(&mut self) {
        let status = format!("/proc/{}/status", self.0.id());
        let catches_term = || {
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
            u64::from_str_radix(caught, 16).unwrap_or(0) & (1 << (Signal::TERM.as_raw() - 1)) != 0
        };
        self.wait_until("it listens for SIGTERM", catches_term);
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The `config.reload` records so far.
fn reloads(fixture: &Fixture) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(fixture.path("state/audit.jsonl")).unwrap();
    text.lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|record| record["event"] == "config.reload")
        .collect()
}

#[test]
fn rl_07_a_hundred_hangups_are_coalesced_and_the_last_change_is_taken() {
    let fixture = Fixture::new();
    let mut serving = Serving::start(&fixture);
    for _ in 0..100 {
        serving.signal(Signal::HUP);
    }
    let mut clusters = good_clusters();
    clusters["devices"]["pve3"]["protected_vmids"] = json!([905]);
    fixture.write("clusters.json", &clusters.to_string());
    serving.signal(Signal::HUP);
    let removed = || {
        reloads(&fixture)
            .iter()
            .any(|record| record["details"]["protection"]["pve3"]["vmids_removed"] == json!([906]))
    };
    serving.wait_until("the last change is in force", removed);
    assert!((1..=101).contains(&reloads(&fixture).len()));
    // A second server on the same state is refused and told who holds it (CS-35).
    let second = with_files("serve", &fixture, &["-t", "streamable-http", "-p", "0"]);
    assert_eq!(second.status.code(), Some(75));
    assert!(stderr(&second).contains(&format!("process {}", serving.0.id())), "{}", stderr(&second));

    serving.terminate();
    serving.signal(Signal::HUP);
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    let state = fixture.path("state").display().to_string();
    let verified = proxward(&["audit", "verify", "--state-dir", &state]);
    assert!(verified.status.success(), "{}", stderr(&verified));
}

#[test]
fn a_log_filter_cannot_touch_the_audit() {
    let fixture = Fixture::new();
    let mut child = Command::new(env!("CARGO_BIN_EXE_proxward"))
        .args(["serve", "-t", "streamable-http", "-p", "0"])
        .args(files(&fixture))
        .env("RUST_LOG", "off")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Serving)
        .unwrap();
    let audit = fixture.path("state/audit.jsonl");
    let started = || std::fs::read_to_string(&audit).is_ok_and(|text| text.contains("\"event\":\"start\""));
    child.wait_until("it has started", started);
    child.signal(Signal::KILL);
    child.0.wait().unwrap();
    // After a kill the next start goes on with the chain.
    let mut next = Serving::start(&fixture);
    next.terminate();
    assert_eq!(next.0.wait().unwrap().code(), Some(0));
    let summary = proxward::audit::verify(&audit).unwrap();
    assert_eq!((summary.from_genesis, summary.restarts), (true, 2));
}

/// An audit file with a few records.
async fn audit_file(fixture: &Fixture) -> String {
    let key = Key::from_bytes([1; 32]);
    let path = fixture.path("audit.jsonl");
    let config =
        AuditConfig { path: path.clone(), key: key.clone(), redactor: Redactor::new(Redaction::Off, key) };
    let audit = Audit::open(config, Arc::new(SystemClock::start())).unwrap();
    for number in 0..5 {
        audit
            .append_durable(Record::new(Event::ToolCall).tool("get_vms").detail("number", number))
            .await
            .unwrap();
    }
    audit.stop().await;
    path.display().to_string()
}

#[tokio::test]
async fn au_06_audit_verify_accepts_a_sound_trail_and_names_the_first_bad_record() {
    let fixture = Fixture::new();
    let file = audit_file(&fixture).await;
    let output = proxward(&["audit", "verify", &file]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("records 1 to 7: sound"));
    let checkpoint = stdout(&output).lines().last().unwrap().to_owned();

    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("\"number\":2", "\"number\":7", 1)).unwrap();
    let output = proxward(&["audit", "verify", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(":5: record 5:"), "{}", stderr(&output));

    // Cut at a line's end: sound by itself, not against the checkpoint (AU-07).
    let lines: Vec<&str> = text.lines().collect();
    std::fs::write(&file, lines[..4].join("\n") + "\n").unwrap();
    assert!(proxward(&["audit", "verify", &file]).status.success());
    let output = proxward(&["audit", "verify", &file, "--since-checkpoint", &checkpoint]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the tail is missing"), "{}", stderr(&output));
}

#[test]
fn audit_verify_of_nothing_fails() {
    let fixture = Fixture::new();
    let state = fixture.path("state").display().to_string();
    let output = proxward(&["audit", "verify", "--state-dir", &state]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("does not exist"), "{}", stderr(&output));
}
