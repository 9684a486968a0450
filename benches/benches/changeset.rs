//! The plan digest, and what durability costs.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop, and criterion writes its functions"
)]

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use benches::{compare, time};
use changeset::store::{Inserted, Limits};
use changeset::{
    Actor, ActorKind, ApprovalKey, ChangeSet, ChangeSetId, Fingerprint, Plan, PlanDraft, Preview,
    SqliteStore, Step, Store, Target,
};
use criterion::{BenchmarkId, Criterion, criterion_group};
use jiff::Timestamp;

const LIMITS: Limits = Limits { pending_per_planner: 1_000_000, pending_total: 1_000_000 };

fn now() -> Timestamp {
    "2026-11-30T12:00:00Z".parse().unwrap()
}

fn plan(n: u64, steps: usize) -> Plan {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&n.to_be_bytes());
    let step = |k: usize| {
        Step::new(
            "snapshot_rollback",
            [("vmid", format!("{}", 100 + k)), ("snapname", "before-upgrade".to_owned())],
            format!("roll guest {} back to the snapshot before-upgrade", 100 + k),
        )
    };
    Plan::new(PlanDraft {
        id: ChangeSetId::from_entropy(id),
        planner: Actor::new("agent", "ada", Some(ActorKind::Agent)),
        target: Target::new("alpha", format!("guest/{n}"), "web (lxc 905 on pve1)"),
        tier_destructive: true,
        target_protected: false,
        steps: (0..steps).map(step).collect(),
        fingerprint: Fingerprint::new([
            ("config", "3f786850e387550fdab836ed7e6dc881de23001b"),
            ("net0", "BC:24:11:00:00:01"),
        ]),
        preview: Preview::new(
            "Destroys guest 905 \"web\" on pve1 and its disks.",
            [("vmid", "905"), ("node", "pve1")],
        ),
        policy_version: "7".into(),
        lab_mode: false,
        idempotency_key: None,
        created: now(),
    })
    .unwrap()
}

fn digests(c: &mut Criterion) {
    let mut group = c.benchmark_group("changeset/digest");
    for steps in [1, 20] {
        let plan = plan(1, steps);
        group.bench_function(BenchmarkId::new("steps", steps), |b| b.iter(|| black_box(&plan).digest()));
    }
}

/// A store on the disk the build is on, and the next number for a set.
struct Bench {
    store: SqliteStore,
    n: u64,
    key: ApprovalKey,
}

impl Bench {
    fn new(directory: &Path) -> Bench {
        let store = SqliteStore::open(directory.join("state.db")).unwrap();
        Bench { store, n: 0, key: ApprovalKey::new([7; 32]) }
    }

    /// Plans: one durable insert.
    fn insert(&mut self) -> (ChangeSet, Duration) {
        self.n += 1;
        let set = ChangeSet::planned(plan(self.n, 1));
        let mut inserted = None;
        let took = time(|| inserted = Some(self.store.insert(&set, &LIMITS).unwrap()));
        assert_eq!(inserted, Some(Inserted::Stored));
        (set, took)
    }

    /// Approves what was planned: signature and one durable update.
    fn approve(&mut self) -> Duration {
        let (set, _) = self.insert();
        let approver = Actor::new("boss", "grace", Some(ActorKind::Human));
        time(|| {
            let approved = set.approve(&approver, &set.digest(), &self.key, now()).unwrap();
            assert!(self.store.replace_if(&approved, set.version()).unwrap());
        })
    }
}

/// The least a durable record costs: 300 bytes at the end of a file, and its data on the disk.
fn append(file: &mut File) -> Duration {
    time(|| {
        file.write_all(&[b'x'; 300]).unwrap();
        file.sync_data().unwrap();
    })
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn journal(directory: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(directory.join("journal")).unwrap()
}

fn durability(c: &mut Criterion) {
    let directory = directory();
    let mut bench = Bench::new(directory.path());
    let mut file = journal(directory.path());
    let mut group = c.benchmark_group("changeset/durable");
    group.sample_size(20);
    group.bench_function("plan", |b| b.iter_custom(|rounds| (0..rounds).map(|_| bench.insert().1).sum()));
    group.bench_function("approve", |b| b.iter_custom(|rounds| (0..rounds).map(|_| bench.approve()).sum()));
    group.bench_function("append_300_bytes", |b| {
        b.iter_custom(|rounds| (0..rounds).map(|_| append(&mut file)).sum());
    });
}

criterion_group!(groups, digests, durability);

fn main() {
    groups();
    let directory = directory();
    let mut bench = Bench::new(directory.path());
    let mut file = journal(directory.path());
    compare(400, ("durable plan", || bench.insert().1), ("fdatasync append", || append(&mut file)));
    compare(400, ("durable approval", || bench.approve()), ("fdatasync append", || append(&mut file)));
    Criterion::default().configure_from_args().final_summary();
}
