//! The store against a naive model: a list of links that is scanned for everything, and no cleverness.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use transfers::{Claim, Limits, LinkStatus, LinkStore, MintError, Minted, Outcome, Presented};

#[derive(Debug, Clone)]
enum Op {
    Mint {
        owner: u8,
        ttl: Option<u64>,
    },
    Claim {
        link: usize,
    },
    Progress {
        claim: usize,
        bytes: u64,
    },
    Finish {
        claim: usize,
    },
    Drop {
        claim: usize,
    },
    Status {
        link: usize,
        owner: u8,
    },
    Void {
        link: usize,
    },
    Wait {
        ms: u64,
    },
    /// Makes the next call's reading of the clock older than the ones before.
    Lag {
        ms: u64,
    },
    Sweep,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..3_u8, proptest::option::of(0..40_u64)).prop_map(|(owner, ttl)| Op::Mint { owner, ttl }),
        4 => (0..60_usize).prop_map(|link| Op::Claim { link }),
        1 => (0..8_usize, any::<u64>()).prop_map(|(claim, bytes)| Op::Progress { claim, bytes }),
        2 => (0..8_usize).prop_map(|claim| Op::Finish { claim }),
        1 => (0..8_usize).prop_map(|claim| Op::Drop { claim }),
        3 => (0..60_usize, 0..3_u8).prop_map(|(link, owner)| Op::Status { link, owner }),
        1 => (0..60_usize).prop_map(|link| Op::Void { link }),
        2 => (0..20_000_u64).prop_map(|ms| Op::Wait { ms }),
        1 => (1..5_000_u64).prop_map(|ms| Op::Lag { ms }),
        1 => Just(Op::Sweep),
    ]
}

const LIMITS: Limits = Limits {
    max_pending: 5,
    per_owner: 3,
    outcomes_kept: Duration::from_secs(60),
    max_outcomes: 7,
    outcomes_per_owner: 4,
    ttl_min: Duration::from_secs(5),
    ttl_max: Duration::from_secs(30),
    ttl_default: Duration::from_secs(10),
};

#[derive(Debug, Clone)]
enum Phase {
    Pending { until: Duration },
    Running { bytes: u64, stage: &'static str },
    Done { outcome: Outcome, ended: Duration },
    Gone,
}

#[derive(Debug)]
struct Link {
    owner: u8,
    spent: bool,
    phase: Phase,
}

/// Every link ever minted, in order.
#[derive(Default)]
struct Model {
    now: Duration,
    links: Vec<Link>,
}

impl Model {
    /// Advances to `now`: expire in the order of expiry, keep the youngest outcomes, retire the old.
    fn at(&mut self, now: Duration, order: &dyn Fn(usize) -> transfers::LinkId) {
        self.now = self.now.max(now);
        let mut due: Vec<(Duration, transfers::LinkId, usize)> = (0..self.links.len())
            .filter_map(|n| match self.links[n].phase {
                Phase::Pending { until } if until <= self.now => Some((until, order(n), n)),
                _ => None,
            })
            .collect();
        due.sort();
        for (until, _, n) in due {
            self.end(n, Outcome::Expired, until, order);
        }
        for link in &mut self.links {
            if matches!(link.phase, Phase::Done { ended, .. } if ended + LIMITS.outcomes_kept <= self.now) {
                link.phase = Phase::Gone;
            }
        }
    }

    fn end(
        &mut self,
        n: usize,
        outcome: Outcome,
        ended: Duration,
        order: &dyn Fn(usize) -> transfers::LinkId,
    ) {
        self.links[n].phase = Phase::Done { outcome, ended };
        let owner = self.links[n].owner;
        for (whose, cap) in [(Some(owner), LIMITS.outcomes_per_owner), (None, LIMITS.max_outcomes)] {
            let mut kept: Vec<(Duration, transfers::LinkId, usize)> = (0..self.links.len())
                .filter(|n| whose.is_none_or(|owner| self.links[*n].owner == owner))
                .filter_map(|n| match self.links[n].phase {
                    Phase::Done { ended, .. } => Some((ended, order(n), n)),
                    _ => None,
                })
                .collect();
            if kept.len() > cap {
                kept.sort();
                self.links[kept[0].2].phase = Phase::Gone;
            }
        }
    }

