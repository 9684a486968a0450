//! The canonical encoding: frozen, complete, and readable back without doubt.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use changeset::digest::DOMAIN;
use changeset::store::codec;
use changeset::{
    Actor, ActorKind, ChangeSet, ChangeSetId, Fingerprint, MAX_PLAN_BYTES, MAX_STEPS, Plan, PlanDigest,
    PlanDraft, PlanError, Preview, Step, Target,
};
use common::{at, draft, human, key, planned};
use jiff::Timestamp;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use serde_json::Value;
use sha2::{Digest, Sha256};

mod common;

#[test]
fn cs_01_golden_vectors_hold() {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("golden/plans-v1.json")).unwrap();
    assert!(vectors.len() >= 3);
    for vector in vectors {
        let name = &vector["name"];
        let plan = Plan::new(from_json(&vector["input"])).unwrap();
        let canonical = data_encoding::HEXLOWER.encode(&plan.canonical_bytes());
        assert_eq!(canonical, vector["canonical"].as_str().unwrap(), "{name}");
        assert_eq!(plan.digest().to_string(), vector["digest"].as_str().unwrap(), "{name}");
    }
}

/// The HMAC over digest, kind, approver, time and expiry is frozen too.
#[test]
fn cs_01_the_golden_approval_holds() {
    let vectors: Vec<Value> = serde_json::from_str(include_str!("golden/plans-v1.json")).unwrap();
    let set = ChangeSet::planned(Plan::new(from_json(&vectors[1]["input"])).unwrap());
    let now = Timestamp::from_second(1_796_040_060).unwrap();
    let approved = set.approve(&human("olga"), &set.digest(), &key(), now).unwrap();
    let body = codec::encode(&approved).unwrap().body;
    assert!(body.contains("c4abcaebaf7e636f6e53fed8f486d0234ce12c4822ed8ecd514244959836b07a"), "{body}");
}

/// Equal if and only if the typed values are equal: the order in which a map was filled does not count, the
/// spelling of a number or of a letter does.
#[test]
fn cs_01_the_digest_is_over_typed_values() {
    let with = |params: &[(&str, &str)]| {
        let mut draft = draft(1);
        draft.steps = vec![Step::new("op", params.iter().copied(), "s")];
        Plan::new(draft).unwrap().digest()
    };
    assert_eq!(with(&[("a", "1"), ("b", "2")]), with(&[("b", "2"), ("a", "1")]));
    assert_ne!(with(&[("a", "1")]), with(&[("a", "1.0")]));
    assert_ne!(with(&[("a", "\u{e9}")]), with(&[("a", "e\u{301}")]));
    assert_ne!(with(&[("a", "x")]), with(&[("a", "x"), ("b", "")]), "omitted is not empty");
    let key = |key: Option<&str>| {
        let mut draft = draft(1);
        draft.idempotency_key = key.map(str::to_owned);
        Plan::new(draft).unwrap().digest()
    };
    assert_ne!(key(None), key(Some("k")));
}

#[test]
fn cs_03_field_boundaries_cannot_be_moved() {
    let digest = |change: &dyn Fn(&mut PlanDraft)| {
        let mut draft = draft(1);
        change(&mut draft);
        Plan::new(draft).unwrap().digest()
    };
    let planner = |token: &str, person: &str| digest(&|d| d.planner = Actor::new(token, person, None));
    assert_ne!(planner("a|b", "c"), planner("a", "b|c"));
    assert_ne!(planner("ab", "c"), planner("a", "bc"));
    let target = |cluster: &str, key: &str| digest(&|d| d.target = Target::new(cluster, key, ""));
    assert_ne!(target("a", "bc"), target("ab", "c"));
    let op = |ops: &[&str]| {
        digest(&|d| d.steps = ops.iter().map(|op| Step::new(*op, [("k", "v")], "s")).collect())
    };
    assert_ne!(op(&["ab", "c"]), op(&["a", "bc"]));
    assert_ne!(op(&["a", "a"]), op(&["a"]));
    // A fact moved from the fingerprint to the preview, where nothing compares it.
    let fingerprint = digest(&|d| d.fingerprint = Fingerprint::new([("k", "v")]));
    let preview = digest(&|d| d.preview = Preview::new("t", [("k", "v")]));
    assert_ne!(fingerprint, preview);
}

