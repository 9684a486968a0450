//! A whole decision, and finding a token's principal, as the number of tokens grows.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench stops at the first surprise and documents itself"
)]

use std::fmt::Write;
use std::hint::black_box;

use authz::{
    GuestFacts, GuestKind, Known, Lookup, Overrides, Protection, Tier, TokenTable, ToolRule, Vmid, WaiverSet,
    admit, decide, mint_token, sha256_entry,
};
use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;

const STOP: ToolRule =
    ToolRule { name: "stop_vm", tier: Tier::Low, interrupts: true, writes_guest: false, wildcard: false };

/// A table of `count` sha256 tokens and the text of the last one.
fn table(count: u32) -> (TokenTable, String) {
    let mut file = String::from("{\"version\": 1, \"tokens\": {");
    let mut last = String::new();
    for number in 0..count {
        let (mut secret, mut id) = ([0; 32], [0; 10]);
        secret[..4].copy_from_slice(&number.to_le_bytes());
        for (at, slot) in id.iter_mut().enumerate() {
            *slot = u8::try_from(number >> (at * 3) & 7).unwrap_or(0);
        }
        let minted = mint_token(secret, id);
        let comma = if number == 0 { "" } else { "," };
        write!(
            file,
            "{comma}\"t{number}\": {{\"hash\": \"{}\", \"id\": \"{}\", \"tools\": [\"stop_vm\"], \"devices\": [\"pve\"], \"grant\":              {{\"guests\": [\"tag:web\", \"pool:dev\", \"vmid:600-699\"], \"actions\": [\"read\", \"low\"]}}}}",
            sha256_entry(&minted.text),
            minted.id
        )
        .unwrap();
        last = minted.text.to_string();
    }
    file.push_str("}}");
    (TokenTable::parse(file.as_bytes()).unwrap(), last)
}

/// 100 waivers, the matching one last.
fn waivers(now: Timestamp) -> WaiverSet {
    let waiver = |vmid: u32| {
        format!(
            "{{\"cluster\": \"pve\", \"vmid\": {vmid}, \"until\": \"2027-01-01T00:00:00Z\", \"reason\": \"bench\", \"ticket\": \"B-1\",              \"ops\": [\"stop_vm\"]}}"
        )
    };
    let list: Vec<String> = (551..=650).map(waiver).collect();
    let file = format!("{{\"version\": 1, \"waivers\": [{}]}}", list.join(","));
    WaiverSet::parse(file.as_bytes(), |_| true, now).unwrap().0
}

fn decisions(c: &mut Criterion) {
    let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let waivers = waivers(now);
    let facts = |tags: &[&str]| GuestFacts {
        cluster: "pve".to_owned(),
        vmid: Vmid::new(650).unwrap(),
        kind: GuestKind::Qemu,
        name: Some("web-1".to_owned()),
        tags: Known::Known(tags.iter().map(|tag| (*tag).to_owned()).collect()),
        pool: Known::Known(None),
        protection: Known::Known(false),
    };
    let (plain, protected) = (facts(&["blue"]), facts(&["blue", "protected"]));
    let protection = Protection::new((900..1000).filter_map(Vmid::new), ["protected"]).unwrap();
    let overrides = Overrides { waivers: &waivers, lab_mode: false };
    let mut group = c.benchmark_group("authz");
    for count in [10, 1_000, 10_000] {
        let (table, token) = table(count);
        group.bench_function(format!("bearer to principal, {count} tokens"), |b| {
            b.iter(|| table.lookup(black_box(&token), now))
        });
        let Lookup::Principal(principal) = table.lookup(&token, now) else { panic!("the token is unknown") };
        for (name, facts) in [("ordinary guest", &plain), ("waived protected guest", &protected)] {
            group.bench_function(format!("decide, {name}, {count} tokens, 100 waivers"), |b| {
                b.iter(|| {
                    let admitted = admit(&principal, &STOP, Some("pve"), now).unwrap();
                    decide(admitted, black_box(facts), "stop_vm", "t", &protection, &overrides, now).unwrap()
                });
            });
        }
        let wrong = format!("{}x", &token[..token.len() - 1]);
        group.bench_function(format!("a forged token, {count} tokens"), |b| {
            b.iter(|| table.lookup(black_box(&wrong), now))
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
