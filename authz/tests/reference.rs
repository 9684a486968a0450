//! The decision held against a second, naive evaluator that shares nothing with the crate: it works on
//! the words of the files and lists objections instead of walking stages.
//!
//! 20 000 random cases by default, a quarter of that for the properties that decide each case several
//! times; `AUTHZ_REFERENCE_CASES` sets another number.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use authz::{
    ApprovalFacts, Asked, Check, CheckResult, Denial, DenialKind, GuestFacts, GuestKind, Known, Lift,
    Overrides, Permit, Principal, Protection, Question, ToolRule, Vmid, WaiverSet, admit, decide,
    decide_approval, decide_new_guest,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

/// Everything one decision depends on, as plain words. Times are seconds from now.
#[derive(Debug, Clone)]
struct World {
    tools: Vec<&'static str>,
    devices: Vec<&'static str>,
    grant: Option<(Vec<&'static str>, Vec<&'static str>)>,
    expires: Option<i64>,
    person: &'static str,
    actor: Option<&'static str>,
    tier: &'static str,
    interrupts: bool,
    writes: bool,
    wildcard: bool,
    cluster: Option<&'static str>,
    guest: Guest,
    protected_vmids: Vec<u32>,
    protected_tags: Vec<&'static str>,
    waivers: Vec<Exception>,
    lab: bool,
    op: &'static str,
    planner: &'static str,
}

#[derive(Debug, Clone)]
struct Guest {
    cluster: &'static str,
    vmid: u32,
    tags: Option<Vec<&'static str>>,
    pool: Option<Option<&'static str>>,
    flag: Option<bool>,
}

#[derive(Debug, Clone)]
struct Exception {
    cluster: &'static str,
    vmid: u32,
    until: i64,
    ops: Vec<&'static str>,
    principal: Option<&'static str>,
}

const TIERS: [&str; 3] = ["read", "low", "destructive"];
const CLUSTERS: [&str; 3] = ["c1", "C1", "c2"];
const OPS: [&str; 3] = ["tool", "destroy", "other"];
const TOKENS: [&str; 3] = ["me", "Me", "you"];

// ---- the naive evaluator -------------------------------------------------------------------------------

/// Who objects, most fundamental objection first.
fn objections(w: &World) -> Vec<DenialKind> {
    let mut out = Vec::new();
    if w.expires.is_some_and(|seconds| seconds <= 0) {
        out.push(DenialKind::TokenExpired);
    }
    let harmless_read = w.wildcard && w.tier == "read" && !w.interrupts && !w.writes;
    if !(w.tools.contains(&"tool") || w.tools.contains(&"*") && harmless_read) {
        out.push(DenialKind::ToolOutOfScope);
    }
    let in_devices = |name: &str| w.devices.iter().any(|device| *device == "*" || *device == name);
    if w.cluster.is_some_and(|name| !in_devices(name)) {
        out.push(DenialKind::ClusterOutOfScope);
    }
    let (guests, actions) = w.grant.clone().unwrap_or_default();
    let right_cluster = in_devices(w.guest.cluster) && w.cluster.is_none_or(|name| name == w.guest.cluster);
    if actions.is_empty() || !right_cluster || !guests.iter().any(|word| selects(word, &w.guest)) {
        out.push(DenialKind::GuestOutOfScope);
    }
    if !actions.contains(&w.tier) {
        out.push(DenialKind::TierNotGranted);
    }
    let hazard = w.tier == "destructive" || w.interrupts || w.writes;
    if hazard && protected(w) && lifted_by(w).is_none() {
        out.push(DenialKind::Protected);
    }
    out
}

/// Tags as words PVE could have stored, or nothing at all.
fn readable(guest: &Guest) -> Option<Vec<&'static str>> {
    let tags = guest.tags.clone()?;
    let fine = |tag: &str| !tag.contains([';', ',', ' ']);
    tags.iter().all(|tag| fine(tag)).then_some(tags)
}

fn selects(word: &str, guest: &Guest) -> bool {
    if word == "*" {
        return true;
    }
    let (kind, rest) = word.split_at(word.find(':').unwrap() + 1);
    match kind {
        "vmid:" => {
            let ends: Vec<u32> = rest.split('-').map(|number| number.parse().unwrap()).collect();
            (*ends.first().unwrap()..=*ends.last().unwrap()).contains(&guest.vmid)
        }
        "tag:" => readable(guest).unwrap_or_default().contains(&rest),
        "pool:" => guest.pool == Some(Some(rest)),
        other => panic!("{other}"),
    }
}

