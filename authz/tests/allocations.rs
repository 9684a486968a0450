//! A decision that allows asks for no memory, and neither does looking a bearer up.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use authz::{
    ApprovalFacts, GuestFacts, Known, Lookup, Overrides, Permit, Principal, Protection, Tier, TokenTable,
    ToolRule, WaiverSet, admit, decide, decide_approval, decide_new_guest, mint_token, permit_cluster_write,
    permit_unaddressed,
};
use common::{bearer, grant, guest, now, tool, vmid};
use serde_json::{Value, json};

/// How often `run` asks for memory. The result is kept until after the count.
fn allocations<T>(run: impl FnOnce() -> T) -> (u64, T) {
    let mut result = None;
    let counted = allocation_counter::measure(|| result = Some(run()));
    (counted.count_total, result.unwrap())
}

struct World {
    table: TokenTable,
    bearer: String,
    protection: Protection,
    waivers: WaiverSet,
}

/// 1,000 tokens, 100 waivers, some protection.
fn world() -> World {
    let mut tokens = serde_json::Map::new();
    for n in 0..1_000_u32 {
        let mut entropy = [7; 32];
        entropy[..4].copy_from_slice(&n.to_be_bytes());
        let hash = authz::sha256_entry(&mint_token(entropy, [0; 10]).text);
        tokens.insert(format!("t{n}"), json!({"hash": hash, "tools": ["*"], "devices": ["*"]}));
    }
    tokens.insert(
        "ops".into(),
        json!({"hash": authz::sha256_entry(&bearer(0)), "actor_type": "human", "devices": ["*"],
               "tools": ["*", "start_vm", "stop_vm", "create_vm", "download_iso"],
               "grant": grant(&["vmid:100-199", "tag:disposable", "pool:dev", "vmid:600"], &["read", "low"])}),
    );
    let waivers: Vec<Value> = (500..600)
        .map(|n| {
            json!({"cluster": "pve3", "vmid": n + 1, "until": "2026-06-02T00:00:00Z", "reason": "r",
                        "ops": ["stop_vm"]})
        })
        .collect();
    let waivers = json!({"version": 1, "waivers": waivers}).to_string();
    World {
        table: TokenTable::parse(json!({"version": 1, "tokens": tokens}).to_string().as_bytes()).unwrap(),
        bearer: bearer(0),
        protection: Protection::new((200..220).map(vmid), ["protected", "prod"]).unwrap(),
        waivers: WaiverSet::parse(waivers.as_bytes(), |_| true, now()).unwrap().0,
    }
}

fn principal(world: &World) -> Arc<Principal> {
    match world.table.lookup(&world.bearer, now()) {
        Lookup::Principal(principal) => principal,
        other => panic!("{other:?}"),
    }
}

fn both(world: &World, rule: &ToolRule, facts: &Arc<GuestFacts>, lab_mode: bool) -> Permit {
    let principal = principal(world);
    let overrides = Overrides { waivers: &world.waivers, lab_mode };
    let admitted = admit(&principal, rule, Some("pve3"), now()).unwrap();
    decide(admitted, facts, rule.name, "ops", &world.protection, &overrides, now()).unwrap()
}

#[test]
fn a_guest_is_allowed_without_asking_for_memory() {
    let world = world();
    let tags = |tags: &[&str]| Known::Known(tags.iter().map(|tag| (*tag).to_owned()).collect());
    for (facts, name, lab_mode, lifted) in [
        // In scope by number, by the last selector, by tag, by pool.
        (guest(150), "stop_vm", false, false),
        (guest(600), "start_vm", false, false),
        (GuestFacts { tags: tags(&["web", "disposable"]), ..guest(700) }, "get_guest_status", false, false),
        (GuestFacts { pool: Known::Known(Some("dev".into())), ..guest(700) }, "stop_vm", false, false),
        // Protected: not against this tool; lifted by a waiver; lifted by lab mode.
        (GuestFacts { tags: tags(&["PROD", "web"]), ..guest(150) }, "start_vm", false, false),
        (GuestFacts { tags: tags(&["Protected"]), ..guest(600) }, "stop_vm", false, true),
        (GuestFacts { protection: Known::Unreadable, ..guest(600) }, "stop_vm", false, true),
        (GuestFacts { tags: Known::Unreadable, ..guest(150) }, "stop_vm", true, true),
    ] {
        let (rule, facts) = (tool(name), Arc::new(facts));
        let (count, permit) = allocations(|| both(&world, &rule, &facts, lab_mode));
        assert_eq!(permit.lift().is_some(), lifted, "{name} on {facts:?}");
        assert_eq!(count, 0, "{name} on {facts:?}");
        // Words are only made when asked for.
        assert!(allocations(|| permit.reasons()).0 > 0);
    }
}

#[test]
fn nor_are_new_guests_reads_writes_and_approvals() {
    let world = world();
    let (create, read, write) = (tool("create_vm"), tool("get_vms"), tool("download_iso"));
    let (count, permit) = allocations(|| {
        let admitted = admit(&principal(&world), &create, Some("pve3"), now()).unwrap();
        decide_new_guest(admitted, "pve3", vmid(150), &world.protection, now()).unwrap()
    });
    assert_eq!((count, permit.new_guest()), (0, Some(vmid(150))));
    let (count, _permit) = allocations(|| {
        permit_unaddressed(admit(&principal(&world), &read, Some("pve3"), now()).unwrap()).unwrap()
    });
    assert_eq!(count, 0);
    let (count, _permit) = allocations(|| {
        permit_cluster_write(admit(&principal(&world), &write, Some("pve3"), now()).unwrap(), now()).unwrap()
    });
    assert_eq!(count, 0);
    let facts = guest(150);
    let plan = ApprovalFacts { planner_name: "x", planner_person: "Ünal", tier: Tier::Low, facts: &facts };
    let (count, _permit) = allocations(|| decide_approval(&principal(&world), &plan, now()).unwrap());
    assert_eq!(count, 0);
}

#[test]
fn tk_03_a_forged_token_asks_for_no_memory_either() {
    let world = world();
    let (forged, damaged) = (mint_token([9; 32], [9; 10]).text, format!("{}0", &world.bearer[..66]));
    for text in [forged.as_str(), &damaged, "", "pxw_", &"a".repeat(43)] {
        let (count, found) = allocations(|| world.table.lookup(text, now()));
        assert!(matches!(found, Lookup::Refused(_)), "{text}");
        assert_eq!(count, 0, "{text}");
    }
}

/// The counter counts.
#[test]
fn borrowed_facts_are_copied() {
    let (world, rule, facts) = (world(), tool("start_vm"), guest(150));
    let overrides = Overrides { waivers: &world.waivers, lab_mode: false };
    let (count, _permit) = allocations(|| {
        let admitted = admit(&principal(&world), &rule, Some("pve3"), now()).unwrap();
        decide(admitted, &facts, rule.name, "ops", &world.protection, &overrides, now()).unwrap()
    });
    assert!(count > 0);
}
