//! The token's text is in the mint's answer and nowhere else.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use transfers::{
    CappedHasher, Limits, LinkStore, LinkToken, MintError, NotALinkId, OverCap, Presented, TtlError,
};

/// What of a token would help an attacker: its text, any eight characters of it, its bytes in hex or as a
/// list of numbers, its hash.
fn canaries(entropy: &[u8; 48], text: &str) -> Vec<String> {
    let mut canaries: Vec<String> =
        text.as_bytes().windows(8).map(|w| String::from_utf8_lossy(w).into()).collect();
    let hash: [u8; 32] = {
        let mut hasher = CappedHasher::new(32);
        hasher.update(&entropy[..32]).unwrap();
        hasher.finish().unwrap().1
    };
    for bytes in [&entropy[..32], &hash[..]] {
        for four in bytes.windows(4) {
            canaries.push(four.iter().map(|b| format!("{b:02x}")).collect());
            canaries.push(format!("{four:?}").trim_matches(['[', ']']).to_owned());
        }
    }
    canaries
}

#[test]
fn ul_32_no_debug_or_error_holds_the_token() {
    let entropy: [u8; 48] = std::array::from_fn(|n| 0xb7_u8.wrapping_mul(n as u8 + 3) ^ 0x5c);
    let limits = Limits { max_pending: 1, ..Limits::default() };
    let store = Arc::new(LinkStore::new(limits));
    let now = Duration::from_secs(1);
    let minted = store.mint("alice", "guest 905", None, now, entropy).unwrap();
    let text = minted.token.expose().to_owned();
    let canaries = canaries(&entropy, &text);

    let mut shown = Vec::new();
    let mut show = |value: &dyn Debug| {
        shown.push(format!("{value:?}"));
        shown.push(format!("{value:#?}"));
    };
    show(&minted);
    show(&minted.token);
    show(&minted.id);
    show(&LinkToken::parse(&text));
    show(&store);
    show(&store.limits());
    show(&store.counts());
    show(&store.status(&minted.id, "alice", now));
    show(&store.mint("bob", "x", None, now, entropy));
    let presented = store.claim(&text, now);
    show(&presented);
    show(&store);
    show(&store.status(&minted.id, "alice", now));
    let Presented::Won(claim) = presented else { panic!("not won") };
    show(&claim);
    drop(claim);
    show(&store.claim(&text, now));
    show(&store.claim(&text[1..], now));
    show(&store.status(&minted.id, "alice", now));
    show(&text.parse::<transfers::LinkId>());
    show(&limits.ttl_from_text(&text));
    let mut hasher = CappedHasher::new(43);
    hasher.update(text.as_bytes()).unwrap();
    show(&hasher);
    show(&store.mint("alice", "x", None, now, entropy));
    for error in [
        MintError::StoreFull { limit: 1 }.to_string(),
        MintError::OwnerFull { limit: 1 }.to_string(),
        MintError::EntropyRepeated.to_string(),
        NotALinkId.to_string(),
        TtlError.to_string(),
        OverCap { cap: 43 }.to_string(),
    ] {
        shown.push(error);
    }

    for text in &shown {
        for canary in &canaries {
            assert!(!text.contains(canary.as_str()), "{canary:?} in {text}");
        }
    }
    // The scan itself works: the one place that may show the token does.
    assert!(canaries.iter().any(|canary| minted.token.expose().contains(canary.as_str())));
}

/// What a log line shows instead: enough to find the link, nothing to redeem it.
#[test]
fn ul_32_debug_names_the_link_and_counts() {
    let store = Arc::new(LinkStore::new(Limits { max_pending: 3, ..Limits::default() }));
    assert_eq!(store.limits().max_pending, 3);
    let mut entropy = [9; 48];
    entropy[32..].fill(0x21);
    let minted = store.mint("alice", "guest 905", None, Duration::ZERO, entropy).unwrap();
    assert_eq!(minted.id.as_bytes(), &[0x21; 16]);
    let id = minted.id.to_string();
    assert_eq!(format!("{:?}", minted.id), format!("LinkId({id})"));
    assert_eq!(format!("{:?}", minted.token), "LinkToken(..)");
    let counts = "LinkStore { counts: Counts { pending: 1, running: 0, outcomes: 0 }, .. }";
    assert_eq!(format!("{store:?}"), counts);
    let Presented::Won(claim) = store.claim(minted.token.expose(), Duration::ZERO) else { panic!("not won") };
    assert_eq!(format!("{claim:?}"), format!("Claim {{ id: LinkId({id}), owner: \"alice\", .. }}"));
    assert_eq!(format!("{:?}", CappedHasher::new(7)), "CappedHasher { cap: 7, left: Some(7), .. }");
}
