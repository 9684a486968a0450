//! Builders the integration tests share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses some of them")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use authz::{
    GuestFacts, GuestKind, Known, Lookup, Principal, Tier, TokenTable, ToolRule, Vmid, mint_token,
    sha256_entry,
};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The instant the tests live in.
pub const NOW: &str = "2026-06-01T12:00:00Z";

pub fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub fn now() -> Timestamp {
    at(NOW)
}

pub fn vmid(number: u32) -> Vmid {
    Vmid::new(number).unwrap()
}

/// A readable, unprotected guest on `pve3` without tags or a pool.
pub fn guest(number: u32) -> GuestFacts {
    GuestFacts {
        cluster: "pve3".into(),
        vmid: vmid(number),
        kind: GuestKind::Qemu,
        name: Some("web".into()),
        tags: Known::Known(vec![]),
        pool: Known::Known(None),
        protection: Known::Known(false),
    }
}

pub fn tagged(number: u32, tags: &[&str]) -> GuestFacts {
    GuestFacts { tags: Known::Known(tags.iter().map(|tag| (*tag).to_owned()).collect()), ..guest(number) }
}

pub const fn rule(name: &'static str, tier: Tier) -> ToolRule {
    ToolRule { name, tier, interrupts: false, writes_guest: false, wildcard: matches!(tier, Tier::Read) }
}

/// What an embedding server's catalog would hold: every tier, both hazards, and scopes that are no tools.
pub fn registry() -> Vec<ToolRule> {
    let interrupts = |name| ToolRule { interrupts: true, ..rule(name, Tier::Low) };
    let writes = |name| ToolRule { writes_guest: true, ..rule(name, Tier::Low) };
    vec![
        rule("get_vms", Tier::Read),
        rule("get_guest_status", Tier::Read),
        // A read in effect that no wildcard may reach.
        rule("read_guest_file", Tier::Low),
        rule("start_vm", Tier::Low),
        rule("create_snapshot", Tier::Low),
        rule("create_backup", Tier::Low),
        rule("clone_vm", Tier::Low),
        rule("create_vm", Tier::Low),
        rule("download_iso", Tier::Low),
        rule("plan_proxmox_destroy", Tier::Low),
        interrupts("stop_vm"),
        interrupts("shutdown_vm"),
        interrupts("reset_vm"),
        interrupts("stop_task"),
        ToolRule { interrupts: true, ..writes("update_container_resources") },
        writes("resize_disk"),
        writes("write_guest_file"),
        writes("proxmox_upload_link"),
        rule("apply_proxmox_change_set", Tier::Destructive),
        rule("delete_vm", Tier::Destructive),
        rule("delete_backup", Tier::Destructive),
        rule("rollback_snapshot", Tier::Destructive),
    ]
}

pub fn tool(name: &str) -> ToolRule {
    registry().into_iter().find(|rule| rule.name == name).unwrap()
}

/// A token's text, unique per `seed`.
pub fn bearer(seed: u8) -> String {
    mint_token([seed; 32], [seed; 10]).text.to_string()
}

/// A token file with one sha256 entry per `(name, fields)`; `tools` and `devices` default to `["*"]`.
pub fn token_file(entries: &[(&str, Value)]) -> String {
    let tokens: serde_json::Map<String, Value> = entries
        .iter()
        .enumerate()
        .map(|(index, (name, fields))| {
            let mut entry = json!({
                "hash": sha256_entry(&bearer(u8::try_from(index).unwrap())), "tools": ["*"], "devices": ["*"],
            });
            for (key, value) in fields.as_object().unwrap() {
                entry[key] = value.clone();
            }
            ((*name).to_owned(), entry)
        })
        .collect();
    json!({"version": 1, "tokens": tokens}).to_string()
}

/// The principal of a token with these fields, fetched through its bearer.
pub fn principal(name: &str, fields: Value) -> Arc<Principal> {
    let table = TokenTable::parse(token_file(&[(name, fields)]).as_bytes()).unwrap();
    match table.lookup(&bearer(0), Timestamp::MIN) {
        Lookup::Principal(principal) => principal,
        other => panic!("{other:?}"),
    }
}

/// A grant as the file writes it.
pub fn grant(guests: &[&str], actions: &[&str]) -> Value {
    json!({"guests": guests, "actions": actions})
}