fn protected(w: &World) -> bool {
    w.protected_vmids.contains(&w.guest.vmid)
        || w.guest.flag != Some(false)
        || readable(&w.guest).is_none_or(|tags| {
            tags.iter().any(|tag| w.protected_tags.iter().any(|bad| bad.to_lowercase() == tag.to_lowercase()))
        })
}

fn lifted_by(w: &World) -> Option<&'static str> {
    let counts = |e: &Exception| {
        (e.cluster, e.vmid) == (w.guest.cluster, w.guest.vmid)
            && e.until > 0
            && e.ops.contains(&w.op)
            && e.principal.unwrap_or(w.planner) == w.planner
    };
    if w.waivers.iter().any(counts) { Some("waiver") } else { w.lab.then_some("lab") }
}

fn expected(w: &World) -> Result<Option<&'static str>, DenialKind> {
    let hazard = w.tier == "destructive" || w.interrupts || w.writes;
    match objections(w).first() {
        Some(kind) => Err(*kind),
        None => Ok(if hazard && protected(w) { lifted_by(w) } else { None }),
    }
}

/// Who objects to an approval. Neither waivers nor lab mode are looked at.
fn approval_objections(w: &World) -> Vec<DenialKind> {
    let mut out = Vec::new();
    if w.expires.is_some_and(|seconds| seconds <= 0) {
        out.push(DenialKind::TokenExpired);
    }
    let in_devices = w.devices.iter().any(|device| *device == "*" || *device == w.guest.cluster);
    let (guests, actions) = w.grant.clone().unwrap_or_default();
    if actions.is_empty() || !in_devices || !guests.iter().any(|word| selects(word, &w.guest)) {
        out.push(DenialKind::GuestOutOfScope);
    }
    if !actions.contains(&w.tier) {
        out.push(DenialKind::TierNotGranted);
    }
    if w.actor != Some("human") {
        out.push(DenialKind::ApproverNotHuman);
    }
    let planner = w.planner.to_lowercase();
    if planner == w.person.to_lowercase() || planner == "me" {
        out.push(DenialKind::ApproverIsPlanner);
    }
    out
}

// ---- the same world through the crate ------------------------------------------------------------------

fn after(seconds: i64) -> Timestamp {
    common::now() + SignedDuration::from_secs(seconds)
}

fn the_principal(w: &World) -> Arc<Principal> {
    let mut entry =
        json!({"tools": w.tools, "devices": w.devices, "person": w.person, "actor_type": w.actor});
    if let Some((guests, actions)) = &w.grant {
        entry["grant"] = json!({"guests": guests, "actions": actions});
    }
    if let Some(seconds) = w.expires {
        entry["expires"] = json!(after(seconds).to_string());
    }
    common::principal("me", entry)
}

fn the_rule(w: &World) -> ToolRule {
    ToolRule {
        name: "tool",
        tier: w.tier.parse().unwrap(),
        interrupts: w.interrupts,
        writes_guest: w.writes,
        wildcard: w.wildcard,
    }
}

fn the_facts(guest: &Guest) -> GuestFacts {
    fn known<T>(fact: Option<T>) -> Known<T> {
        fact.map_or(Known::Unreadable, Known::Known)
    }
    GuestFacts {
        cluster: guest.cluster.to_owned(),
        vmid: common::vmid(guest.vmid),
        kind: GuestKind::Qemu,
        name: None,
        tags: known(guest.tags.as_ref().map(|tags| tags.iter().map(|tag| (*tag).to_owned()).collect())),
        pool: known(guest.pool.map(|pool| pool.map(str::to_owned))),
        protection: known(guest.flag),
    }
}

fn the_protection(w: &World) -> Protection {
    Protection::new(w.protected_vmids.iter().filter_map(|number| Vmid::new(*number)), &w.protected_tags)
        .unwrap()
}

fn the_waivers(w: &World) -> WaiverSet {
    let waivers: Vec<Value> = w
        .waivers
        .iter()
        .map(|e| {
            json!({"cluster": e.cluster, "vmid": e.vmid, "until": after(e.until).to_string(), "reason": "r",
                   "ops": e.ops, "principal": e.principal})
        })
        .collect();
    let text = json!({"version": 1, "waivers": waivers}).to_string();
    WaiverSet::parse(text.as_bytes(), |_| true, common::now()).unwrap().0
}

fn decided(w: &World) -> Result<Permit, Denial> {
    let waivers = the_waivers(w);
    let overrides = Overrides { waivers: &waivers, lab_mode: w.lab };
    let admitted = admit(&the_principal(w), &the_rule(w), w.cluster, common::now())?;
    decide(admitted, &the_facts(&w.guest), w.op, w.planner, &the_protection(w), &overrides, common::now())
}

