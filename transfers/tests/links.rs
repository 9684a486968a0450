//! The promises of a link, row by row of the threat model.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use transfers::{
    CappedHasher, Counts, Limits, LinkId, LinkStatus, LinkStore, LinkToken, MintError, Minted, Outcome,
    OverCap, Presented, TtlError,
};

const T0: Duration = Duration::from_secs(1_000);

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn store() -> Arc<LinkStore<&'static str>> {
    Arc::new(LinkStore::new(Limits::default()))
}

/// Distinct entropy for each call in the process.
fn entropy() -> [u8; 48] {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    let mut entropy = [0x5a; 48];
    let n = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    entropy[..n.len()].copy_from_slice(&n);
    entropy[40..].copy_from_slice(&n);
    entropy
}

fn mint(store: &LinkStore<&'static str>, owner: &str, now: Duration) -> Minted {
    store.mint(owner, "guest 905", None, now, entropy()).unwrap()
}

fn won<B>(presented: Presented<B>) -> transfers::Claim<B> {
    match presented {
        Presented::Won(claim) => claim,
        other => panic!("not won: {}", if matches!(other, Presented::Absent) { "absent" } else { "reused" }),
    }
}

fn delivered(bytes: u64) -> Outcome {
    Outcome::Ok {
        bytes,
        sha256: [1; 32],
        verified_at: "guest",
        checksum_verified: true,
        route: "sftp+pct_push",
    }
}

/// Whether a text is turned away and the one pending link is untouched by it.
fn is_no_token(store: &Arc<LinkStore<&'static str>>, text: &str) -> bool {
    LinkToken::parse(text).is_none()
        && matches!(store.claim(text, T0), Presented::Absent)
        && store.counts() == Counts { pending: 1, running: 0, outcomes: 0 }
}

#[test]
fn ul_02_wrong_lengths_and_characters_are_absent() {
    let store = store();
    let link = mint(&store, "alice", T0);
    let token = link.token.expose();
    assert_eq!(token.len(), 43);
    for text in ["", &token[..42], &format!("{token}A"), &token.repeat(240)[..10_000]] {
        assert!(is_no_token(&store, text), "length {}", text.len());
    }
    for bad in [' ', '+', '/', '=', '.', '%', '~', '\0', '\n', '\u{7f}'] {
        for at in [0, 20, 42] {
            let mut text = token.to_owned();
            text.replace_range(at..=at, &bad.to_string());
            assert!(is_no_token(&store, &text), "{bad:?} at {at}");
        }
    }
    // 43 bytes, fewer characters.
    assert!(is_no_token(&store, &format!("{}é", &token[..41])));
    assert!(matches!(store.claim(token, T0), Presented::Won(_)), "the right spelling still redeems");
}

proptest! {
    #[test]
    fn ul_02_any_text_that_is_not_the_token_leaves_the_link(text in "\\PC{0,60}|[A-Za-z0-9_-]{40,46}") {
        let store = store();
        let link = mint(&store, "alice", T0);
        prop_assert!(matches!(store.claim(&text, T0), Presented::Absent));
        prop_assert!(matches!(store.claim(link.token.expose(), T0), Presented::Won(_)));
    }

    #[test]
    fn ul_06_one_link_has_one_spelling(bits in any::<[u8; 48]>()) {
        let store = store();
        let link = store.mint("alice", "guest 905", None, T0, bits).unwrap();
        let token = link.token.expose();
        for text in [
            token.to_uppercase(), token.to_lowercase(), format!("{token}="), format!("{}=", &token[..42]),
            token.replace('-', "+").replace('_', "/"), format!(" {token}"), format!("{token}\n"),
        ] {
            if text != token {
                prop_assert!(!matches!(store.claim(&text, T0), Presented::Won(_)), "{text}");
            }
        }
        // The last character carries four bits of the token: its 15 other values with the same four bits and
        // the unused two set are the same bytes to a lax decoder.
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let last = alphabet.iter().position(|c| *c == token.as_bytes()[42]).unwrap();
        prop_assert_eq!(last % 4, 0, "canonical: the unused bits are zero");
        for other in &alphabet[last + 1..last + 4] {
            let text = format!("{}{}", &token[..42], char::from(*other));
            prop_assert!(is_no_token(&store, &text));
        }
        prop_assert!(matches!(store.claim(token, T0), Presented::Won(_)));
    }
}