/// One change to each field; none may leave the digest as it was, or meet another's.
#[test]
fn cs_04_every_field_counts() {
    type Change = fn(&mut PlanDraft);
    let changes: [(&str, Change); 22] = [
        ("id", |d| d.id = ChangeSetId::from_entropy([2; 16])),
        ("planner token", |d| d.planner.token.push('x')),
        ("planner person", |d| d.planner.person.push('x')),
        ("planner kind", |d| d.planner.kind = None),
        ("planner kind human", |d| d.planner.kind = Some(ActorKind::Human)),
        ("cluster", |d| d.target.cluster.push('x')),
        ("target", |d| d.target.key.push('0')),
        ("label", |d| d.target.label.push('x')),
        ("tier", |d| d.tier_destructive = false),
        ("protected", |d| d.target_protected = true),
        ("fingerprint value", |d| *d.fingerprint.fields.get_mut("name").unwrap() += "x"),
        ("fingerprint field", |d| drop(d.fingerprint.fields.remove("name"))),
        ("op", |d| d.steps[0].op.push('x')),
        ("params", |d| drop(d.steps[0].params.insert("purge".to_owned(), "1".to_owned()))),
        ("summary", |d| d.steps[0].summary.push('x')),
        ("moves", |d| d.steps[0].moves.extend(["name".to_owned()])),
        ("preview", |d| d.preview.text.push('.')),
        ("preview facts", |d| drop(d.preview.facts.insert("status".to_owned(), "running".to_owned()))),
        ("policy", |d| d.policy_version = "2".to_owned()),
        ("lab mode", |d| d.lab_mode = true),
        ("idempotency key", |d| d.idempotency_key = Some("k".to_owned())),
        ("created", |d| d.created = at(1)),
    ];
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    seen.insert(Plan::new(draft(1)).unwrap().digest().to_string(), "unchanged");
    for (field, change) in changes {
        let mut changed = draft(1);
        change(&mut changed);
        let digest = Plan::new(changed).unwrap().digest().to_string();
        assert_eq!(seen.insert(digest, field), None, "{field} does not count");
    }
}

#[test]
fn cs_37_plans_have_limits_and_say_them() {
    let steps = |n: usize| {
        let mut draft = draft(1);
        draft.steps = vec![Step::new("op", [("k", "v")], "s"); n];
        Plan::new(draft)
    };
    assert_eq!(steps(0).unwrap_err(), PlanError::NoSteps);
    for n in [1, MAX_STEPS - 1, MAX_STEPS] {
        assert!(steps(n).is_ok(), "{n}");
    }
    for n in [MAX_STEPS + 1, 1000] {
        let refused = steps(n).unwrap_err();
        assert_eq!(refused, PlanError::TooManySteps { steps: n });
        assert!(refused.to_string().contains("1 to 32"), "{refused}");
    }
    let room = MAX_PLAN_BYTES - Plan::new(draft(1)).unwrap().canonical_bytes().len();
    let longer = |by: usize| {
        let mut draft = draft(1);
        draft.preview.text.push_str(&"x".repeat(by));
        Plan::new(draft)
    };
    assert_eq!(longer(room).unwrap().canonical_bytes().len(), MAX_PLAN_BYTES);
    assert!(longer(room - 1).is_ok());
    assert_eq!(longer(room + 1).unwrap_err(), PlanError::TooLarge { bytes: MAX_PLAN_BYTES + 1 });
    assert!(matches!(longer(1 << 20), Err(PlanError::TooLarge { .. })));
}

#[test]
fn a_plan_names_what_it_is_about() {
    type Change = fn(&mut PlanDraft);
    let changes: [(&str, Change); 8] = [
        ("planner.token", |d| d.planner.token.clear()),
        ("planner.person", |d| d.planner.person = " ".to_owned()),
        ("target.cluster", |d| d.target.cluster.clear()),
        ("target.key", |d| d.target.key.clear()),
        ("policy_version", |d| d.policy_version.clear()),
        ("preview.text", |d| d.preview.text = "\n".to_owned()),
        ("step.op", |d| d.steps[0].op.clear()),
        ("idempotency_key", |d| d.idempotency_key = Some(String::new())),
    ];
    for (field, change) in changes {
        let mut draft = draft(1);
        change(&mut draft);
        assert_eq!(Plan::new(draft).unwrap_err(), PlanError::Empty { field });
    }
}

