//! What loads, what does not, and that everything wrong is said at once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "not every test file uses the whole fixture")]

mod fixture;

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use fixture::{Fixture, good_clusters, good_tokens, texts};
use proxward::audit::{Audit, AuditConfig, Redaction, Redactor};
use proxward::clock::SystemClock;
use proxward::config::{Live, Reloader};
use proxward::keys::Key;
use serde_json::{Value, json};

#[test]
fn the_reference_format_loads_with_its_defaults() {
    let loaded = Fixture::new().load().unwrap();
    assert_eq!(texts(&loaded.warnings), Vec::<String>::new());
    let snapshot = loaded.snapshot;
    let cluster = snapshot.cluster(None).unwrap();
    assert_eq!(cluster.name, "pve3");
    assert_eq!(cluster.client.token_id(), "mcp-automation@pve!mcp");
    assert_eq!(cluster.protection.vmids().len(), 2);
    assert!(cluster.ssh.is_none());
    assert!(snapshot.cluster(Some("PVE3")).is_none());
    assert_eq!(snapshot.policy.resource_cache_ttl, Duration::from_secs(10));
    assert_eq!(snapshot.policy.transfers.max_bytes, 10 << 30);
    assert_eq!(snapshot.policy.transfers.agent_max_bytes, 64 << 20);
    let limits = &snapshot.policy.limits;
    assert_eq!(
        (limits.transfer_wrong_tokens_per_minute, limits.pending_links, limits.pending_links_per_owner),
        (600, 50, 10)
    );
    assert_eq!((limits.calls_per_second, limits.call_burst, limits.calls_in_flight), (50, 600, 32));
    assert_eq!((limits.bearer_failures_per_minute, limits.uploads_per_node), (20, 4));
    assert_eq!(limits.recovery_settle(), Duration::from_secs(30));
    assert!(snapshot.tokens.principal("reader").is_some());
}

#[test]
fn the_whole_policy_loads() {
    let fixture = Fixture::new();
    let problems = fixture.problems_with(|clusters| {
        clusters["policy"] = json!({
            "resource_cache_ttl_secs": 0,
            "public_url": "https://gate.example.org/",
            "transfers": { "max_mb": 1, "agent_max_mb": 2, "dir": "/srv/upload" },
            "fetch": { "allow": ["10.1.2.3/32:8080"], "ports": [443] },
            "limits": { "pending_links": 3, "recovery_settle_ms": 300 },
            "trusted_proxies": ["10.0.0.0/8", "::1"]
        });
    });
    assert_eq!(problems, "");
    let policy = fixture.load().unwrap().snapshot.policy;
    assert_eq!(policy.public_url.as_deref(), Some("https://gate.example.org"));
    assert_eq!(policy.transfers.max_bytes, 1 << 20);
    assert!(policy.fetch.allows("10.1.2.3:8080".parse().unwrap()));
    assert_eq!(policy.limits.pending_links, 3);
    assert_eq!(policy.limits.recovery_settle(), Duration::from_millis(300));
    assert!(policy.trusts_proxy("10.255.0.1".parse().unwrap()));
}

