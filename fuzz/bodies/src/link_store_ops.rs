//! `transfers`: a store under any sequence of calls, against what each single link may do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use transfers::{Claim, Limits, LinkId, LinkStatus, LinkStore, MintError, Minted, Outcome, Presented};

use crate::bytes::Bytes;

const LIMITS: Limits = Limits {
    max_pending: 6,
    per_owner: 3,
    outcomes_kept: Duration::from_secs(100),
    max_outcomes: 8,
    outcomes_per_owner: 5,
    ttl_min: Duration::from_secs(10),
    ttl_max: Duration::from_secs(50),
    ttl_default: Duration::from_secs(20),
};

const OWNERS: [&str; 3] = ["alice", "bob", ""];

/// What is known of one link without looking at any other.
struct Link {
    minted: Minted,
    owner: &'static str,
    expires_at: Duration,
    fate: Fate,
}

#[derive(Clone, PartialEq, Debug)]
enum Fate {
    Pending,
    Running { bytes: u64 },
    Ended { outcome: Outcome, at: Duration },
}

impl Link {
    fn fate_at(&self, now: Duration) -> Fate {
        match &self.fate {
            Fate::Pending if self.expires_at <= now => {
                Fate::Ended { outcome: Outcome::Expired, at: self.expires_at }
            }
            fate => fate.clone(),
        }
    }

    /// Whether the token was presented in time.
    fn spent(&self) -> bool {
        match &self.fate {
            Fate::Pending => false,
            Fate::Running { .. } => true,
            Fate::Ended { outcome, .. } => !matches!(outcome, Outcome::Voided { .. }),
        }
    }
}

/// Calls of the store, one byte of choice each.
pub fn link_store_ops(data: &[u8]) {
    let mut bytes = Bytes(data);
    let store = Arc::new(LinkStore::new(LIMITS));
    let mut links: Vec<Link> = Vec::new();
    let mut claims: HashMap<usize, Claim<usize>> = HashMap::new();
    let mut now = Duration::ZERO;
    while !bytes.is_empty() && links.len() < 200 {
        let choice = bytes.byte();
        let pick = usize::from(bytes.byte());
        match choice % 8 {
            0 | 1 => mint(&store, &mut links, now, choice, pick),
            2 => now += Duration::from_millis(u64::from(u16::from_be_bytes([pick as u8, choice]))),
            3 => store.sweep(now),
            _ if links.is_empty() => {}
            4 => claim(&store, &mut links, &mut claims, now, pick),
            5 => end(&mut links, &mut claims, now, pick, choice),
            6 => {
                let n = pick % links.len();
                let pending = links[n].fate_at(now) == Fate::Pending;
                assert_eq!(store.void(&links[n].minted.id, "void", now), pending);
                if pending {
                    links[n].fate =
                        Fate::Ended { outcome: Outcome::Voided { reason: "void".into() }, at: now };
                }
            }
            _ => status(&store, &links, now, pick, choice),
        }
        let pending = links.iter().filter(|link| link.fate_at(now) == Fate::Pending).count();
        store.sweep(now);
        let counts = store.counts();
        assert_eq!((counts.pending, counts.running), (pending, claims.len()), "no link is lost or made up");
        assert!(counts.pending <= LIMITS.max_pending && counts.outcomes <= LIMITS.max_outcomes);
    }
}