    fn pending(&self, owner: Option<u8>) -> usize {
        self.links
            .iter()
            .filter(|l| owner.is_none_or(|o| o == l.owner) && matches!(l.phase, Phase::Pending { .. }))
            .count()
    }
}

fn entropy(n: usize) -> [u8; 48] {
    let mut entropy = [0x44; 48];
    entropy[..8].copy_from_slice(&(n as u64).to_be_bytes());
    // Ids in another order than mints, so that ties are broken the same way for a reason.
    entropy[32..40].copy_from_slice(&(n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    entropy
}

fn run(ops: &[Op]) {
    let store = Arc::new(LinkStore::new(LIMITS));
    let mut minted: Vec<Minted> = Vec::new();
    let mut claims: Vec<(usize, Claim<usize>)> = Vec::new();
    let mut model = Model::default();
    let (mut clock, mut lag) = (Duration::ZERO, Duration::ZERO);
    for op in ops {
        let now = clock.saturating_sub(std::mem::take(&mut lag));
        let ids: Vec<_> = minted.iter().map(|m| m.id).collect();
        let order = |n: usize| ids[n];
        match *op {
            Op::Wait { ms } => clock += Duration::from_millis(ms),
            Op::Lag { ms } => lag = Duration::from_millis(ms),
            Op::Sweep => {
                store.sweep(now);
                model.at(now, &order);
            }
            Op::Mint { owner, ttl } => {
                model.at(now, &order);
                let n = minted.len();
                let ttl = ttl.map(Duration::from_secs);
                let result = store.mint(&owner.to_string(), n, ttl, now, entropy(n));
                if model.pending(Some(owner)) >= 3 {
                    assert_eq!(result.map(|_| ()), Err(MintError::OwnerFull { limit: 3 }));
                } else if model.pending(None) >= 5 {
                    assert_eq!(result.map(|_| ()), Err(MintError::StoreFull { limit: 5 }));
                } else {
                    let link = result.unwrap();
                    let given = ttl.map_or(10, |t| t.as_secs().clamp(5, 30));
                    assert_eq!(link.expires_in, Duration::from_secs(given));
                    let until = model.now + link.expires_in;
                    model.links.push(Link { owner, spent: false, phase: Phase::Pending { until } });
                    minted.push(link);
                }
            }
            Op::Claim { link } => {
                let Some(link) = (!minted.is_empty()).then(|| link % minted.len()) else { continue };
                model.at(now, &order);
                let known = &mut model.links[link];
                match store.claim(minted[link].token.expose(), now) {
                    Presented::Won(claim) => {
                        assert!(matches!(known.phase, Phase::Pending { .. }), "{known:?}");
                        assert_eq!((*claim.binding(), claim.id()), (link, minted[link].id));
                        known.spent = true;
                        known.phase = Phase::Running { bytes: 0, stage: "" };
                        claims.push((link, claim));
                    }
                    Presented::Reused { id, owner } => {
                        assert!(known.spent && !matches!(known.phase, Phase::Gone), "{known:?}");
                        assert_eq!((id, &*owner), (minted[link].id, known.owner.to_string().as_str()));
                    }
                    Presented::Absent => {
                        let gone = matches!(known.phase, Phase::Gone);
                        let done = matches!(known.phase, Phase::Done { .. });
                        assert!(gone || (done && !known.spent), "{known:?}");
                    }
                }
            }
            Op::Progress { claim, bytes } => {
                let Some(at) = (!claims.is_empty()).then(|| claim % claims.len()) else { continue };
                claims[at].1.progress(bytes, "going");
                model.links[claims[at].0].phase = Phase::Running { bytes, stage: "going" };
            }
            Op::Finish { claim } | Op::Drop { claim } => {
                let Some(at) = (!claims.is_empty()).then(|| claim % claims.len()) else { continue };
                let (link, claim) = claims.swap_remove(at);
                let Phase::Running { bytes, .. } = model.links[link].phase else { panic!("not running") };
                if matches!(op, Op::Finish { .. }) {
                    model.at(now, &order);
                    claim.finish(Outcome::AbortedByClient { bytes }, now);
                    model.end(link, Outcome::AbortedByClient { bytes }, model.now, &order);
                } else {
                    drop(claim);
                    model.end(link, Outcome::Aborted { bytes }, model.now, &order);
                }
            }
            Op::Status { link, owner } => {
                let Some(link) = (!minted.is_empty()).then(|| link % minted.len()) else { continue };
                model.at(now, &order);
                let known = &model.links[link];
                let expected =
                    (known.owner == owner).then(|| known.phase.clone()).and_then(|phase| match phase {
                        Phase::Pending { until } => {
                            Some(LinkStatus::Pending { expires_in: until - model.now })
                        }
                        Phase::Running { bytes, stage } => Some(LinkStatus::Running { bytes, stage }),
                        Phase::Done { outcome, .. } => Some(LinkStatus::Done { outcome }),
                        Phase::Gone => None,
                    });
                assert_eq!(store.status(&minted[link].id, &owner.to_string(), now), expected);
            }
            Op::Void { link } => {
                let Some(link) = (!minted.is_empty()).then(|| link % minted.len()) else { continue };
                model.at(now, &order);
                let pending = matches!(model.links[link].phase, Phase::Pending { .. });
                assert_eq!(store.void(&minted[link].id, "taken back", now), pending);
                if pending {
                    model.end(link, Outcome::Voided { reason: "taken back".into() }, model.now, &order);
                }
            }
        }
        let count = |wanted: fn(&Phase) -> bool| model.links.iter().filter(|l| wanted(&l.phase)).count();
        let counts = store.counts();
        assert_eq!(counts.pending, count(|p| matches!(p, Phase::Pending { .. })), "pending after {op:?}");
        assert_eq!(counts.running, count(|p| matches!(p, Phase::Running { .. })), "running after {op:?}");
        assert_eq!(counts.outcomes, count(|p| matches!(p, Phase::Done { .. })), "outcomes after {op:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]
    #[test]
    fn the_store_behaves_as_the_naive_model(ops in proptest::collection::vec(op(), 0..120)) {
        run(&ops);
    }
}