#[tokio::test]
async fn the_laboratorys_configuration_loads() {
    let lab = lab::Lab::start(lab::LabConfig::two_clusters().unwrap()).await.unwrap();
    let fixture = Fixture::new();
    lab.write_config(fixture.root()).unwrap();
    fixture.write("tokens.json", r#"{"version": 1, "tokens": {}}"#);
    let snapshot = fixture.load().unwrap().snapshot;
    assert_eq!(snapshot.clusters.keys().collect::<Vec<_>>(), ["alpha", "beta"]);
    assert!(snapshot.cluster(None).is_none(), "two clusters: one has to be named");
    let alpha = snapshot.cluster(Some("alpha")).unwrap();
    let ssh = alpha.ssh.as_ref().unwrap();
    let node = lab.cluster("alpha").node("pve1").unwrap().clone();
    let target = ssh.target("pve1").unwrap();
    assert_eq!(
        (target.host, target.port, target.user),
        (node.ssh_host(), node.ssh_port(), "root".to_owned())
    );
    assert_eq!(target.staging_dir, "/var/tmp/proxward");
    assert!(ssh.target("pve9").is_none());
    // The secret and the CA are the right ones.
    assert!(!alpha.client.version().await.unwrap().version.is_empty());
}

#[test]
fn rl_08_each_mistake_is_refused_at_its_line() {
    let fixture = Fixture::new();
    let path = fixture.path("clusters.json").display().to_string();
    type Change = fn(&mut Value);
    let cases: &[(Change, &str, &str)] = &[
        (|c| c["version"] = json!(2), "$.version", "version 1 only"),
        (|c| c["version"] = json!("1"), "$.version", "found a string"),
        (|c| c["clusters"] = json!({}), "$.clusters", "unknown"),
        (|c| c["devices"] = json!([]), "$.devices", "expected an object, found an array"),
        (|c| c["devices"] = json!({}), "$.devices", "at least one"),
        (|c| c["devices"]["a b"] = c["devices"]["pve3"].clone(), "a b", "name has 1 to 64"),
        (|c| c["devices"]["pve3"] = json!(1), "$.devices.pve3", "expected an object"),
        (|c| c["devices"]["pve3"]["endpont"] = json!("x"), "endpont", "unknown"),
        (|c| c["devices"]["pve3"]["endpoint"] = json!("http://h:8006"), "endpoint", "not https"),
        (|c| c["devices"]["pve3"]["endpoint"] = json!(["https://h"]), "endpoint", "found an array"),
        (|c| c["devices"]["pve3"]["endpoints"] = json!(["https://h"]), "endpoints", "both set"),
        (|c| c["devices"]["pve3"]["token_id"] = json!("root"), "token_id", "user@realm!name"),
        (
            |c| c["devices"]["pve3"]["protected_vmids"] = json!(["905"]),
            "protected_vmids[0]",
            "found a string",
        ),
        (|c| c["devices"]["pve3"]["protected_vmids"] = json!([99]), "protected_vmids[0]", "100 to 999999999"),
        (|c| c["devices"]["pve3"]["protected_vmids"] = json!([-905]), "protected_vmids[0]", "not negative"),
        (|c| c["devices"]["pve3"]["protected_tags"] = json!(["a b"]), "protected_tags", "no PVE tag"),
        (|c| c["devices"]["pve3"]["tls_fingerprint"] = json!("aa"), "tls_fingerprint", "fingerprint"),
        (|c| c["devices"]["pve3"]["ca_pem_path"] = json!("ca.pem"), "tls_fingerprint", "both set"),
        (|c| c["devices"]["pve3"]["ssh"] = json!({}), "ssh", "`key_file` is missing"),
        (|c| c["policy"]["limits"] = json!({"pending_links": 0}), "pending_links", "from 1 to"),
        (|c| c["policy"]["limits"] = json!({"pending": 1}), "limits.pending", "unknown"),
        (|c| c["policy"]["public_url"] = json!("http://h.example"), "public_url", "https"),
        (|c| c["policy"]["trusted_proxies"] = json!(["10.0.0.1/8"]), "trusted_proxies[0]", "10.0.0.0/8"),
        (|c| c["policy"]["fetch"] = json!({"allow": ["10.0.0.0/8:80"]}), "allow[0]", "one exact address"),
        (|c| c["policy"]["transfers"] = json!({"dir": "relative"}), "transfers.dir", "absolute"),
    ];
    for (change, place, message) in cases {
        let problems = fixture.problems_with(*change);
        let line = problems
            .lines()
            .find(|line| line.contains(message))
            .unwrap_or_else(|| panic!("{place}: {message} is not in:\n{problems}"));
        let rest = line.strip_prefix(&format!("{path}:")).unwrap_or_else(|| panic!("no path in {line}"));
        let mut position = rest.splitn(3, ':');
        assert!(position.next().unwrap().parse::<u32>().unwrap() > 1, "{line}");
        assert!(position.next().unwrap().parse::<u32>().unwrap() > 1, "{line}");
        assert!(line.contains(place), "{place} is not in {line}");
    }
}

#[test]
fn rl_08_duplicate_keys_marks_depth_and_size_are_refused() {
    let fixture = Fixture::new();
    let good = good_clusters().to_string();
    let device = good_clusters()["devices"]["pve3"].to_string();
    let twice = good.replacen(r#""version":1"#, r#""version":1,"version":1"#, 1);
    fixture.write("clusters.json", &twice);
    assert!(fixture.problems().contains("`version` stands here twice"), "{}", fixture.problems());
    let cluster_twice = good.replacen(r#""devices":{"#, &format!(r#""devices":{{"pve3":{device},"#), 1);
    fixture.write("clusters.json", &cluster_twice);
    assert!(fixture.problems().contains("`pve3` stands here twice"), "{}", fixture.problems());
    fixture.write_bytes("clusters.json", &[b"\xef\xbb\xbf", good.as_bytes()].concat());
    assert!(
        fixture.problems().contains("clusters.json:1:1:") && fixture.problems().contains("byte order mark")
    );
    fixture.write(
        "clusters.json",
        &format!("{{\"version\":1,\"devices\":{}1{}}}", "[".repeat(200), "]".repeat(200)),
    );
    assert!(!fixture.problems().is_empty());
    fixture.write("clusters.json", &format!("{good}{}", " ".repeat(100 << 20)));
    assert!(fixture.problems().contains("larger than"), "{}", fixture.problems());
}

#[test]
fn rl_10_secrets_are_trimmed_once_and_never_ambiguous_empty_or_samples() {
    let fixture = Fixture::new();
    for good in ["0123456789", "0123456789\n", "0123456789\r\n"] {
        fixture.write("pve3.token", good);
        assert_eq!(fixture.problems(), "", "{good:?}");
    }
    for (bad, why) in [
        ("", "is empty"),
        ("\n", "is empty"),
        ("0123456789\n\n", "line break"),
        (" 0123456789", "spaces"),
        ("CHANGEME", "sample text CHANGEME"),
        ("changeme-please", "sample text CHANGEME"),
    ] {
        fixture.write("pve3.token", bad);
        let problems = fixture.problems();
        assert!(problems.contains(why), "{bad:?}: {problems}");
        assert!(!problems.contains("0123456789"), "{problems}");
    }
    fixture.write("pve3.token", "0123456789");
    let both = |c: &mut Value| c["devices"]["pve3"]["token_secret_env"] = json!("PVE3");
    assert!(fixture.problems_with(both).contains("both set"));
    let neither =
        |c: &mut Value| drop(c["devices"]["pve3"].as_object_mut().unwrap().remove("token_secret_file"));
    assert!(fixture.problems_with(neither).contains("is missing"));
    let variable = |c: &mut Value| {
        let device = c["devices"]["pve3"].as_object_mut().unwrap();
        device.remove("token_secret_file");
        device.insert("token_secret_env".to_owned(), json!("PVE3"));
    };
    assert!(fixture.problems_with(variable).contains("PVE3 is not set"));
    fixture.load_in(&|name| (name == "PVE3").then(|| "0123456789\n".to_owned())).unwrap();
    let empty = fixture.load_in(&|_| Some(String::new())).unwrap_err();
    assert!(texts(&empty).join("\n").contains("is empty"));
}

#[test]
fn a_token_of_root_loads_with_a_warning() {
    let fixture = Fixture::new();
    let problems = fixture.problems_with(|c| c["devices"]["pve3"]["token_id"] = json!("root@pam!all"));
    assert_eq!(problems, "");
    let warnings = texts(&fixture.load().unwrap().warnings);
    assert!(warnings.len() == 1 && warnings[0].contains("root@pam"), "{warnings:?}");
}

#[test]
fn f33_every_problem_of_every_file_is_reported_in_one_pass() {
    let fixture = Fixture::new();
    fixture.write("pve3.token", "");
    fixture.write("tokens.json", r#"{"version": 1, "tokens": {"a": {}}, "extra": 1}"#);
    fixture.write("waivers.json", "{\n  \"version\": 1,\n  \"waivers\": [{\"cluster\": 5}]\n}");
    let problems = fixture.problems_with(|c| {
        c["devices"]["pve3"]["protected_vmids"] = json!(["x", 5]);
        c["policy"]["nonsense"] = json!(true);
    });
    for expected in [
        "pve3.token is empty",
        "protected_vmids[0]",
        "`nonsense` is unknown",
        "tokens.json:1:",
        "`extra` is unknown",
        "waivers.json:3:",
    ] {
        assert!(problems.contains(expected), "{expected} is not in:\n{problems}");
    }
}

#[test]
fn sh_15_sh_03_keys_and_known_hosts_are_checked_at_load() {
    let fixture = Fixture::new();
    fixture.write("key", "not a key");
    fixture.write("hosts", "# nothing\nnonsense\n");
    let ssh = |c: &mut Value| {
        c["devices"]["pve3"]["ssh"] = json!({
            "key_file": "key", "known_hosts_file": "hosts", "staging_dir": "/tmp/../etc", "user": "-x",
            "nodes": { "pve1": { "host": "10.0.0.1", "port": 0 }, "pve2": { "host": "10.0.0.2:22" }, "a/b": { "host": "h" } },
            "guests": { "vmid:x": { "host": "h" } }
        });
    };
    let problems = fixture.problems_with(ssh);
    for expected in [
        "not an OpenSSH private key",
        "hosts:2:",
        "ssh.staging_dir",
        "ssh.user",
        "nodes.pve1.port",
        "nodes.pve2.host",
        "a/b",
        "vmid:x",
    ] {
        assert!(problems.contains(expected), "{expected} is not in:\n{problems}");
    }
    std::fs::set_permissions(fixture.path("key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    std::fs::set_permissions(fixture.path("hosts"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let problems = fixture.problems_with(ssh);
    assert!(problems.contains("chmod 0600") && problems.contains("chmod go-w"), "{problems}");
}

#[test]
fn tk_06_each_file_must_be_private() {
    for name in ["clusters.json", "tokens.json", "pve3.token"] {
        let fixture = Fixture::new();
        std::fs::set_permissions(fixture.path(name), std::fs::Permissions::from_mode(0o640)).unwrap();
        let problems = fixture.problems();
        assert!(problems.contains(name) && problems.contains("chmod 0600"), "{name}: {problems}");
    }
}

#[test]
fn pw_04_pw_10_waivers_load_with_warnings_and_may_be_absent() {
    let fixture = Fixture::new();
    assert_eq!(fixture.load().unwrap().snapshot.waivers.iter().count(), 0);
    let waiver = |ops: Value| {
        json!({"version": 1, "waivers": [{"cluster": "pve3", "vmid": 905, "until": "2099-01-01T00:00:00Z",
            "reason": "r", "ticket": "t", "ops": ops}]})
        .to_string()
    };
    fixture.write("waivers.json", &waiver(json!(["destory_guest"])));
    let loaded = fixture.load().unwrap();
    assert!(texts(&loaded.warnings).join("\n").contains("destory_guest"), "{:?}", loaded.warnings);
    for refused in [json!([]), Value::Null] {
        fixture.write("waivers.json", &waiver(refused));
        assert!(fixture.problems().contains("waivers.json:1:"));
    }
}

#[test]
fn the_policy_version_changes_with_what_decides() {
    let fixture = Fixture::new();
    let version = |fixture: &Fixture| fixture.load().unwrap().snapshot.policy_version;
    let first = version(&fixture);
    assert_eq!(first, version(&fixture));
    fixture.write("tokens.json", &format!("{:#}", good_tokens()));
    assert_eq!(first, version(&fixture), "who may call is bound elsewhere");
    fixture.write("waivers.json", r#"{"version": 1, "waivers": []}"#);
    let second = version(&fixture);
    assert_ne!(first, second);
    let mut sources = fixture.sources();
    sources.lab_mode = true;
    let lab = proxward::config::load(&sources, 1, &|_| None).unwrap().snapshot;
    assert!(lab.lab_mode);
    assert_ne!(lab.policy_version, second);
}

/// A live configuration with its reloader and audit file.
fn running(fixture: &Fixture) -> (Arc<Live>, Reloader, Audit) {
    let live = Arc::new(Live::new(fixture.load().unwrap().snapshot));
    let key = Key::from_bytes([1; 32]);
    let redactor = Redactor::new(Redaction::Off, key.clone());
    let config = AuditConfig { path: fixture.path("audit.jsonl"), key, redactor };
    let audit = Audit::open(config, Arc::new(SystemClock::start())).unwrap();
    let reloader = Reloader::new(fixture.sources(), Arc::clone(&live), Some(audit.clone()));
    (live, reloader, audit)
}

#[tokio::test]
async fn rl_01_f33_one_bad_file_keeps_the_whole_old_configuration() {
    let fixture = Fixture::new();
    let (live, reloader, _audit) = running(&fixture);
    let mut clusters = good_clusters();
    clusters["devices"]["pve4"] = clusters["devices"]["pve3"].clone();
    fixture.write("clusters.json", &clusters.to_string());
    fixture.write("tokens.json", "{");
    let problems = reloader.reload().await.unwrap_err();
    assert!(texts(&problems)[0].contains("tokens.json:1:"), "{problems:?}");
    assert_eq!(live.load().generation, 1);
    assert_eq!(live.load().clusters.len(), 1, "the good file was not taken either");
    assert_eq!(live.degraded().unwrap().problems, problems);

    fixture.write("tokens.json", &good_tokens().to_string());
    assert_eq!(reloader.reload().await.unwrap().generation, 2);
    assert_eq!(live.load().clusters.len(), 2);
    assert!(live.degraded().is_none());
}

#[tokio::test]
async fn rl_03_a_half_written_file_is_never_taken() {
    let fixture = Fixture::new();
    let (live, reloader, _audit) = running(&fixture);
    let text = good_clusters().to_string();
    for cut in [0, 1, text.len() / 2, text.len() - 1] {
        fixture.write("clusters.json", &text[..cut]);
        reloader.reload().await.unwrap_err();
        assert_eq!((live.load().generation, live.load().clusters.len()), (1, 1));
    }
    fixture.write("clusters.json", &text);
    reloader.reload().await.unwrap();
    assert_eq!(live.load().generation, 2);
}

#[tokio::test]
async fn rl_05_less_protection_is_recorded_by_number() {
    let fixture = Fixture::new();
    let (_live, reloader, audit) = running(&fixture);
    let mut clusters = good_clusters();
    clusters["devices"]["pve3"]["protected_vmids"] = json!([906, 907]);
    clusters["devices"]["pve3"]["protected_tags"] = json!(["keep"]);
    clusters["devices"]["pve4"] = clusters["devices"]["pve3"].clone();
    fixture.write("clusters.json", &clusters.to_string());
    reloader.reload().await.unwrap();
    fixture.write("clusters.json", "");
    reloader.reload().await.unwrap_err();
    audit.stop().await;
    let text = std::fs::read_to_string(fixture.path("audit.jsonl")).unwrap();
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|record: &Value| record["event"] == "config.reload")
        .collect();
    assert_eq!(records[0]["outcome"], "ok");
    assert_eq!(records[0]["generation"], 2);
    assert_eq!(
        records[0]["details"],
        json!({
            "clusters_added": ["pve4"],
            "protection": { "pve3": {
                "vmids_added": [907], "vmids_removed": [905], "tags_added": ["keep"], "tags_removed": ["protected"],
            }},
        })
    );
    assert_eq!(records[1]["outcome"], "failed");
    assert_eq!(records[1]["generation"], 2);
}

#[tokio::test]
async fn rl_06_a_rotated_secret_is_used_and_calls_keep_the_old_cluster() {
    let fixture = Fixture::new();
    let (live, reloader, _audit) = running(&fixture);
    let before = Arc::clone(live.load().cluster(None).unwrap());
    fixture.write("pve3.token", "11111111-1111-1111-1111-111111111111");
    reloader.reload().await.unwrap();
    let after = Arc::clone(live.load().cluster(None).unwrap());
    assert!(!Arc::ptr_eq(&before, &after));
    // The call that held the old one was the last to do so.
    assert_eq!(Arc::strong_count(&before), 1);
}