fn mint(store: &LinkStore<usize>, links: &mut Vec<Link>, now: Duration, choice: u8, pick: usize) {
    let n = links.len();
    let owner = OWNERS[usize::from(choice >> 4) % OWNERS.len()];
    let ttl = (pick < 128).then(|| Duration::from_secs(pick as u64));
    // Ids that sort otherwise than they were minted.
    let mut entropy = [pick as u8; 48];
    entropy[0] = n as u8;
    entropy[32] = (n as u8).wrapping_mul(167);
    entropy[33] = n as u8;
    let pending = |owner: Option<&str>| {
        let of = |link: &&Link| owner.is_none_or(|o| o == link.owner) && link.fate_at(now) == Fate::Pending;
        links.iter().filter(of).count()
    };
    let expected = if pending(Some(owner)) >= LIMITS.per_owner {
        Err(MintError::OwnerFull { limit: LIMITS.per_owner })
    } else if pending(None) >= LIMITS.max_pending {
        Err(MintError::StoreFull { limit: LIMITS.max_pending })
    } else {
        Ok(match ttl {
            None => LIMITS.ttl_default,
            Some(wish) if wish < LIMITS.ttl_min => LIMITS.ttl_min,
            Some(wish) if wish > LIMITS.ttl_max => LIMITS.ttl_max,
            Some(wish) => wish,
        })
    };
    let result = store.mint(owner, n, ttl, now, entropy);
    match (result, expected) {
        (Ok(minted), Ok(lifetime)) => {
            assert_eq!(minted.expires_in, lifetime);
            links.push(Link { minted, owner, expires_at: now + lifetime, fate: Fate::Pending });
        }
        (Err(error), Err(expected)) => assert_eq!(error, expected),
        (result, expected) => panic!("expected {expected:?}, got {result:?}"),
    }
}

fn claim(
    store: &Arc<LinkStore<usize>>,
    links: &mut [Link],
    claims: &mut HashMap<usize, Claim<usize>>,
    now: Duration,
    pick: usize,
) {
    let n = pick % links.len();
    let link = &mut links[n];
    let fate = link.fate_at(now);
    match store.claim(link.minted.token.expose(), now) {
        Presented::Won(claim) => {
            assert_eq!(fate, Fate::Pending, "only a pending link is won");
            assert_eq!((claim.id(), claim.owner(), *claim.binding()), (link.minted.id, link.owner, n));
            link.fate = Fate::Running { bytes: 0 };
            assert!(claims.insert(n, claim).is_none(), "won twice");
        }
        Presented::Reused { id, owner } => {
            assert!(link.spent(), "reported as reused, but it was never spent");
            assert_eq!((id, &*owner), (link.minted.id, link.owner));
        }
        Presented::Absent => match fate {
            Fate::Pending => panic!("a pending link was evicted"),
            Fate::Running { .. } => panic!("a running link was forgotten"),
            // Its outcome may have been retired early, by number.
            Fate::Ended { .. } => {}
        },
    }
}

fn end(
    links: &mut [Link],
    claims: &mut HashMap<usize, Claim<usize>>,
    now: Duration,
    pick: usize,
    choice: u8,
) {
    let n = pick % links.len();
    let Some(claim) = claims.remove(&n) else { return };
    let bytes = u64::from(choice);
    claim.progress(bytes, "going");
    links[n].fate = Fate::Running { bytes };
    let outcome = match choice >> 5 {
        0 => {
            // Still going: the claim stays.
            claims.insert(n, claim);
            return;
        }
        1 => {
            drop(claim);
            Outcome::Aborted { bytes }
        }
        _ => {
            claim.finish(Outcome::AbortedByClient { bytes }, now);
            Outcome::AbortedByClient { bytes }
        }
    };
    links[n].fate = Fate::Ended { outcome, at: now };
}

fn status(store: &LinkStore<usize>, links: &[Link], now: Duration, pick: usize, choice: u8) {
    let link = &links[pick % links.len()];
    let asker = OWNERS[usize::from(choice >> 4) % OWNERS.len()];
    let status = store.status(&link.minted.id, asker, now);
    assert_eq!(store.status(&LinkId::from_entropy([0xff; 16]), asker, now), None);
    if asker != link.owner {
        assert_eq!(status, None, "read by somebody else");
        return;
    }
    match (link.fate_at(now), status) {
        (Fate::Pending, Some(LinkStatus::Pending { expires_in })) => {
            assert_eq!(expires_in, link.expires_at - now);
        }
        (Fate::Running { bytes }, Some(LinkStatus::Running { bytes: told, .. })) => assert_eq!(told, bytes),
        (Fate::Ended { outcome, at }, Some(LinkStatus::Done { outcome: told })) => {
            assert_eq!(told, outcome);
            assert!(now < at + LIMITS.outcomes_kept, "kept too long");
        }
        // Retired by time or by number.
        (Fate::Ended { .. }, None) => {}
        (fate, status) => panic!("{fate:?} was told as {status:?}"),
    }
}