fn outcome(w: &World) -> Result<Option<&'static str>, DenialKind> {
    match decided(w) {
        Ok(permit) => Ok(permit.lift().map(|lift| match lift {
            Lift::Waiver(_) => "waiver",
            Lift::LabMode => "lab",
        })),
        Err(denial) => Err(denial.kind()),
    }
}

fn created(w: &World) -> Result<(), DenialKind> {
    let admitted =
        admit(&the_principal(w), &the_rule(w), w.cluster, common::now()).map_err(|denial| denial.kind())?;
    let vmid = common::vmid(w.guest.vmid);
    decide_new_guest(admitted, w.guest.cluster, vmid, &the_protection(w), common::now())
        .map(|_| ())
        .map_err(|denial| denial.kind())
}

fn approved(w: &World) -> Result<(), DenialKind> {
    let facts = the_facts(&w.guest);
    let plan = ApprovalFacts {
        planner_name: w.planner,
        planner_person: w.planner,
        tier: w.tier.parse().unwrap(),
        facts: &facts,
    };
    decide_approval(&the_principal(w), &plan, common::now()).map(|_| ()).map_err(|denial| denial.kind())
}

// ---- random worlds -------------------------------------------------------------------------------------

fn some_of<T: Clone + std::fmt::Debug + 'static>(words: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    subsequence(words, 0..=words.len())
}

fn at_least_one<T: Clone + std::fmt::Debug + 'static>(words: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    subsequence(words, 1..=words.len())
}

fn guests() -> impl Strategy<Value = Guest> {
    const TAGS: &[&str] = &["a", "A", "ab", "b", "Prot", "prot", "a;prot", ""];
    (
        select(&CLUSTERS[..]),
        select(&[100, 600, 601, 699, 700, 999_999_999][..]),
        prop_oneof![4 => subsequence(TAGS, 0..=2).prop_map(Some), 1 => Just(None)],
        prop_oneof![4 => select(&[None, Some("p"), Some("P"), Some("p/q")][..]).prop_map(Some), 1 => Just(None)],
        prop_oneof![4 => Just(Some(false)), 1 => Just(Some(true)), 1 => Just(None)],
    )
        .prop_map(|(cluster, vmid, tags, pool, flag)| Guest { cluster, vmid, tags, pool, flag })
}

fn exceptions() -> impl Strategy<Value = Exception> {
    (
        select(&CLUSTERS[..]),
        select(&[600, 601, 699, 700][..]),
        -1..=1_i64,
        at_least_one(&OPS),
        prop::option::of(select(&TOKENS[..])),
    )
        .prop_map(|(cluster, vmid, until, ops, principal)| Exception {
            cluster,
            vmid,
            until,
            ops,
            principal,
        })
}

fn worlds() -> impl Strategy<Value = World> {
    const GUESTS: &[&str] =
        &["*", "vmid:600", "vmid:600-699", "vmid:100-999999999", "tag:a", "tag:ab", "pool:p", "pool:p/q"];
    let token = (
        at_least_one(&["*", "tool", "tools", "too"]),
        prop_oneof![2 => Just(vec!["*"]), 3 => at_least_one(&["*", "c1", "c2"])],
        prop_oneof![9 => (subsequence(GUESTS, 0..=4), some_of(&TIERS)).prop_map(Some), 1 => Just(None)],
        prop_oneof![6 => Just(None), 1 => (-1..=1_i64).prop_map(Some)],
        select(&["me", "You", "other"][..]),
        select(&[Some("human"), Some("human"), Some("agent"), None][..]),
    );
    let rule = (select(&TIERS[..]), any::<bool>(), any::<bool>(), any::<bool>());
    let rest = (
        prop_oneof![3 => Just(None), 2 => select(&CLUSTERS[..]).prop_map(Some)],
        guests(),
        subsequence(&[600_u32, 699, 700][..], 0..=2),
        subsequence(&["prot", "B"][..], 0..=2),
        prop::collection::vec(exceptions(), 0..6),
        prop::bool::weighted(0.2),
        select(&OPS[..]),
        select(&TOKENS[..]),
    );
    (token, rule, rest).prop_map(|(token, rule, rest)| {
        let (tools, devices, grant, expires, person, actor) = token;
        let (tier, interrupts, writes, wildcard) = rule;
        let (cluster, mut guest, protected_vmids, protected_tags, mut waivers, lab, op, planner) = rest;
        // Mostly the call and the guest agree on the cluster; otherwise little would get past it.
        if let Some(name) = cluster
            && guest.vmid != 601
        {
            guest.cluster = name;
        }
        for waiver in waivers.iter_mut().filter(|waiver| waiver.vmid != 601) {
            (waiver.cluster, waiver.vmid) = (guest.cluster, guest.vmid);
        }
        World {
            tools,
            devices,
            grant,
            expires,
            person,
            actor,
            tier,
            interrupts,
            writes,
            wildcard,
            cluster,
            guest,
            protected_vmids,
            protected_tags,
            waivers,
            lab,
            op,
            planner,
        }
    })
}

