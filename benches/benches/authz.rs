//! Token look-up and the whole decision, for 10 to 10,000 tokens.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop, and criterion writes its functions"
)]

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;

use authz::{
    GuestFacts, GuestKind, Known, Lookup, Overrides, Permit, Protection, Tier, TokenTable, ToolRule, Vmid,
    WaiverSet, admit, decide, mint_token, sha256_entry,
};
use benches::{compare, percentiles, time};
use criterion::{BenchmarkId, Criterion, criterion_group};
use jiff::Timestamp;

const TOKENS: [u32; 4] = [10, 100, 1_000, 10_000];
const RULE: ToolRule = ToolRule {
    name: "proxmox_start_vm",
    tier: Tier::Low,
    interrupts: false,
    writes_guest: false,
    wildcard: false,
};

/// A table of `count` tokens with three selectors each, and the bearer of the one in the middle.
fn table(count: u32) -> (TokenTable, String) {
    let mut text = String::from("{\"version\":1,\"tokens\":{");
    let mut middle = String::new();
    for n in 0..count {
        let mut entropy = [0x21; 32];
        entropy[..4].copy_from_slice(&n.to_be_bytes());
        let id_entropy: [u8; 10] = std::array::from_fn(|k| (n >> (5 * k.min(6))) as u8 & 31);
        let token = mint_token(entropy, id_entropy);
        let comma = if n == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}"agent-{n}":{{"hash":"{}","id":"{}","tools":["proxmox_start_vm"],"devices":["alpha"],"grant":{{"guests":["vmid:100-199","tag:disposable","pool:dev"],"actions":["read","low"]}}}}"#,
            sha256_entry(&token.text), token.id,
        )
        .unwrap();
        if n == count / 2 {
            middle = token.text.to_string();
        }
    }
    text.push_str("}}");
    (TokenTable::parse(text.as_bytes()).unwrap(), middle)
}

struct Policy {
    protection: Protection,
    waivers: WaiverSet,
    guest: Arc<GuestFacts>,
    now: Timestamp,
}