#[test]
fn ul_12_expiry_is_exact_to_the_nanosecond() {
    let ttl = secs(600);
    for (age, in_time) in [
        (ttl - Duration::from_millis(1), true),
        (ttl - Duration::from_nanos(1), true),
        (ttl, false),
        (ttl + Duration::from_millis(1), false),
    ] {
        let store = store();
        let link = mint(&store, "alice", T0);
        let presented = store.claim(link.token.expose(), T0 + age);
        assert_eq!(matches!(presented, Presented::Won(_)), in_time, "{age:?}");
        if !in_time {
            assert!(matches!(presented, Presented::Absent), "expired is absent, not reused");
            let status = store.status(&link.id, "alice", T0 + age);
            assert_eq!(status, Some(LinkStatus::Done { outcome: Outcome::Expired }));
        }
    }
}

/// The clock readings of two threads arrive in the other order: what was seen expired stays expired.
#[test]
fn ul_12_a_late_reading_of_an_earlier_time_does_not_revive() {
    let store = store();
    let link = mint(&store, "alice", T0);
    store.sweep(T0 + secs(600));
    assert!(matches!(store.claim(link.token.expose(), T0 + secs(599)), Presented::Absent));
    let status = store.status(&link.id, "alice", T0 + secs(599));
    assert_eq!(status, Some(LinkStatus::Done { outcome: Outcome::Expired }));
}

#[test]
fn ul_13_lifetimes_are_clamped_and_echoed() {
    let limits = Limits::default();
    for (wished, given) in [
        ("0", 60),
        ("-1", 60),
        ("59", 60),
        ("60", 60),
        ("61", 61),
        ("600", 600),
        ("3599", 3599),
        ("3600", 3600),
        ("3601", 3600),
        ("9223372036854775808", 3600),
        ("-9223372036854775809", 60),
        ("340282366920938463463374607431768211456000", 3600),
    ] {
        let ttl = limits.ttl_from_text(wished);
        assert_eq!(ttl, Ok(secs(given)), "{wished}");
        let store = store();
        let link = store.mint("alice", "x", ttl.ok(), T0, entropy()).unwrap();
        assert_eq!(link.expires_in, secs(given), "{wished}");
        let last = T0 + secs(given) - Duration::from_nanos(1);
        let expires_in = Duration::from_nanos(1);
        assert_eq!(store.status(&link.id, "alice", last), Some(LinkStatus::Pending { expires_in }));
        assert!(matches!(store.claim(link.token.expose(), last), Presented::Won(_)), "{wished}");
    }
    for text in [
        "600.5",
        "",
        "-",
        "+600",
        " 600",
        "600 ",
        "0600",
        "-0",
        "--1",
        "6e2",
        "0x10",
        "1_000",
        "６００",
        "null",
    ] {
        assert_eq!(limits.ttl_from_text(text), Err(TtlError), "{text:?}");
    }
    assert_eq!(limits.ttl(None), secs(600));
    assert_eq!(limits.ttl(Some(Duration::ZERO)), secs(60));
    assert_eq!(limits.ttl(Some(Duration::MAX)), secs(3600));
}

/// An embedder's odd limits or clock must not panic.
#[test]
fn ul_13_odd_limits_and_times_do_not_overflow() {
    let limits = Limits { ttl_min: secs(9), ttl_max: secs(3), ..Limits::default() };
    assert_eq!(limits.ttl(None), secs(3));
    let store = LinkStore::new(Limits { outcomes_kept: Duration::MAX, ..limits });
    let link = store.mint("alice", (), None, Duration::MAX, entropy()).unwrap();
    assert!(
        store.status(&link.id, "alice", Duration::MAX).is_none(),
        "expired and retired at the end of time"
    );
}

/// There is no wall clock to jump: the only time is the argument. A day on the wall between two readings that
/// are one second apart on the monotonic clock changes nothing, which the signatures make true; what is left
/// to test is that the age alone counts and not the absolute time.
#[test]
fn ul_14_only_the_monotonic_age_counts() {
    for start in [Duration::ZERO, secs(86_400), secs(86_400 * 365)] {
        let store = store();
        let link = mint(&store, "alice", start);
        let status = store.status(&link.id, "alice", start + secs(1));
        assert_eq!(status, Some(LinkStatus::Pending { expires_in: secs(599) }));
        assert!(matches!(store.claim(link.token.expose(), start + secs(599)), Presented::Won(_)));
    }
}

