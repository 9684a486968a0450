//! A decision with its whole reasoning.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use authz::{
    ActorKind, Asked, Check, CheckResult, DenialKind, GuestFacts, GuestKind, Known, Overrides, Principal,
    Protection, Question, Tier, ToolRule, WaiverSet,
};
use common::{grant, guest, now, principal, tagged, tool, vmid};
use serde_json::{Value, json};

/// A token with the grant `vmid:600-699`, `read` and `low`, changed by `fields`.
fn token(fields: Value) -> Arc<Principal> {
    let mut all = json!({"tools": ["*", "start_vm", "stop_vm", "create_vm", "download_iso"], "devices": ["pve3"],
                         "grant": grant(&["tag:web", "vmid:600-699"], &["read", "low"])});
    for (key, value) in fields.as_object().unwrap() {
        all[key] = value.clone();
    }
    principal("ops", all)
}

struct World {
    principal: Arc<Principal>,
    protection: Protection,
    waivers: WaiverSet,
    lab_mode: bool,
}

impl World {
    fn of(principal: Arc<Principal>) -> World {
        World { principal, protection: Protection::default(), waivers: WaiverSet::empty(), lab_mode: false }
    }

    fn ask<'a>(&'a self, rule: &'a ToolRule, subject: Asked<'a>) -> Question<'a> {
        Question {
            principal: &self.principal,
            rule,
            cluster: Some("pve3"),
            cluster_known: true,
            subject,
            op: rule.name,
            planner: self.principal.name(),
            protection: &self.protection,
            overrides: Overrides { waivers: &self.waivers, lab_mode: self.lab_mode },
            now: now(),
        }
    }
}

fn checks(question: &Question<'_>) -> Vec<(Check, CheckResult)> {
    question.explain().checks.iter().map(|check| (check.check, check.result)).collect()
}

use CheckResult::{Failed, Passed, Skipped};

#[test]
fn a_decision_tells_who_asked_for_what_and_what_each_check_said() {
    let world =
        World::of(token(json!({"person": "Ann", "actor_type": "human", "expires": "2027-01-01T00:00:00Z",
                                       "on_behalf_of": "team-a"})));
    let (rule, facts) = (tool("start_vm"), tagged(600, &["protected"]));
    let decision = world.ask(&rule, Asked::Guest(&facts)).explain();
    assert_eq!(
        serde_json::to_value(&decision).unwrap(),
        json!({
            "allowed": true, "denied": null, "code": null, "message": null, "lift": null,
            "principal": {
                "token": "ops", "person": "Ann", "actor_type": "human", "channel": "bearer",
                "expires": "2027-01-01T00:00:00Z",
                "tools": ["*", "create_vm", "download_iso", "start_vm", "stop_vm"], "devices": ["pve3"],
                "grant": {"guests": ["tag:web", "vmid:600-699"], "actions": ["read", "low"]},
                "provenance": {"on_behalf_of": "team-a"}, "can_approve": true,
            },
            "tool": {"name": "start_vm", "tier": "low", "interrupts": false, "writes_guest": false,
                     "wildcard_reaches": false},
            "cluster": "pve3", "vmid": 600, "op": "start_vm", "planner": "ops", "at": "2026-06-01T12:00:00Z",
            "checks": [
                {"check": "token", "result": "passed", "why": "valid until 2027-01-01T00:00:00Z"},
                {"check": "tool", "result": "passed", "why": "the token names the tool"},
                {"check": "cluster", "result": "passed", "why": "cluster `pve3` is in the token's scope"},
                {"check": "guest", "result": "passed", "why": "selector `vmid:600-699` matches the guest"},
                {"check": "tier", "result": "passed", "why": "the grant holds `low`"},
                {"check": "protection", "result": "passed",
                 "why": "the guest is protected (its tag `protected` is in `protected_tags`), which does not refuse this tool"},
            ],
        })
    );
    assert_eq!(decision.failed(), None);
    let text = decision.to_string();
    assert!(
        text.starts_with(
            "ALLOW: token `ops` (person `Ann`), `start_vm` (low), guest 600, cluster `pve3`, at 2026-06-01T12:00:00Z\n"
        ),
        "{text}"
    );
    assert!(text.contains("\n  pass  tier        the grant holds `low`\n"), "{text}");
}