/// A policy with 100 waivers, and a guest that only the last of a token's selectors matches.
fn policy() -> Policy {
    let now: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    let waivers: Vec<String> = (0..100)
        .map(|n| format!(r#"{{"cluster":"alpha","vmid":{},"until":"2026-12-01T00:00:00Z","reason":"bench","ops":["guest_stop"]}}"#, 300 + n))
        .collect();
    let waivers = format!(r#"{{"version":1,"waivers":[{}]}}"#, waivers.join(","));
    Policy {
        protection: Protection::new((200..220).filter_map(Vmid::new), ["protected"]).unwrap(),
        waivers: WaiverSet::parse(waivers.as_bytes(), |_| true, now).unwrap().0,
        guest: Arc::new(GuestFacts {
            cluster: "alpha".into(),
            vmid: Vmid::new(905).unwrap(),
            kind: GuestKind::Lxc,
            name: Some("web".into()),
            tags: Known::Known(vec!["web".into(), "linux".into()]),
            pool: Known::Known(Some("dev".into())),
            protection: Known::Known(false),
        }),
        now,
    }
}

fn lookup(table: &TokenTable, bearer: &str, policy: &Policy) -> Arc<authz::Principal> {
    match table.lookup(bearer, policy.now) {
        Lookup::Principal(principal) => principal,
        other => panic!("{other:?}"),
    }
}

/// Bearer to permit: look-up, stage 1, stage 2.
fn permit(table: &TokenTable, bearer: &str, policy: &Policy) -> Permit {
    let principal = lookup(table, bearer, policy);
    let admitted = admit(&principal, &RULE, Some("alpha"), policy.now).unwrap();
    let overrides = Overrides { waivers: &policy.waivers, lab_mode: false };
    decide(
        admitted,
        &policy.guest,
        "guest_start",
        principal.name(),
        &policy.protection,
        &overrides,
        policy.now,
    )
    .unwrap()
}

fn decisions(c: &mut Criterion) {
    let policy = policy();
    for name in ["lookup", "stages", "lookup_and_stages"] {
        let mut group = c.benchmark_group(format!("authz/{name}"));
        for count in TOKENS {
            let (table, bearer) = table(count);
            let principal = lookup(&table, &bearer, &policy);
            let overrides = Overrides { waivers: &policy.waivers, lab_mode: false };
            group.bench_function(BenchmarkId::from_parameter(count), |b| match name {
                "lookup" => b.iter(|| table.lookup(black_box(&bearer), policy.now)),
                "stages" => b.iter(|| {
                    let admitted = admit(&principal, &RULE, Some("alpha"), policy.now).unwrap();
                    let (guest, protection) = (black_box(&policy.guest), &policy.protection);
                    decide(
                        admitted,
                        guest,
                        "guest_start",
                        principal.name(),
                        protection,
                        &overrides,
                        policy.now,
                    )
                }),
                _ => b.iter(|| permit(&table, black_box(&bearer), &policy)),
            });
        }
    }
}

/// A protected guest that the last of 100 waivers covers, for an operation that protection would refuse.
fn waived(c: &mut Criterion) {
    let policy = policy();
    let stop = ToolRule { name: "proxmox_start_vm", interrupts: true, ..RULE };
    let guest = Arc::new(GuestFacts {
        vmid: Vmid::new(399).unwrap(),
        protection: Known::Known(true),
        ..(*policy.guest).clone()
    });
    let (table, bearer) = table(1_000);
    let principal = lookup(&table, &bearer, &policy);
    let overrides = Overrides { waivers: &policy.waivers, lab_mode: false };
    c.bench_function("authz/stages_waived", |b| {
        b.iter(|| {
            let admitted = admit(&principal, &stop, Some("alpha"), policy.now).unwrap();
            let (guest, protection) = (black_box(&guest), &policy.protection);
            decide(admitted, guest, "guest_stop", principal.name(), protection, &overrides, policy.now)
                .unwrap()
        });
    });
}

/// What a caller without a token can make the server do: at most one SHA-256, and never argon2.
fn forgeries(good: &str) -> [(&'static str, String); 4] {
    let damaged = format!("{}{}", &good[..good.len() - 1], if good.ends_with('0') { '1' } else { '0' });
    // The id of the entry in the middle, another secret, and a checksum that fits.
    let known_id = mint_token([9; 32], std::array::from_fn(|k| (5_000_u32 >> (5 * k.min(6))) as u8 & 31));
    [
        ("malformed", format!("{}!", &good[..good.len() - 1])),
        ("bad_checksum", damaged),
        ("unknown_id", mint_token([9; 32], [31; 10]).text.to_string()),
        ("id_of_a_sha256_entry", known_id.text.to_string()),
    ]
}

fn refusals(c: &mut Criterion) {
    let policy = policy();
    let (table, good) = table(10_000);
    let mut group = c.benchmark_group("authz/refused_lookup");
    for (name, forged) in forgeries(&good) {
        assert!(matches!(table.lookup(&forged, policy.now), Lookup::Refused(_)), "{name}");
        group.bench_function(name, |b| b.iter(|| table.lookup(black_box(&forged), policy.now)));
    }
}

fn loading(c: &mut Criterion) {
    let mut text = String::from("{\"version\":1,\"tokens\":{");
    for n in 0..1_000_u32 {
        let mut entropy = [0; 32];
        entropy[..4].copy_from_slice(&n.to_be_bytes());
        let hash = sha256_entry(&mint_token(entropy, [0; 10]).text);
        let comma = if n == 0 { "" } else { "," };
        write!(text, r#"{comma}"agent-{n}":{{"hash":"{hash}","tools":["*"],"devices":["*"]}}"#).unwrap();
    }
    text.push_str("}}");
    c.bench_function("authz/load_1000_tokens", |b| b.iter(|| TokenTable::parse(black_box(text.as_bytes()))));
}

criterion_group!(groups, decisions, waived, refusals, loading);

/// What the promises are about, call by call in batches, so that one slow moment of the machine does not decide.
fn promises() {
    const BATCH: u32 = 1_000;
    let policy = policy();
    let batch = |mut call: Box<dyn FnMut() + '_>| time(|| (0..BATCH).for_each(|_| call())) / BATCH;
    for count in TOKENS {
        let (table, bearer) = table(count);
        let principal = lookup(&table, &bearer, &policy);
        let overrides = Overrides { waivers: &policy.waivers, lab_mode: false };
        percentiles(&format!("full decision, {count} tokens, 100 waivers"), 500, || {
            batch(Box::new(|| {
                let admitted = admit(&principal, &RULE, Some("alpha"), policy.now).unwrap();
                let guest = black_box(&policy.guest);
                let (name, protection) = (principal.name(), &policy.protection);
                drop(black_box(
                    decide(admitted, guest, "guest_start", name, protection, &overrides, policy.now).unwrap(),
                ));
            }))
        });
        percentiles(&format!("bearer, hit, {count} tokens"), 500, || {
            batch(Box::new(|| drop(black_box(table.lookup(black_box(&bearer), policy.now)))))
        });
        if count == 10_000 {
            for (name, forged) in forgeries(&bearer) {
                percentiles(&format!("forged bearer, {name}, {count} tokens"), 500, || {
                    batch(Box::new(|| drop(black_box(table.lookup(black_box(&forged), policy.now)))))
                });
            }
        }
    }
}

fn main() {
    groups();
    promises();
    let policy = policy();
    let (many, few) = (table(10_000), table(10));
    let batch = |table: &(TokenTable, String)| {
        time(|| (0..1_000).map(|_| permit(&table.0, &table.1, &policy).reasons().len()).sum::<usize>())
            / 1_000
    };
    compare(
        500,
        ("bearer to permit with 10,000 tokens", || batch(&many)),
        ("with 10 tokens", || batch(&few)),
    );
    Criterion::default().configure_from_args().final_summary();
}
