use clap::Parser;

use super::*;
use crate::cli::Cli;

fn problems(flags: &[&str]) -> String {
    let cli = Cli::try_parse_from([&["proxward"], flags].concat()).unwrap();
    rules(&cli.serve).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_flags_of_existing_units_are_taken_and_the_defaults_are_as_documented() {
    let defaults = Cli::try_parse_from(["proxward"]).unwrap().serve;
    assert_eq!(
        (defaults.transport, defaults.listen().to_string().as_str()),
        (Transport::Stdio, "127.0.0.1:30030")
    );
    assert_eq!(defaults.clusters_file.to_str(), Some("/etc/proxward/clusters.json"));
    assert_eq!(defaults.waivers_file.to_str(), Some("/etc/proxward/waivers.json"));
    assert_eq!(defaults.state_db().to_str(), Some("/var/lib/proxward/state.db"));
    assert_eq!(defaults.audit_file().to_str(), Some("/var/lib/proxward/audit.jsonl"));
    assert!(!defaults.lab_mode && !defaults.allow_no_auth);
    let line = "proxward --transport streamable-http --host 127.0.0.1 --port 8443 --clusters-file c --tokens-file t \
        --waivers-file w --state-file s.db --lab-mode --allow-no-auth --tls-cert c --tls-key k --allowed-host h \
        --allowed-origin https://h --audit-format json --audit-log-file a --audit-redact hmac --audit-hmac-key-file k";
    let given = Cli::try_parse_from(line.split_whitespace()).unwrap().serve;
    assert_eq!((given.transport, given.port), (Transport::StreamableHttp, 8443));
    assert_eq!(given.waivers_file.to_str(), Some("w"));
    assert_eq!(given.audit_redact, Redaction::Hmac);
}

#[test]
fn the_defaults_and_loopback_are_accepted() {
    for flags in [
        &[][..],
        &["-t", "streamable-http"],
        &["-t", "streamable-http", "-H", "localhost", "-p", "1"],
        &["-t", "streamable-http", "-H", "::1", "--allow-no-auth"],
        &["-t", "streamable-http", "-H", "127.8.8.8"],
        &["-t", "streamable-http", "-H", "::ffff:127.0.0.1"],
        &["--transfer-listen", "127.0.0.1:8080", "--stdio-principal", "ops"],
    ] {
        assert_eq!(problems(flags), "", "{flags:?}");
    }
}

#[test]
fn tk_12_no_auth_beyond_loopback_is_refused() {
    for host in ["0.0.0.0", "::", "192.168.1.5", "fd00::1", "::ffff:10.0.0.1"] {
        let text = problems(&["-t", "streamable-http", "-H", host, "--allow-no-auth"]);
        assert!(text.contains("--allow-no-auth with --host"), "{host}: {text}");
    }
    assert!(problems(&["--allow-no-auth"]).contains("--allow-no-auth is for"));
}

#[test]
fn tk_12_plain_http_beyond_loopback_is_refused_naming_the_flags() {
    for flags in
        [&["-t", "streamable-http", "-H", "192.168.1.5"][..], &["--transfer-listen", "192.168.1.5:80"]]
    {
        let text = problems(flags);
        assert!(text.contains("--tls-cert") && text.contains("--tls-key"), "{text}");
    }
    let tls = ["--tls-cert", "c", "--tls-key", "k"];
    assert_eq!(problems(&[&["-t", "streamable-http", "-H", "192.168.1.5"][..], &tls].concat()), "");
}

#[test]
fn tk_12_a_wildcard_bind_needs_hosts_and_origins() {
    let base = ["-t", "streamable-http", "-H", "0.0.0.0", "--tls-cert", "c", "--tls-key", "k"];
    let with = |more: &[&str]| problems(&[&base, more].concat());
    assert!(with(&[]).contains("--allowed-host") && with(&[]).contains("--allowed-origin"));
    assert!(with(&["--allowed-host", "h.example"]).contains("--allowed-origin"));
    assert!(with(&["--allowed-origin", "https://h.example"]).contains("--allowed-host"));
    assert_eq!(with(&["--allowed-host", "h.example", "--allowed-origin", "https://h.example"]), "");
    assert!(with(&["--allowed-host", "h/x", "--allowed-origin", "https://h.example"]).contains("h/x"));
}

#[test]
fn flags_that_have_no_effect_are_refused() {
    for (flags, expected) in [
        (&["--tls-cert", "c"][..], "needs --tls-key"),
        (&["--tls-key", "k"], "needs --tls-cert"),
        (&["-t", "streamable-http", "--stdio-principal", "x"], "--stdio-principal is for"),
        (&["-t", "streamable-http", "--transfer-listen", "127.0.0.1:1"], "--transfer-listen is for"),
        (&["--audit-hmac-key-file", "k"], "--audit-redact hmac"),
        (&["--state-file", "/var/lib/x/changeset-state.json"], "finish or reject them there"),
    ] {
        let text = problems(flags);
        assert!(text.contains(expected), "{flags:?}: {text}");
    }
}

#[test]
fn a_foreign_state_file_is_refused_whatever_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let flags = ["--state-file", path.to_str().unwrap()];
    assert_eq!(problems(&flags), "");
    std::fs::write(&path, "").unwrap();
    assert_eq!(problems(&flags), "");
    std::fs::write(&path, "{\"version\":1}").unwrap();
    assert!(problems(&flags).contains("no Proxward database"));
    std::fs::write(&path, "SQLite format 3\0more").unwrap();
    assert_eq!(problems(&flags), "");
}
