//! Every combination of a small world, held against one formula.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use authz::{
    DenialKind, GuestFacts, Known, Overrides, Principal, Protection, Tier, ToolRule, WaiverSet, admit, decide,
};
use common::{grant, guest, now, principal, tagged};
use serde_json::{Value, json};

const TOOLS: [(&str, &[&str]); 3] = [("named", &["tool"]), ("any", &["*"]), ("other", &["too", "tools"])];
const DEVICES: [&[&str]; 3] = [&["*"], &["pve3"], &["pve4", "PVE3"]];
const GUESTS: [Option<&[&str]>; 6] = [
    None,
    Some(&[]),
    Some(&["*"]),
    Some(&["vmid:601-699", "vmid:600"]),
    Some(&["tag:web", "pool:x"]),
    Some(&["vmid:599", "tag:WEB", "pool:dev/a"]),
];
/// What the grant holds, seen from the tool's tier.
const ACTIONS: [&str; 4] = ["none", "this", "others", "all"];

fn actions(which: &str, tier: Tier) -> Vec<&'static str> {
    let wanted = |other: &Tier| match which {
        "none" => false,
        "this" => *other == tier,
        "others" => *other != tier,
        _ => true,
    };
    Tier::ALL.into_iter().filter(wanted).map(Tier::as_str).collect()
}

fn guests() -> Vec<(GuestFacts, bool, bool)> {
    let mut all = Vec::new();
    for (tags, readable, tag_protects) in
        [(&["web"][..], true, false), (&["web", "Protected"], true, true), (&["web", "a b"], false, true)]
    {
        for (flag, flag_protects) in
            [(Known::Known(false), false), (Known::Known(true), true), (Known::Unreadable, true)]
        {
            let facts =
                GuestFacts { protection: flag, pool: Known::Known(Some("dev".into())), ..tagged(600, tags) };
            all.push((facts, readable, tag_protects || flag_protects));
        }
    }
    all.push((GuestFacts { tags: Known::Unreadable, ..guest(600) }, false, true));
    all
}

fn waivers() -> Vec<(WaiverSet, bool)> {
    let waiver = |fields: Value| {
        let mut entry = json!({"cluster": "pve3", "vmid": 600, "until": "2026-06-01T12:00:01Z", "reason": "r",
                               "ops": ["op"], "principal": "planner"});
        for (key, value) in fields.as_object().unwrap() {
            entry[key] = value.clone();
        }
        let text = json!({"version": 1, "waivers": [entry]}).to_string();
        WaiverSet::parse(text.as_bytes(), |_| true, now()).unwrap().0
    };
    vec![
        (WaiverSet::empty(), false),
        (waiver(json!({})), true),
        (waiver(json!({"principal": null})), true),
        (waiver(json!({"ops": ["tool"]})), false),
        (waiver(json!({"until": "2026-06-01T12:00:00Z"})), false),
        (waiver(json!({"principal": "caller"})), false),
        (waiver(json!({"vmid": 601})), false),
    ]
}

fn rules() -> Vec<ToolRule> {
    let mut rules = Vec::new();
    for tier in Tier::ALL {
        for bits in 0..8 {
            let [interrupts, writes_guest, wildcard] = [1, 2, 4].map(|bit| bits & bit != 0);
            rules.push(ToolRule { name: "tool", tier, interrupts, writes_guest, wildcard });
        }
    }
    rules
}

struct Token {
    principal: Arc<Principal>,
    /// Whether it reaches the tool by name, by wildcard.
    named: bool,
    any: bool,
    cluster: bool,
    /// Whether a selector matches, when tags are readable and when not.
    matches: [bool; 2],
    actions: Vec<&'static str>,
    valid: bool,
}

fn tokens(tier: Tier) -> Vec<Token> {
    let mut all = Vec::new();
    for (reach, tools) in TOOLS {
        for (device, devices) in DEVICES.iter().enumerate() {
            for (selectors, guests) in GUESTS.iter().enumerate() {
                for which in ACTIONS {
                    for valid in [true, false] {
                        let actions = actions(which, tier);
                        let mut entry = json!({"tools": tools, "devices": devices});
                        if let Some(guests) = guests {
                            entry["grant"] = grant(guests, &actions);
                        }
                        if !valid {
                            entry["expires"] = json!(now().to_string());
                        }
                        all.push(Token {
                            principal: principal("caller", entry),
                            named: reach == "named",
                            any: reach == "any",
                            cluster: device < 2,
                            matches: [matches!(selectors, 2..=4), matches!(selectors, 2 | 3)],
                            actions: if guests.is_some() { actions } else { Vec::new() },
                            valid,
                        });
                    }
                }
            }
        }
    }
    all
}

/// 3 tools, 3 clusters, 6 grants, 4 sets of actions, validity, 24 rules, 10 guests, 7 waivers, lab mode: 1.4 million.
#[test]
fn gr_16_every_combination_of_a_small_world_comes_out_as_the_formula_says() {
    let (guests, waivers, protection) = (guests(), waivers(), Protection::default());
    let (mut decided, mut allowed) = (0_u32, 0_u32);
    for rule in rules() {
        let harmless = rule.tier == Tier::Read && !rule.interrupts && !rule.writes_guest;
        let hazard = rule.tier == Tier::Destructive || rule.interrupts || rule.writes_guest;
        for token in tokens(rule.tier) {
            let first = if !token.valid {
                Some(DenialKind::TokenExpired)
            } else if !(token.named || (token.any && rule.wildcard && harmless)) {
                Some(DenialKind::ToolOutOfScope)
            } else if !token.cluster {
                Some(DenialKind::ClusterOutOfScope)
            } else {
                None
            };
            let admitted = admit(&token.principal, &rule, Some("pve3"), now());
            assert_eq!(admitted.as_ref().err().map(authz::Denial::kind), first);
            if first.is_some() {
                // Nothing that follows is ever looked at.
                let skipped = guests.len() * waivers.len() * 2;
                decided += u32::try_from(skipped).unwrap();
                continue;
            }
            for (facts, readable, protected) in &guests {
                // `pool:x` never matches, `tag:web` needs readable tags.
                let in_scope = !token.actions.is_empty() && token.matches[usize::from(!readable)];
                for (set, covers) in &waivers {
                    for lab_mode in [false, true] {
                        let expected = if !in_scope {
                            Err(DenialKind::GuestOutOfScope)
                        } else if !token.actions.contains(&rule.tier.as_str()) {
                            Err(DenialKind::TierNotGranted)
                        } else if hazard && *protected && !covers && !lab_mode {
                            Err(DenialKind::Protected)
                        } else {
                            Ok(hazard && *protected)
                        };
                        let overrides = Overrides { waivers: set, lab_mode };
                        let admitted = admit(&token.principal, &rule, Some("pve3"), now()).unwrap();
                        let found = decide(admitted, facts, "op", "planner", &protection, &overrides, now());
                        let found =
                            found.map(|permit| permit.lift().is_some()).map_err(|denial| denial.kind());
                        assert_eq!(found, expected, "{rule:?} {facts:?} {:?}", token.principal);
                        decided += 1;
                        allowed += u32::from(found.is_ok());
                    }
                }
            }
        }
    }
    assert_eq!(decided, 24 * 3 * 3 * 6 * 4 * 2 * 10 * 7 * 2);
    assert!(allowed > 10_000, "{allowed}");
}