#[test]
fn every_check_is_told_and_the_first_that_failed_decides() {
    let world =
        World::of(token(json!({"expires": "2026-06-01T12:00:00Z", "tools": ["*"], "devices": ["pve4"],
                                       "grant": grant(&["vmid:700"], &["read"])})));
    let (rule, facts) = (tool("stop_vm"), tagged(600, &["protected"]));
    let mut question = world.ask(&rule, Asked::Guest(&facts));
    let decision = question.explain();
    assert_eq!(
        checks(&question),
        [
            (Check::Token, Failed),
            (Check::Tool, Failed),
            (Check::Cluster, Failed),
            (Check::Guest, Failed),
            (Check::Tier, Failed),
            (Check::Protection, Failed),
        ]
    );
    assert_eq!((decision.denied, decision.code), (Some(DenialKind::TokenExpired), Some("expired")));
    assert_eq!(decision.failed().unwrap().check, Check::Token);
    assert!(decision.checks[5].why.contains("protected (its tag"), "{:?}", decision.checks);
    let text = decision.to_string();
    assert!(text.starts_with("DENY: ") && text.contains("  FAIL  token "), "{text}");
    assert!(text.contains("\nThe caller is told (expired): token `ops` expired at"), "{text}");
    // An unknown cluster is refused like one out of scope.
    question.cluster_known = false;
    question.cluster = Some("pve4");
    assert_eq!(question.explain().checks[2].result, Failed);
    assert!(question.explain().checks[2].why.contains("no such cluster"));
}

#[test]
fn an_absent_guest_an_unknown_cluster_and_a_new_number_are_explained_too() {
    let world = World::of(token(json!({})));
    let rule = tool("start_vm");
    let question = world.ask(&rule, Asked::AbsentGuest(vmid(650)));
    let decision = question.explain();
    assert_eq!(decision.message.as_deref(), Some("authorization failed"));
    assert_eq!(decision.vmid, Some(vmid(650)));
    assert_eq!(
        checks(&question)[3..],
        [(Check::Guest, Failed), (Check::Tier, Passed), (Check::Protection, Skipped)]
    );
    assert!(decision.to_string().contains("  skip  protection  there is no guest to look at\n"));

    let unknown = Question { cluster_known: false, ..world.ask(&rule, Asked::Nothing) };
    let decision = unknown.explain();
    assert_eq!(decision.denied, Some(DenialKind::ClusterOutOfScope));
    assert!(decision.failed().unwrap().why.contains("no such cluster"));

    let create = tool("create_vm");
    for (number, results) in
        [(650, [Passed, Passed, Passed]), (700, [Failed, Passed, Passed]), (601, [Passed, Passed, Failed])]
    {
        let world = World {
            protection: Protection::new([vmid(601)], [""; 0]).unwrap(),
            ..World::of(token(json!({})))
        };
        let question = world.ask(&create, Asked::NewGuest(vmid(number)));
        let found: Vec<_> = checks(&question)[3..].iter().map(|(_, result)| *result).collect();
        assert_eq!(found, results, "{number}");
        assert_eq!(question.explain().allowed, results == [Passed; 3]);
        assert_eq!(question.explain().vmid, Some(vmid(number)));
    }
    let why = &world.ask(&create, Asked::NewGuest(vmid(650))).explain().checks;
    assert_eq!(why[3].why, "selector `vmid:600-699` holds number 650");
    assert_eq!(why[5].why, "number 650 is not protected");
}

#[test]
fn what_addresses_no_guest_is_explained_by_its_own_check() {
    let world = World::of(token(json!({})));
    for (rule, expected) in [
        (tool("get_vms"), &[(Check::Addressing, Passed)][..]),
        (ToolRule { interrupts: true, ..tool("get_vms") }, &[(Check::Addressing, Failed)]),
        (tool("download_iso"), &[(Check::Addressing, Passed), (Check::Tier, Passed)]),
        (tool("stop_vm"), &[(Check::Addressing, Failed), (Check::Tier, Passed)]),
        (tool("delete_vm"), &[(Check::Addressing, Passed), (Check::Tier, Failed)]),
    ] {
        let question = world.ask(&rule, Asked::Nothing);
        assert_eq!(checks(&question)[3..], *expected, "{rule:?}");
        assert_eq!(
            question.decide().is_ok(),
            expected.iter().all(|(_, result)| *result == Passed),
            "{rule:?}"
        );
        assert_eq!(question.explain().vmid, None);
    }
    let anyone = Question { cluster: None, ..world.ask(&tool("get_vms"), Asked::Nothing) }.explain();
    assert_eq!((anyone.checks.len(), anyone.cluster), (3, None));
    assert_eq!(anyone.checks[1].why, "the token's `*` reaches this read");
    assert_eq!(anyone.checks[0].why, "valid, without an end");
    assert!(anyone.tool.wildcard_reaches);
    assert_eq!(anyone.checks[2].check.as_str(), "addressing");
}