#[test]
fn ul_15_the_51st_pending_link_is_refused_and_nothing_evicted() {
    let store = store();
    let links: Vec<Minted> = (0..50).map(|n| mint(&store, &format!("owner {}", n / 10), T0)).collect();
    let refused = store.mint("somebody else", "x", None, T0, entropy());
    assert_eq!(refused.map(|_| ()), Err(MintError::StoreFull { limit: 50 }));
    assert_eq!(store.counts().pending, 50);
    for link in &links {
        let owner = store
            .status(&link.id, "owner 0", T0)
            .or_else(|| (1..5).find_map(|n| store.status(&link.id, &format!("owner {n}"), T0)));
        assert_eq!(owner, Some(LinkStatus::Pending { expires_in: secs(600) }));
    }
    // One is spent: one place is free, and only one.
    drop(won(store.claim(links[7].token.expose(), T0)));
    mint(&store, "somebody else", T0);
    let refused = store.mint("somebody else", "x", None, T0, entropy());
    assert_eq!(refused.map(|_| ()), Err(MintError::StoreFull { limit: 50 }));
}

#[test]
fn ul_15_expired_links_are_swept_before_a_refusal() {
    let store = store();
    for n in 0..50 {
        mint(&store, &format!("owner {}", n / 10), T0);
    }
    let just_before = T0 + secs(600) - Duration::from_nanos(1);
    assert!(store.mint("late", "x", None, just_before, entropy()).is_err());
    for _ in 0..10 {
        mint(&store, "owner 0", T0 + secs(600));
    }
    assert_eq!(store.counts(), Counts { pending: 10, running: 0, outcomes: 50 });
}

#[test]
fn ul_15_a_voided_link_frees_its_place() {
    let store = Arc::new(LinkStore::new(Limits { max_pending: 1, ..Limits::default() }));
    let first = mint(&store, "alice", T0);
    assert!(store.mint("alice", "x", None, T0, entropy()).is_err());
    assert!(store.void(&first.id, "token revoked", T0));
    assert!(!store.void(&first.id, "twice", T0));
    mint(&store, "alice", T0);
    // Its owner reads why; its token is absent, and that is no reuse: it was never spent.
    let outcome = Outcome::Voided { reason: "token revoked".into() };
    assert_eq!(store.status(&first.id, "alice", T0), Some(LinkStatus::Done { outcome }));
    assert!(matches!(store.claim(first.token.expose(), T0), Presented::Absent));
}

#[test]
fn ul_16_one_owner_cannot_take_every_place() {
    let store = store();
    for _ in 0..10 {
        mint(&store, "greedy", T0);
    }
    for _ in 10..50 {
        let refused = store.mint("greedy", "x", None, T0, entropy());
        assert_eq!(refused.map(|_| ()), Err(MintError::OwnerFull { limit: 10 }));
    }
    for _ in 0..10 {
        mint(&store, "modest", T0);
    }
    assert_eq!(store.counts().pending, 20);
}

/// The same for what is left behind: a mint-and-spend loop retires only the looper's own outcomes.
#[test]
fn ul_16_one_owner_cannot_flush_the_outcomes_of_another() {
    let limits = Limits { max_outcomes: 6, outcomes_per_owner: 4, ..Limits::default() };
    let store = Arc::new(LinkStore::new(limits));
    let modest = mint(&store, "modest", T0);
    won(store.claim(modest.token.expose(), T0)).finish(delivered(1), T0);
    let mut greedy = Vec::new();
    for n in 1..=50 {
        let link = mint(&store, "greedy", T0 + secs(n));
        won(store.claim(link.token.expose(), T0 + secs(n))).finish(delivered(n), T0 + secs(n));
        greedy.push(link);
    }
    let now = T0 + secs(60);
    assert_eq!(store.counts(), Counts { pending: 0, running: 0, outcomes: 5 });
    assert!(store.status(&modest.id, "modest", now).is_some());
    assert!(matches!(store.claim(modest.token.expose(), now), Presented::Reused { .. }));
    for (n, link) in greedy.iter().enumerate() {
        let kept = n >= 46;
        assert_eq!(store.status(&link.id, "greedy", now).is_some(), kept, "{n}");
        // With its outcome goes the memory of its token: still refused, no longer reported.
        assert_eq!(matches!(store.claim(link.token.expose(), now), Presented::Reused { .. }), kept, "{n}");
        assert!(!matches!(store.claim(link.token.expose(), now), Presented::Won(_)), "{n}");
    }
}

