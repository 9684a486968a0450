//! `authz` and Cedar allow the same calls.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use peers::{Call, Cedar, Ours, Policy, Random};

/// Calls for each policy: loading one costs as much as many decisions.
const CALLS: u64 = 20;

/// 20,000 cases; `PEERS_CASES` sets another number, `PEERS_SEED` another beginning.
#[test]
fn gr_16_authz_and_cedar_decide_alike() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (cases, seed) = (number("PEERS_CASES", 20_000), number("PEERS_SEED", 0x5eed));
    let mut random = Random(seed.max(1));
    let mut allowed = 0_u64;
    for _ in 0..cases / CALLS {
        let policy = Policy::random(&mut random);
        let (ours, cedar) = (Ours::new(&policy), Cedar::new(&policy));
        for _ in 0..CALLS {
            let call = Call::random(&mut random);
            let allows = ours.allows(&call);
            assert_eq!(allows, cedar.allows(&call), "authz against Cedar\n{call:?}\n{policy:?}\n{cedar:?}");
            allowed += u64::from(allows);
        }
    }
    println!("{cases} cases with seed {seed}, {allowed} allowed, no difference");
    assert!(allowed * 100 > cases, "too few were allowed to mean anything: {allowed}");
}