#[test]
fn what_lifted_protection_is_told() {
    let text = json!({"version": 1, "waivers": [{"cluster": "pve3", "vmid": 600, "until": "2026-06-02T00:00:00Z",
        "reason": "move", "ops": ["stop_vm"]}]});
    let (waivers, _) = WaiverSet::parse(text.to_string().as_bytes(), |_| true, now()).unwrap();
    let (rule, facts) = (tool("stop_vm"), tagged(600, &["protected"]));
    let mut world = World { waivers, ..World::of(token(json!({}))) };
    let decision = world.ask(&rule, Asked::Guest(&facts)).explain();
    assert_eq!(decision.lift.as_deref(), Some("waiver until 2026-06-02T00:00:00Z: move"));
    let lifted = "the guest is protected (its tag `protected` is in `protected_tags`), and that is lifted: waiver until";
    assert!(decision.checks[5].why.starts_with(lifted), "{:?}", decision.checks[5]);
    world.waivers = WaiverSet::empty();
    assert!(!world.ask(&rule, Asked::Guest(&facts)).explain().allowed);
    world.lab_mode = true;
    assert_eq!(world.ask(&rule, Asked::Guest(&facts)).explain().lift.as_deref(), Some("lab mode"));
    let unprotected = guest(600);
    let decision = world.ask(&rule, Asked::Guest(&unprotected)).explain();
    assert_eq!((decision.lift, decision.checks[5].why.as_str()), (None, "the guest is not protected"));
    assert_eq!(Tier::Low.to_string(), "low");
}

/// Whom the description calls an approver is whom a decision takes for one: a person with a token of their own.
#[test]
fn only_a_persons_own_token_can_approve() {
    for (actor, can) in [("human", true), ("agent", false), ("unknown", false)] {
        let token = token(json!({"actor_type": actor}));
        assert_eq!(token.describe().can_approve, can, "{actor}");
        assert!(!token.over_stdio().describe().can_approve, "{actor}");
    }
    assert!(!Principal::anonymous_reader().describe().can_approve);
}

/// A word is the same in text, in JSON and in the files that are read.
#[test]
fn every_kind_has_one_word() {
    for (kind, word) in [(GuestKind::Qemu, "qemu"), (GuestKind::Lxc, "lxc")] {
        assert_eq!((kind.as_str(), kind.to_string().as_str(), json!(kind)), (word, word, json!(word)));
    }
    for (kind, word) in [(ActorKind::Human, "human"), (ActorKind::Agent, "agent")] {
        assert_eq!((kind.as_str(), json!(kind)), (word, json!(word)));
        assert_eq!(principal("ops", json!({"actor_type": word})).actor(), Some(kind));
    }
    for tier in Tier::ALL {
        assert_eq!((tier.to_string(), json!(tier)), (tier.as_str().to_owned(), json!(tier.as_str())));
        assert_eq!(tier.as_str().parse(), Ok(tier));
    }
}

/// Nothing a caller sends can move the cursor of whoever reads an explanation.
#[test]
fn what_a_caller_sent_is_escaped() {
    let world = World::of(token(json!({"devices": ["*"]})));
    let rule = tool("get_vms");
    let hostile = "x\u{1b}[31m\n\u{202e}";
    let question =
        Question { cluster: Some(hostile), cluster_known: false, ..world.ask(&rule, Asked::Nothing) };
    let text = question.explain().to_string();
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{text:?}");
    let facts = GuestFacts { tags: Known::Unreadable, ..guest(600) };
    let question = world.ask(&rule, Asked::Guest(&facts));
    assert!(question.explain().checks[5].why.contains("could not be read"));
}