#[test]
fn ul_28_only_the_minter_reads_and_only_for_an_hour() {
    let store = store();
    let link = mint(&store, "alice", T0);
    let unknown = LinkId::from_entropy([9; 16]);
    for owner in ["bob", "", "Alice", "alice "] {
        assert_eq!(store.status(&link.id, owner, T0), store.status(&unknown, owner, T0), "{owner:?}");
    }
    let claim = won(store.claim(link.token.expose(), T0));
    assert_eq!(store.status(&link.id, "alice", T0), Some(LinkStatus::Running { bytes: 0, stage: "" }));
    claim.progress(4096, "receiving");
    assert_eq!(
        store.status(&link.id, "alice", T0),
        Some(LinkStatus::Running { bytes: 4096, stage: "receiving" })
    );
    assert_eq!(store.status(&link.id, "bob", T0), None);

    let end = T0 + secs(4000);
    claim.finish(delivered(8192), end);
    let retired = end + secs(3600);
    let status = store.status(&link.id, "alice", retired - Duration::from_nanos(1));
    assert_eq!(status, Some(LinkStatus::Done { outcome: delivered(8192) }));
    assert_eq!(store.status(&link.id, "bob", retired - Duration::from_nanos(1)), None);
    assert_eq!(store.status(&link.id, "alice", retired), None);
    assert_eq!(store.counts(), Counts { pending: 0, running: 0, outcomes: 0 });
}

/// What an owner is shown of all links is what the single questions answer, and nothing of anybody else's.
#[test]
fn ul_28_a_list_holds_the_askers_links_and_no_others() {
    let store = store();
    let links: Vec<Minted> = (0..3).map(|_| mint(&store, "alice", T0)).collect();
    let other = mint(&store, "bob", T0);
    let running = won(store.claim(links[0].token.expose(), T0));
    assert!(store.void(&links[1].id, "token revoked", T0));
    let now = T0 + secs(1);
    let mut expected: Vec<_> =
        links.iter().map(|link| (link.id, store.status(&link.id, "alice", now).unwrap())).collect();
    expected.sort_by_key(|(id, _)| *id);
    assert_eq!(store.list("alice", now), expected);
    assert_eq!(store.list("bob", now), [(other.id, LinkStatus::Pending { expires_in: secs(599) })]);
    assert_eq!(store.list("Alice", now), []);
    drop(running);
}

#[test]
fn new_limits_count_from_the_next_link_on_and_take_nothing_back() {
    let store = store();
    let old = [mint(&store, "alice", T0), mint(&store, "alice", T0)];
    let fewer = Limits { per_owner: 1, ttl_default: secs(60), ..Limits::default() };
    store.set_limits(fewer);
    assert_eq!(store.limits(), fewer);
    let refused = store.mint("alice", "x", None, T0, entropy());
    assert_eq!(refused.map(|_| ()), Err(MintError::OwnerFull { limit: 1 }));
    assert_eq!(mint(&store, "bob", T0).expires_in, secs(60));
    for link in &old {
        let status = store.status(&link.id, "alice", T0);
        assert_eq!(status, Some(LinkStatus::Pending { expires_in: secs(600) }));
    }
}

#[test]
fn ul_33_a_second_presentation_is_reported_and_looks_absent() {
    let store = store();
    let link = mint(&store, "alice", T0);
    let token = link.token.expose();
    let claim = won(store.claim(token, T0));
    let reused = |now| match store.claim(token, now) {
        Presented::Reused { id, owner } => Some((id, owner.to_string())),
        Presented::Absent => None,
        Presented::Won(_) => panic!("won twice"),
    };
    let alert = Some((link.id, "alice".to_owned()));
    assert_eq!(reused(T0), alert, "while it runs");
    // A transfer may outlast the lifetime of its link.
    assert_eq!(reused(T0 + secs(5000)), alert, "after the lifetime");
    let end = T0 + secs(5001);
    claim.finish(delivered(1), end);
    assert_eq!(reused(end + secs(3600) - Duration::from_nanos(1)), alert, "as long as the outcome is kept");
    assert_eq!(reused(end + secs(3600)), None, "then it is forgotten");
}