/// Logs and failures of tests show what an operator can copy.
#[test]
fn a_digest_and_a_name_show_themselves_whole() {
    let set = planned(draft(1));
    assert_eq!(format!("{:?}", set.digest()), format!("PlanDigest({})", set.digest()));
    assert_eq!(format!("{:?}", set.id()), format!("ChangeSetId({})", set.id()));
}

#[test]
fn cs_07_only_all_64_digits_are_a_digest() {
    let digest = Plan::new(draft(1)).unwrap().digest();
    let text = digest.to_string();
    assert_eq!(text.parse(), Ok(digest));
    let upper = text.to_uppercase();
    let long = format!("{text}00");
    let newline = format!("{text}\n");
    for bad in ["", &text[..8], &text[..63], &upper, &long, &newline] {
        assert!(bad.parse::<PlanDigest>().is_err(), "{bad:?}");
    }
}

proptest! {
    /// An encoding that can be read back to the plan it came from cannot be shared by two plans.
    #[test]
    fn cs_03_the_encoding_is_injective(draft in any_draft()) {
        if let Ok(plan) = Plan::new(draft.clone()) {
            let bytes = plan.canonical_bytes();
            let mut reader = Reader(&bytes);
            let (read, expires) = reader.plan();
            prop_assert_eq!(reader.0.len(), 0);
            prop_assert_eq!(read, draft);
            prop_assert_eq!(expires, plan.expires());
        }
    }

    #[test]
    fn cs_04_any_flipped_byte_changes_the_digest(draft in any_draft(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        if let Ok(plan) = Plan::new(draft) {
            let mut bytes = plan.canonical_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            let flipped: [u8; 32] = Sha256::digest(&bytes).into();
            prop_assert_ne!(flipped, *plan.digest().as_bytes());
        }
    }

    #[test]
    fn cs_01_equal_plans_have_equal_digests_and_others_do_not(a in any_draft(), b in any_draft()) {
        if let (Ok(one), Ok(other)) = (Plan::new(a.clone()), Plan::new(b.clone())) {
            prop_assert_eq!(one.digest() == other.digest(), a == b);
            prop_assert_eq!(one.digest(), Plan::new(a).unwrap().digest());
        }
    }
}

/// Short texts over a small alphabet, so that two drafts are often alike but for a boundary.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab|\\x00]{0,3}", 1 => any::<String>()]
}

/// The same, but never empty: what a plan must name.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[ab|\\x00]{1,3}", 1 => any::<String>()]
}

fn any_actor() -> impl Strategy<Value = Actor> {
    let kind = prop_oneof![Just(None), Just(Some(ActorKind::Human)), Just(Some(ActorKind::Agent))];
    (name(), name(), kind).prop_map(|(token, person, kind)| Actor { token, person, kind })
}

fn any_step() -> impl Strategy<Value = Step> {
    (name(), btree_map(text(), text(), 0..3), text(), btree_set(text(), 0..3))
        .prop_map(|(op, params, summary, moves)| Step { op, params, summary, moves })
}