/// How many cases a property runs.
fn config(share: u32) -> ProptestConfig {
    let cases: u32 =
        std::env::var("AUTHZ_REFERENCE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    ProptestConfig { cases: cases / share, failure_persistence: None, ..ProptestConfig::default() }
}

/// A deterministic reordering with one repetition: enough to show that neither order nor count matters.
fn shuffle<T: Clone>(words: &[T], seed: usize) -> Vec<T> {
    let mut words = words.to_vec();
    let count = words.len();
    if count > 0 {
        words.rotate_left(seed % count);
        if seed.is_multiple_of(2) {
            words.reverse();
        }
        words.push(words[seed % count].clone());
    }
    words
}

proptest! {
    #![proptest_config(config(1))]

    #[test]
    fn gr_16_every_decision_agrees_with_the_naive_evaluator(w in worlds()) {
        prop_assert_eq!(outcome(&w), expected(&w));
    }

    #[test]
    fn gr_16_every_approval_agrees_with_the_naive_evaluator(w in worlds()) {
        prop_assert_eq!(approved(&w).err(), approval_objections(&w).first().copied());
    }

    #[test]
    fn a_new_guest_agrees_with_the_naive_evaluator(w in worlds()) {
        // A guest without tags, pool or protection of its own, and nothing that lifts anything.
        let bare = World { guest: Guest { tags: Some(vec![]), pool: Some(None), flag: Some(false), ..w.guest.clone() },
                           tier: "destructive", waivers: vec![], lab: false, ..w.clone() };
        let allowed = !objections(&World { protected_tags: vec![], ..bare.clone() })
            .iter().any(|kind| *kind != DenialKind::ToolOutOfScope)
            && w.tools.contains(&"tool");
        prop_assert_eq!(created(&bare).is_ok(), allowed, "{:?}", bare);
    }
}

proptest! {
    #![proptest_config(config(4))]

    /// The explanation decides nothing of its own, and the first check it reports as failed is the one that decided.
    #[test]
    fn every_explanation_tells_what_was_decided(w in worlds()) {
        let (principal, rule, facts, protection, waivers) =
            (the_principal(&w), the_rule(&w), the_facts(&w.guest), the_protection(&w), the_waivers(&w));
        let question = Question {
            principal: &principal, rule: &rule, cluster: w.cluster, cluster_known: true, subject: Asked::Guest(&facts),
            op: w.op, planner: w.planner, protection: &protection,
            overrides: Overrides { waivers: &waivers, lab_mode: w.lab }, now: common::now(),
        };
        let decision = question.explain();
        prop_assert_eq!(decision.allowed, outcome(&w).is_ok());
        prop_assert_eq!(decision.denied, outcome(&w).err());
        prop_assert_eq!(decision.lift.is_some(), matches!(outcome(&w), Ok(Some(_))));
        let failed = decision.failed().map(|check| check.check);
        let expected = decision.denied.map(|kind| match kind {
            DenialKind::TokenExpired => Check::Token,
            DenialKind::ToolOutOfScope => Check::Tool,
            DenialKind::ClusterOutOfScope => Check::Cluster,
            DenialKind::TierNotGranted => Check::Tier,
            DenialKind::Protected => Check::Protection,
            _ => Check::Guest,
        });
        prop_assert_eq!(failed, expected);
        let failures = decision.checks.iter().filter(|check| check.result == CheckResult::Failed).count();
        prop_assert!(failures >= objections(&w).len().min(1));
    }

    #[test]
    fn gr_17_order_and_repetition_change_nothing(w in worlds(), seed in 0..64_usize) {
        let shuffled = World {
            tools: shuffle(&w.tools, seed),
            devices: shuffle(&w.devices, seed),
            grant: w.grant.as_ref().map(|(guests, actions)| (shuffle(guests, seed), shuffle(actions, seed))),
            guest: Guest { tags: w.guest.tags.as_ref().map(|tags| shuffle(tags, seed)), ..w.guest.clone() },
            protected_vmids: shuffle(&w.protected_vmids, seed),
            protected_tags: shuffle(&w.protected_tags, seed),
            waivers: shuffle(&w.waivers, seed).into_iter().map(|e| Exception { ops: shuffle(&e.ops, seed), ..e }).collect(),
            ..w.clone()
        };
        match (decided(&w), decided(&shuffled)) {
            // Only the selector that is named as the reason may differ.
            (Ok(one), Ok(two)) => prop_assert_eq!(one.lift(), two.lift()),
            (Err(one), Err(two)) => {
                prop_assert_eq!(one.kind(), two.kind());
                prop_assert_eq!(one.code(), two.code());
            }
            (one, two) => prop_assert!(false, "{:?} became {:?}", one, two),
        }
        prop_assert_eq!(created(&w), created(&shuffled));
        prop_assert_eq!(approved(&w), approved(&shuffled));
    }

    #[test]
    fn gr_18_taking_a_right_away_or_adding_protection_never_allows_more(
        w in worlds(),
        at in any::<prop::sample::Index>(),
        which in any::<prop::sample::Index>(),
    ) {
        fn without<T: Clone>(words: &[T], at: prop::sample::Index) -> Vec<T> {
            let mut words = words.to_vec();
            if !words.is_empty() {
                words.remove(at.index(words.len()));
            }
            words
        }
        let mut less: Vec<World> = vec![
            World { grant: None, ..w.clone() },
            World { expires: Some(0), ..w.clone() },
            World { lab: false, ..w.clone() },
            World { waivers: without(&w.waivers, at), ..w.clone() },
            World { wildcard: false, ..w.clone() },
            World { interrupts: true, ..w.clone() },
            World { writes: true, ..w.clone() },
            World { protected_vmids: [&w.protected_vmids[..], &[w.guest.vmid]].concat(), ..w.clone() },
            World { protected_tags: [&w.protected_tags[..], &["a"]].concat(), ..w.clone() },
            World { guest: Guest { flag: Some(true), ..w.guest.clone() }, ..w.clone() },
            World { guest: Guest { flag: None, ..w.guest.clone() }, ..w.clone() },
            World { guest: Guest { tags: None, ..w.guest.clone() }, ..w.clone() },
            World { guest: Guest { pool: None, ..w.guest.clone() }, ..w.clone() },
        ];
        if let Some((guests, actions)) = &w.grant {
            less.push(World { grant: Some((without(guests, at), actions.clone())), ..w.clone() });
            less.push(World { grant: Some((guests.clone(), without(actions, at))), ..w.clone() });
        }
        if w.tools.len() > 1 {
            less.push(World { tools: without(&w.tools, at), ..w.clone() });
        }
        if w.devices.len() > 1 {
            less.push(World { devices: without(&w.devices, at), ..w.clone() });
        }
        // One of them per case.
        let lesser = less.swap_remove(which.index(less.len()));
        prop_assert!(outcome(&lesser).is_err() || outcome(&w).is_ok(), "{:?} allows more", lesser);
        prop_assert!(created(&lesser).is_err() || created(&w).is_ok(), "{:?} creates more", lesser);
        prop_assert!(approved(&lesser).is_err() || approved(&w).is_ok(), "{:?} approves more", lesser);
    }

    #[test]
    fn pw_14_no_waiver_and_no_mode_changes_who_may_approve(w in worlds(), more in prop::collection::vec(exceptions(), 0..6)) {
        let lifted = World { waivers: more, lab: true, ..w.clone() };
        prop_assert_eq!(approved(&lifted), approved(&w));
        // And whoever may approve is a person, another one than the planner, whatever is lifted.
        if approved(&lifted).is_ok() {
            prop_assert_eq!(w.actor, Some("human"));
            prop_assert_ne!(w.person.to_lowercase(), w.planner.to_lowercase());
            prop_assert_ne!("me", w.planner.to_lowercase());
        }
    }
}

/// The random worlds are worth their time only if every outcome occurs among them.
#[test]
fn the_random_worlds_reach_every_outcome() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen = std::collections::HashMap::<Result<Option<&str>, DenialKind>, usize>::new();
    for _ in 0..5_000 {
        let world = worlds().new_tree(&mut runner).unwrap().current();
        *seen.entry(outcome(&world)).or_default() += 1;
    }
    for outcome in [
        Ok(None),
        Ok(Some("waiver")),
        Ok(Some("lab")),
        Err(DenialKind::TokenExpired),
        Err(DenialKind::ToolOutOfScope),
        Err(DenialKind::ClusterOutOfScope),
        Err(DenialKind::GuestOutOfScope),
        Err(DenialKind::TierNotGranted),
        Err(DenialKind::Protected),
    ] {
        assert!(seen.get(&outcome).is_some_and(|count| *count >= 10), "{outcome:?} is too rare: {seen:?}");
    }
}