#[test]
fn a_dropped_claim_leaves_aborted_with_the_bytes_so_far() {
    let store = store();
    let link = mint(&store, "alice", T0);
    let claim = won(store.claim(link.token.expose(), T0));
    assert_eq!((claim.id(), claim.owner(), *claim.binding()), (link.id, "alice", "guest 905"));
    claim.progress(400_000, "receiving");
    let panicked = std::thread::spawn(move || {
        let _claim = claim;
        std::panic::resume_unwind(Box::new("the push went wrong"));
    })
    .join();
    assert!(panicked.is_err());
    let outcome = Outcome::Aborted { bytes: 400_000 };
    assert_eq!(outcome.code(), "aborted");
    assert_eq!(store.status(&link.id, "alice", T0), Some(LinkStatus::Done { outcome }));
    assert!(matches!(store.claim(link.token.expose(), T0), Presented::Reused { .. }));
}

#[test]
fn a_running_link_cannot_be_voided() {
    let store = store();
    let link = mint(&store, "alice", T0);
    let claim = won(store.claim(link.token.expose(), T0));
    assert!(!store.void(&link.id, "too late", T0));
    claim.finish(Outcome::Voided { reason: "the guest is another one now".into() }, T0);
    assert!(!store.void(&link.id, "too late", T0));
    assert!(matches!(
        store.status(&link.id, "alice", T0),
        Some(LinkStatus::Done { outcome: Outcome::Voided { reason } }) if reason.starts_with("the guest")
    ));
}

#[test]
fn repeated_entropy_is_refused() {
    let store = store();
    let bits = entropy();
    let link = store.mint("alice", "x", None, T0, bits).unwrap();
    let (mut same_token, mut same_id) = (bits, bits);
    same_token[47] ^= 1;
    same_id[0] ^= 1;
    for repeated in [bits, same_token, same_id] {
        let refused = store.mint("bob", "y", None, T0, repeated);
        assert_eq!(refused.map(|_| ()), Err(MintError::EntropyRepeated));
    }
    assert_eq!(won(store.claim(link.token.expose(), T0)).owner(), "alice");
    // A spent token does not come back to life either.
    assert_eq!(store.mint("bob", "y", None, T0, bits).map(|_| ()), Err(MintError::EntropyRepeated));
}

/// A binding's `Drop` may use the store: it never runs under the lock.
#[test]
fn bindings_are_dropped_outside_the_lock() {
    struct Nosy(Arc<LinkStore<Nosy>>, Arc<AtomicUsize>);
    impl Drop for Nosy {
        fn drop(&mut self) {
            let _ = self.0.counts();
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let store = Arc::new(LinkStore::new(Limits { max_pending: 3, ..Limits::default() }));
    let drops = Arc::new(AtomicUsize::new(0));
    let nosy = || Nosy(Arc::clone(&store), Arc::clone(&drops));
    let links: Vec<_> = (0..3).map(|_| store.mint("alice", nosy(), None, T0, entropy()).unwrap()).collect();
    assert!(store.mint("alice", nosy(), None, T0, entropy()).is_err());
    assert_eq!(drops.load(Ordering::Relaxed), 1, "refused");
    store.void(&links[0].id, "revoked", T0);
    assert_eq!(drops.load(Ordering::Relaxed), 2, "voided");
    won(store.claim(links[1].token.expose(), T0)).finish(delivered(1), T0);
    assert_eq!(drops.load(Ordering::Relaxed), 3, "finished");
    store.sweep(T0 + secs(600));
    assert_eq!(drops.load(Ordering::Relaxed), 4, "expired");
}

#[test]
fn the_hasher_stops_at_the_cap_and_stays_stopped() {
    for (chunks, taken) in [(vec![4, 4], Ok(8)), (vec![8, 0], Ok(8)), (vec![9], Err(0)), (vec![7, 2], Err(7))]
    {
        let mut hasher = CappedHasher::new(8);
        let mut all = Ok(());
        for length in chunks {
            all = all.and(hasher.update(&vec![b'x'; length]));
        }
        match taken {
            Ok(bytes) => {
                assert_eq!((all, hasher.bytes()), (Ok(()), bytes));
                let (bytes, sha256) = hasher.finish().unwrap();
                assert_eq!(bytes, 8);
                // printf xxxxxxxx | sha256sum
                assert_eq!(sha256[..4], [0x4c, 0xf0, 0xc1, 0x01]);
            }
            Err(_) => {
                assert_eq!(all, Err(OverCap { cap: 8 }));
                assert_eq!(hasher.update(b""), Err(OverCap { cap: 8 }), "an empty chunk does not reopen it");
                assert_eq!(hasher.finish(), Err(OverCap { cap: 8 }));
            }
        }
    }
}