fn any_draft() -> impl Strategy<Value = PlanDraft> {
    let target = (name(), name(), text()).prop_map(|(cluster, key, label)| Target { cluster, key, label });
    let facts = || btree_map(text(), text(), 0..3);
    let preview = (name(), facts()).prop_map(|(text, facts)| Preview { text, facts });
    let created = (-9_999_999_999_i64..99_999_999_999, 0_i32..999_999_999)
        .prop_map(|(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap());
    let names = (any::<[u8; 16]>(), any_actor(), target, vec(any_step(), 1..4));
    let words = (facts(), preview, name(), proptest::option::of(name()));
    (names, words, any::<(bool, bool, bool)>(), created).prop_map(|(names, words, flags, created)| {
        PlanDraft {
            id: ChangeSetId::from_entropy(names.0),
            planner: names.1,
            target: names.2,
            steps: names.3,
            fingerprint: Fingerprint { fields: words.0 },
            preview: words.1,
            policy_version: words.2,
            idempotency_key: words.3,
            tier_destructive: flags.0,
            target_protected: flags.1,
            lab_mode: flags.2,
            created,
        }
    })
}

/// Reads the encoding by its description, independently of the encoder.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn raw<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_at(N);
        self.0 = rest;
        head.try_into().unwrap()
    }

    fn count(&mut self) -> usize {
        u64::from_be_bytes(self.raw()).try_into().unwrap()
    }

    fn text(&mut self) -> String {
        let length = self.count();
        let (head, rest) = self.0.split_at(length);
        self.0 = rest;
        String::from_utf8(head.to_vec()).unwrap()
    }

    fn flag(&mut self) -> bool {
        match self.raw::<1>() {
            [0] => false,
            [1] => true,
            [other] => panic!("a flag of {other}"),
        }
    }

    fn map(&mut self) -> BTreeMap<String, String> {
        (0..self.count()).map(|_| (self.text(), self.text())).collect()
    }

    fn set(&mut self) -> BTreeSet<String> {
        (0..self.count()).map(|_| self.text()).collect()
    }

    fn actor(&mut self) -> Actor {
        let (token, person) = (self.text(), self.text());
        let kind = match self.raw::<1>() {
            [0] => None,
            [1] => Some(ActorKind::Human),
            [2] => Some(ActorKind::Agent),
            [other] => panic!("an actor of kind {other}"),
        };
        Actor { token, person, kind }
    }

    fn time(&mut self) -> Timestamp {
        let (second, nanosecond) = (i64::from_be_bytes(self.raw()), i32::from_be_bytes(self.raw()));
        Timestamp::new(second, nanosecond).unwrap()
    }

    fn step(&mut self) -> Step {
        Step { op: self.text(), params: self.map(), summary: self.text(), moves: self.set() }
    }

    fn plan(&mut self) -> (PlanDraft, Timestamp) {
        assert_eq!(self.raw::<17>(), DOMAIN);
        let draft = PlanDraft {
            id: ChangeSetId::from_entropy(self.raw()),
            planner: self.actor(),
            target: Target { cluster: self.text(), key: self.text(), label: self.text() },
            tier_destructive: self.flag(),
            target_protected: self.flag(),
            fingerprint: Fingerprint { fields: self.map() },
            steps: (0..self.count()).map(|_| self.step()).collect(),
            preview: Preview { text: self.text(), facts: self.map() },
            policy_version: self.text(),
            lab_mode: self.flag(),
            idempotency_key: if self.flag() { Some(self.text()) } else { None },
            created: self.time(),
        };
        let expires = self.time();
        (draft, expires)
    }
}

fn from_json(input: &Value) -> PlanDraft {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let map = |value: &Value| -> BTreeMap<String, String> {
        value.as_object().unwrap().iter().map(|(k, v)| (k.clone(), text(v))).collect()
    };
    let id = data_encoding::HEXLOWER.decode(text(&input["id"]).as_bytes()).unwrap();
    let steps = input["steps"].as_array().unwrap().iter().map(|step| Step {
        op: text(&step["op"]),
        params: map(&step["params"]),
        summary: text(&step["summary"]),
        moves: step["moves"].as_array().unwrap().iter().map(text).collect(),
    });
    PlanDraft {
        id: ChangeSetId::from_entropy(id.try_into().unwrap()),
        planner: Actor {
            token: text(&input["planner"]["token"]),
            person: text(&input["planner"]["person"]),
            kind: match input["planner"]["kind"].as_str() {
                Some("human") => Some(ActorKind::Human),
                Some("agent") => Some(ActorKind::Agent),
                _ => None,
            },
        },
        target: Target {
            cluster: text(&input["target"]["cluster"]),
            key: text(&input["target"]["key"]),
            label: text(&input["target"]["label"]),
        },
        tier_destructive: input["tier_destructive"].as_bool().unwrap(),
        target_protected: input["target_protected"].as_bool().unwrap(),
        steps: steps.collect(),
        fingerprint: Fingerprint { fields: map(&input["fingerprint"]) },
        preview: Preview { text: text(&input["preview"]["text"]), facts: map(&input["preview"]["facts"]) },
        policy_version: text(&input["policy_version"]),
        lab_mode: input["lab_mode"].as_bool().unwrap(),
        idempotency_key: input["idempotency_key"].as_str().map(str::to_owned),
        created: Timestamp::new(
            input["created"][0].as_i64().unwrap(),
            input["created"][1].as_i64().unwrap().try_into().unwrap(),
        )
        .unwrap(),
    }
}
