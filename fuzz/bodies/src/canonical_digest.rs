//! `changeset`: the canonical encoding of a plan can be read back, so no two plans share one.

use std::collections::{BTreeMap, BTreeSet};

use changeset::{Actor, ActorKind, ChangeSetId, Fingerprint, Plan, PlanDraft, Preview, Step, Target};
use jiff::Timestamp;

use crate::bytes::Bytes;

/// Two drafts from one input, each read back from its encoding by a decoder written here.
pub fn canonical_digest(data: &[u8]) {
    let (left, right) = data.split_at(data.len() / 2);
    let (left, right) = (draft(&mut Bytes(left)), draft(&mut Bytes(right)));
    let (Ok(a), Ok(b)) = (Plan::new(left.clone()), Plan::new(right.clone())) else { return };
    for (plan, draft) in [(&a, &left), (&b, &right)] {
        let bytes = plan.canonical_bytes();
        let (read, expires) = decode(&bytes).expect("the encoding is complete");
        assert_eq!(&read, draft, "a field is not in the encoding");
        assert_eq!(expires, plan.expires());
        assert_eq!(plan.digest(), plan.digest());
        assert_eq!(plan.digest().to_string().parse(), Ok(plan.digest()));
    }
    let same = left == right;
    assert_eq!(a.canonical_bytes() == b.canonical_bytes(), same);
    assert_eq!(a.digest() == b.digest(), same, "a digest for two plans");
}

fn draft(bytes: &mut Bytes<'_>) -> PlanDraft {
    let flags = bytes.byte();
    let id = ChangeSetId::from_entropy(bytes.array());
    let planner = Actor::new(
        name(bytes),
        name(bytes),
        match flags >> 6 {
            1 => Some(ActorKind::Human),
            2 => Some(ActorKind::Agent),
            _ => None,
        },
    );
    let target = Target::new(name(bytes), name(bytes), text(bytes));
    let steps = (0..1 + bytes.byte() % 4)
        .map(|_| Step {
            op: name(bytes),
            params: map(bytes),
            summary: text(bytes),
            moves: (0..bytes.byte() % 3).map(|_| text(bytes)).collect(),
        })
        .collect();
    let seconds = i64::from(i32::from_be_bytes(bytes.array()));
    let nanoseconds = i32::from(u16::from_be_bytes(bytes.array()));
    PlanDraft {
        id,
        planner,
        target,
        tier_destructive: flags & 1 != 0,
        target_protected: flags & 2 != 0,
        steps,
        fingerprint: Fingerprint { fields: map(bytes) },
        preview: Preview { text: name(bytes), facts: map(bytes) },
        policy_version: name(bytes),
        lab_mode: flags & 4 != 0,
        idempotency_key: (flags & 8 != 0).then(|| name(bytes)),
        // Seconds and fraction of one sign, as a time before 1970 has them.
        created: Timestamp::new(seconds, if seconds < 0 { -nanoseconds } else { nanoseconds })
            .expect("a time"),
    }
}

/// A text that is not blank, as names must be.
fn name(bytes: &mut Bytes<'_>) -> String {
    let text = text(bytes);
    if text.trim().is_empty() { format!("{text}.") } else { text }
}

fn text(bytes: &mut Bytes<'_>) -> String {
    let length = usize::from(bytes.byte() % 24);
    String::from_utf8_lossy(bytes.take(length)).into_owned()
}

fn map(bytes: &mut Bytes<'_>) -> BTreeMap<String, String> {
    (0..bytes.byte() % 4).map(|_| (text(bytes), text(bytes))).collect()
}

/// The encoding, read back as its documentation describes it; `None` where bytes are missing or left over.
fn decode(bytes: &[u8]) -> Option<(PlanDraft, Timestamp)> {
    let mut reader = Reader(bytes.strip_prefix(b"pxw-changeset-v1\0")?);
    let draft = PlanDraft {
        id: ChangeSetId::from_entropy(reader.array()?),
        planner: reader.actor()?,
        target: Target { cluster: reader.text()?, key: reader.text()?, label: reader.text()? },
        tier_destructive: reader.flag()?,
        target_protected: reader.flag()?,
        fingerprint: Fingerprint { fields: reader.map()? },
        steps: reader.list(|reader| {
            Some(Step {
                op: reader.text()?,
                params: reader.map()?,
                summary: reader.text()?,
                moves: {
                    let moves = reader.list(Reader::text)?;
                    assert!(moves.is_sorted());
                    let unique: BTreeSet<String> = moves.iter().cloned().collect();
                    assert_eq!(unique.len(), moves.len());
                    unique
                },
            })
        })?,
        preview: Preview { text: reader.text()?, facts: reader.map()? },
        policy_version: reader.text()?,
        lab_mode: reader.flag()?,
        idempotency_key: match reader.flag()? {
            true => Some(reader.text()?),
            false => None,
        },
        created: reader.time()?,
    };
    let expires = reader.time()?;
    reader.0.is_empty().then_some((draft, expires))
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(u64::from_be_bytes(self.array()?)).ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.array()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.count()?).map(|_| item(self)).collect()
    }

    fn map(&mut self) -> Option<BTreeMap<String, String>> {
        let entries = self.list(|reader| Some((reader.text()?, reader.text()?)))?;
        assert!(entries.is_sorted_by(|a, b| a.0 < b.0), "the order of a map is its keys'");
        Some(entries.into_iter().collect())
    }

    fn actor(&mut self) -> Option<Actor> {
        let (token, person) = (self.text()?, self.text()?);
        let kind = match self.array()? {
            [0] => None,
            [1] => Some(ActorKind::Human),
            [2] => Some(ActorKind::Agent),
            _ => return None,
        };
        Some(Actor::new(token, person, kind))
    }

    fn time(&mut self) -> Option<Timestamp> {
        let seconds = i64::from_be_bytes(self.array()?);
        Timestamp::new(seconds, i32::from_be_bytes(self.array()?)).ok()
    }
}
