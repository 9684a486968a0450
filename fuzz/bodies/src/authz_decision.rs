//! `authz`: a decision agrees with a list of objections that works on the words of the files.

use authz::{
    Asked, GuestFacts, GuestKind, Known, Lookup, Overrides, Protection, Question, TokenTable, ToolRule, Vmid,
    WaiverSet, sha256_entry,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::bytes::Bytes;
use crate::tokens_json::KNOWN_TOKEN;

const TOOLS: [&str; 3] = ["*", "tool", "too"];
const CLUSTERS: [&str; 3] = ["*", "c1", "c2"];
const GUESTS: [&str; 7] = ["*", "vmid:600", "vmid:600-699", "vmid:100-599", "tag:a", "tag:ab", "pool:p"];
const TIERS: [&str; 3] = ["read", "low", "destructive"];
const TAGS: [&str; 6] = ["a", "A", "ab", "Prot", "prot", "x y"];
const VMIDS: [u32; 4] = [100, 600, 699, 700];
const OPS: [&str; 2] = ["tool", "other"];
const TOKENS: [&str; 2] = ["me", "you"];

/// A policy and one call, chosen by the bytes.
pub fn authz_decision(data: &[u8]) {
    let mut bytes = Bytes(data);
    let now: Timestamp = "2026-11-30T00:00:00Z".parse().expect("a time");
    let after =
        |seconds: i64| now.checked_add(SignedDuration::from_secs(seconds)).expect("a time").to_string();
    // The token.
    let (tools, devices) = (some(&TOOLS, bytes.byte(), true), some(&CLUSTERS, bytes.byte(), true));
    let (guests, actions) = (some(&GUESTS, bytes.byte(), false), some(&TIERS, bytes.byte(), false));
    let [granted, expiring, ..] = bits(bytes.byte());
    let expires = i64::from(bytes.byte() % 3) - 1;
    let mut entry = json!({"hash": sha256_entry(KNOWN_TOKEN), "tools": tools, "devices": devices});
    if granted {
        entry["grant"] = json!({"guests": guests, "actions": actions});
    }
    if expiring {
        entry["expires"] = json!(after(expires));
    }
    let file = json!({"version": 1, "tokens": {"me": entry}}).to_string();
    let table = TokenTable::parse(file.as_bytes()).expect("the file loads");
    let Lookup::Principal(principal) = table.lookup(KNOWN_TOKEN, Timestamp::MIN) else {
        panic!("it is in the file")
    };
    // The call.
    let tier = pick(&TIERS, bytes.byte());
    let [interrupts, writes, wildcard, tags_read, pool_read, pooled, flag_read, flag] = bits(bytes.byte());
    let (cluster, vmid, tags) =
        (pick(&CLUSTERS[1..], bytes.byte()), pick(&VMIDS, bytes.byte()), some(&TAGS, bytes.byte(), false));
    let (op, planner) = (pick(&OPS, bytes.byte()), pick(&TOKENS, bytes.byte()));
    let rule = ToolRule {
        name: "tool",
        tier: tier.parse().expect("a tier"),
        interrupts,
        writes_guest: writes,
        wildcard,
    };
    let facts = GuestFacts {
        cluster: cluster.to_owned(),
        vmid: Vmid::new(vmid).expect("a vmid"),
        kind: GuestKind::Lxc,
        name: None,
        tags: known(tags_read, || tags.iter().map(|tag| (*tag).to_owned()).collect()),
        pool: known(pool_read, || pooled.then(|| "p".to_owned())),
        protection: known(flag_read, || flag),
    };
    // What protects, and what lifts.
    let [by_number, by_tag, lab, ..] = bits(bytes.byte());
    let waivers: Vec<_> = (0..bytes.byte() % 4)
        .map(|_| {
            let [other_guest, other_cluster, bound, both, ..] = bits(bytes.byte());
            (
                other_guest,
                other_cluster,
                bound.then(|| pick(&TOKENS, bytes.byte())),
                both,
                i64::from(bytes.byte() % 3) - 1,
            )
        })
        .collect();
    let entries: Vec<_> = waivers
        .iter()
        .map(|(other_guest, other_cluster, bound, both, until)| {
            let ops = if *both { OPS.to_vec() } else { vec![OPS[0]] };
            json!({"cluster": if *other_cluster { "c9" } else { cluster }, "vmid": if *other_guest { 999 } else { vmid },
                   "until": after(*until), "reason": "r", "ops": ops, "principal": bound})
        })
        .collect();
    let text = json!({"version": 1, "waivers": entries}).to_string();
    let (set, _) = WaiverSet::parse(text.as_bytes(), |_| true, now).expect("the file loads");
    let protection =
        Protection::new(by_number.then_some(facts.vmid), by_tag.then_some("PROT")).expect("tags");

    let readable = tags_read && !tags.contains(&"x y");
    let in_scope = granted
        && !actions.is_empty()
        && guests.iter().any(|word| match word.split_once(':') {
            None => true,
            Some(("vmid", range)) => {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                (number(first)..=number(last)).contains(&vmid)
            }
            Some(("tag", tag)) => readable && tags.contains(&tag),
            Some(_) => pool_read && pooled,
        });
    let hazard = tier == "destructive" || interrupts || writes;
    let protected = by_number
        || !readable
        || !flag_read
        || flag
        || (by_tag && (tags.contains(&"Prot") || tags.contains(&"prot")));
    let lifted = lab
        || waivers.iter().any(|(other_guest, other_cluster, bound, both, until)| {
            !other_guest
                && !other_cluster
                && *until > 0
                && (*both || op == OPS[0])
                && bound.is_none_or(|name| name == planner)
        });
    let expected = [
        (!(expiring && expires <= 0), "expired"),
        (
            tools.contains(&"tool") || (tools.contains(&"*") && wildcard && !hazard && tier == "read"),
            "insufficient_scope",
        ),
        (devices.contains(&"*") || devices.contains(&cluster), "cluster_unavailable"),
        (in_scope, "authorization_failed"),
        (actions.contains(&tier), "insufficient_scope"),
        (!(hazard && protected) || lifted, "protected"),
    ];
    let objection = expected.iter().find(|(passes, _)| !passes).map(|(_, code)| *code);

    let question = Question {
        principal: &principal,
        rule: &rule,
        cluster: Some(cluster),
        cluster_known: true,
        subject: Asked::Guest(&facts),
        op,
        planner,
        protection: &protection,
        overrides: Overrides { waivers: &set, lab_mode: lab },
        now,
    };
    let decision = question.explain();
    assert_eq!(decision.code, objection, "{decision}");
    assert_eq!(decision.lift.is_some(), objection.is_none() && hazard && protected, "{decision}");
    // Checks that do not look at what an earlier one refused say the same as the list.
    let failed = decision.checks.iter().position(|check| check.result == authz::CheckResult::Failed);
    assert_eq!(failed, expected.iter().position(|(passes, _)| !passes), "{decision}");
}

fn number(text: &str) -> u32 {
    text.parse().expect("a number")
}

fn pick<T: Copy>(from: &[T], byte: u8) -> T {
    from[usize::from(byte) % from.len()]
}

/// The words whose bits are set; `first` where none is and one is needed.
fn some(from: &[&'static str], byte: u8, needed: bool) -> Vec<&'static str> {
    let chosen: Vec<_> = from
        .iter()
        .copied()
        .enumerate()
        .filter(|(n, _)| byte & (1 << n) != 0)
        .map(|(_, word)| word)
        .collect();
    if chosen.is_empty() && needed { vec![from[1]] } else { chosen }
}

fn bits(byte: u8) -> [bool; 8] {
    std::array::from_fn(|n| byte & (1 << n) != 0)
}

fn known<T>(read: bool, value: impl FnOnce() -> T) -> Known<T> {
    if read { Known::Known(value()) } else { Known::Unreadable }
}
