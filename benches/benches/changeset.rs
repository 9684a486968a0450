//! A plan's digest, and what an approval's durable commit costs beside the cheapest durable write there is.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench stops at the first surprise and documents itself"
)]

use std::cell::RefCell;
use std::fs::File;
use std::hint::black_box;
use std::io::Write;

use changeset::store::sqlite::SqliteStore;
use changeset::store::{Limits, Store};
use changeset::{
    Actor, ActorKind, ApprovalKey, ChangeSet, ChangeSetId, Fingerprint, Plan, PlanDraft, Preview, Step,
    Target,
};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use jiff::Timestamp;

fn plan(number: u64, steps: usize) -> Plan {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_le_bytes());
    let created: Timestamp = "2026-11-30T12:00:00Z".parse().unwrap();
    Plan::new(PlanDraft {
        id: ChangeSetId::from_entropy(id),
        planner: Actor::new(format!("bot-{number}"), "robin", Some(ActorKind::Agent)),
        target: Target::new("pve", format!("guest/{number}"), "web"),
        tier_destructive: true,
        target_protected: false,
        steps: (0..steps)
            .map(|n| Step::new("destroy_guest", [("vmid", format!("{n}"))], "destroy"))
            .collect(),
        fingerprint: Fingerprint::new([("config_digest", "0123456789abcdef"), ("name", "web")]),
        preview: Preview::new("Operation  destroy LXC container 201\n".repeat(12), [("vmid", "201")]),
        policy_version: "1".to_owned(),
        lab_mode: false,
        idempotency_key: None,
        created,
    })
    .unwrap()
}

fn digest(c: &mut Criterion) {
    for steps in [1, 20] {
        let plan = plan(1, steps);
        c.bench_function(&format!("changeset/digest, {steps} steps"), |b| {
            b.iter(|| black_box(&plan).digest())
        });
    }
}

fn commit(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let key = ApprovalKey::new([7; 32]);
    let human = Actor::new("alice", "alice", Some(ActorKind::Human));
    let store = RefCell::new(SqliteStore::open(folder.path().join("state.db")).unwrap());
    let roomy = Limits { pending_per_planner: usize::MAX, pending_total: usize::MAX };
    let mut number = 0;
    let mut group = c.benchmark_group("changeset/durable");
    group.bench_function("approval in the store", |b| {
        b.iter_batched(
            || {
                number += 1;
                let set = ChangeSet::create(plan(number, 1), &key);
                store.borrow_mut().insert(&set, &roomy).unwrap();
                let now = set.plan().created();
                (set.approve(&human, &set.digest(), &key, now).unwrap(), set.version())
            },
            |(approved, version)| assert!(store.borrow_mut().replace_if(&approved, version).unwrap()),
            BatchSize::PerIteration,
        );
    });
    let mut log = File::create(folder.path().join("log")).unwrap();
    let line = [b'x'; 300];
    group.bench_function("append of 300 bytes and fdatasync", |b| {
        b.iter(|| {
            log.write_all(&line).unwrap();
            log.sync_data().unwrap();
        });
    });
    group.finish();
}

criterion_group!(benches, digest, commit);
criterion_main!(benches);
