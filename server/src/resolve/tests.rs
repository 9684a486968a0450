use std::sync::atomic::AtomicUsize;

use proxmox_api::{ApiToken, Client, Endpoint, Fingerprint, Trust};
use tokio::sync::{Barrier, Notify};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// A cluster of whose client nothing is asked: nothing listens there.
fn cluster() -> Arc<Cluster> {
    let client = Client::builder()
        .endpoint(Endpoint::parse("https://127.0.0.1:1").unwrap())
        .token(ApiToken::new("proxward@pve!test", "11111111-2222".into()).unwrap())
        .trust(Trust::Leaf(Fingerprint::of(b"")))
        .build()
        .unwrap();
    let protection = authz::Protection::default();
    Arc::new(Cluster { name: "alpha".to_owned(), client, endpoints: Vec::new(), protection, ssh: None })
}

async fn unreachable(cluster: &Arc<Cluster>) -> Error {
    cluster.client.version().await.unwrap_err()
}

/// An answer that can be told from another by the number of its nodes.
fn answer(nodes: usize) -> Arc<Listing> {
    let rows = vec![r#"{"type":"node","node":"pve1","status":"online"}"#; nodes].join(",");
    Listing::new(Arc::new(Inventory::parse(format!("{{\"data\":[{rows}]}}")).unwrap()))
}

/// A request that can be held: says when it was made and waits to be let go.
#[derive(Default)]
struct Held {
    made: Notify,
    go: Notify,
}

impl Held {
    async fn answer(&self, nodes: usize) -> Result<Arc<Listing>, Error> {
        self.made.notify_one();
        self.go.notified().await;
        Ok(answer(nodes))
    }
}

/// Lets every other task of this one-threaded runtime run until it waits.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

fn never() -> std::future::Ready<Result<Arc<Listing>, Error>> {
    panic!("a request was made that should have been shared or served from the cache");
}

/// Held up by a cluster that hangs, callers must not queue behind one failure after the other.
#[tokio::test]
async fn do_04_who_waited_for_a_failure_asks_beside_the_others() {
    let (resolver, cluster) = (Arc::new(Resolver::default()), cluster());
    let (asking, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (entered, all_in) = (Arc::new(Notify::new()), Arc::new(Barrier::new(3)));
    let first = {
        let (resolver, cluster, go, entered) =
            (resolver.clone(), cluster.clone(), go.clone(), entered.clone());
        tokio::spawn(async move {
            let ask = || async {
                entered.notify_one();
                go.notified().await;
                Err(unreachable(&cluster).await)
            };
            resolver.shared(&cluster, MINUTE, ask).await.unwrap_err()
        })
    };
    entered.notified().await;
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let (resolver, cluster) = (resolver.clone(), cluster.clone());
            let (asking, all_in) = (asking.clone(), all_in.clone());
            tokio::spawn(async move {
                let ask = || async {
                    asking.fetch_add(1, Ordering::SeqCst);
                    // Only passed when all three ask at once.
                    all_in.wait().await;
                    Ok(answer(1))
                };
                resolver.shared(&cluster, MINUTE, ask).await.unwrap()
            })
        })
        .collect();
    settle().await;
    assert_eq!(asking.load(Ordering::SeqCst), 0);
    go.notify_one();
    first.await.unwrap();
    for waiter in waiting {
        waiter.await.unwrap();
    }
    assert_eq!(asking.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn what_was_asked_for_before_a_change_is_not_kept() {
    let (resolver, cluster) = (Resolver::default(), cluster());
    let asked = AtomicUsize::new(0);
    let ask = || async {
        asked.fetch_add(1, Ordering::SeqCst);
        Ok(answer(1))
    };
    // The change happens while the answer is on its way, and does not wait for it.
    let while_asking = || async {
        resolver.forget(&cluster).await;
        ask().await
    };
    resolver.shared(&cluster, MINUTE, while_asking).await.unwrap();
    resolver.shared(&cluster, MINUTE, ask).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    resolver.shared(&cluster, MINUTE, ask).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    resolver.forget(&cluster).await;
    resolver.shared(&cluster, MINUTE, ask).await.unwrap();
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

/// The slow answer of before the change arrives after the quick one of after it, and must not take its place.
#[tokio::test]
async fn a_slow_answer_from_before_a_change_never_replaces_a_younger_one() {
    let (resolver, cluster, slow) = (Arc::new(Resolver::default()), cluster(), Arc::new(Held::default()));
    let before = {
        let (resolver, cluster, slow) = (resolver.clone(), cluster.clone(), slow.clone());
        tokio::spawn(async move { resolver.shared(&cluster, MINUTE, || slow.answer(1)).await.unwrap() })
    };
    slow.made.notified().await;
    resolver.forget(&cluster).await;
    // Who asks now neither waits for the request of before nor gets its answer.
    let after = resolver.shared(&cluster, MINUTE, || async { Ok(answer(2)) }).await.unwrap();
    assert_eq!(after.inventory.len(), 2);
    slow.go.notify_one();
    assert_eq!(
        before.await.unwrap().inventory.len(),
        1,
        "who asked before the change may have the answer of before it"
    );
    assert_eq!(resolver.shared(&cluster, MINUTE, never).await.unwrap().inventory.len(), 2);
}

/// With the cache off too: calls at the same time share a request, calls one after the other do not.
#[tokio::test]
async fn calls_at_the_same_time_share_one_request_also_without_a_cache() {
    for oldest in [Duration::ZERO, MINUTE] {
        let (resolver, cluster, held) = (Arc::new(Resolver::default()), cluster(), Arc::new(Held::default()));
        let first = {
            let (resolver, cluster, held) = (resolver.clone(), cluster.clone(), held.clone());
            tokio::spawn(async move { resolver.shared(&cluster, oldest, || held.answer(3)).await.unwrap() })
        };
        held.made.notified().await;
        let others: Vec<_> = (0..31)
            .map(|_| {
                let (resolver, cluster) = (resolver.clone(), cluster.clone());
                tokio::spawn(async move { resolver.shared(&cluster, oldest, never).await.unwrap() })
            })
            .collect();
        settle().await;
        held.go.notify_one();
        let first = first.await.unwrap();
        for other in others {
            assert!(Arc::ptr_eq(&other.await.unwrap(), &first));
        }
        let asked = AtomicUsize::new(0);
        let ask = || async {
            asked.fetch_add(1, Ordering::SeqCst);
            Ok(answer(4))
        };
        resolver.shared(&cluster, oldest, ask).await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), usize::from(oldest.is_zero()), "{oldest:?}");
    }
}

/// A caller that goes away takes its request with it; of those who waited for it one asks anew, and only one.
#[tokio::test]
async fn do_04_of_those_who_waited_for_a_caller_that_went_away_one_asks() {
    let (resolver, cluster, held) = (Arc::new(Resolver::default()), cluster(), Arc::new(Held::default()));
    let gone = {
        let (resolver, cluster, held) = (resolver.clone(), cluster.clone(), held.clone());
        tokio::spawn(async move { resolver.shared(&cluster, MINUTE, || held.answer(1)).await })
    };
    held.made.notified().await;
    let asked = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let (resolver, cluster, asked) = (resolver.clone(), cluster.clone(), asked.clone());
            tokio::spawn(async move {
                let ask = || async {
                    asked.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok(answer(2))
                };
                resolver.shared(&cluster, MINUTE, ask).await.unwrap().inventory.len()
            })
        })
        .collect();
    settle().await;
    gone.abort();
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap(), 2);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

/// A reload may have given the cluster another token or another address: nothing of the old one is used.
#[tokio::test]
async fn another_configuration_of_a_cluster_is_asked_anew() {
    let (resolver, old, new) = (Resolver::default(), cluster(), cluster());
    resolver.shared(&old, MINUTE, || async { Ok(answer(1)) }).await.unwrap();
    assert_eq!(resolver.shared(&new, MINUTE, || async { Ok(answer(2)) }).await.unwrap().inventory.len(), 2);
    assert_eq!(resolver.shared(&new, MINUTE, never).await.unwrap().inventory.len(), 2);
}

/// A guest is made once for as long as a listing is kept, for whoever holds it and for nobody else; what a listing contradicts
/// itself about is never kept.
#[tokio::test]
async fn a_guest_is_made_once_a_listing_and_only_shown_to_who_holds_it() {
    let rows = |name: &str| {
        let guest = |vmid: u32, node: &str| {
            format!(r#"{{"type":"qemu","vmid":{vmid},"node":"{node}","name":"{name}","status":"running"}}"#)
        };
        let rows = [guest(100, "pve1"), guest(101, "pve1"), guest(101, "pve1"), guest(102, "gone")].join(",");
        let node = r#"{"type":"node","node":"pve1","status":"online"}"#;
        Listing::new(Arc::new(Inventory::parse(format!("{{\"data\":[{node},{rows}]}}")).unwrap()))
    };
    let (resolver, cluster, everybody) = (Resolver::default(), cluster(), Principal::local_reader("stdio"));
    let minted = authz::mint_token([7; 32], [7; 10]);
    let tokens = serde_json::json!({"version": 1, "tokens": {"other": {
        "hash": authz::sha256_entry(&minted.text), "tools": ["*"], "devices": ["alpha"],
        "grant": {"guests": ["vmid:900"], "actions": ["read"]},
    }}});
    let tokens = authz::TokenTable::parse(tokens.to_string().as_bytes()).unwrap();
    let stranger = tokens.principal("other").unwrap();
    resolver.shared(&cluster, MINUTE, || async { Ok(rows("first")) }).await.unwrap();
    let within = Freshness::Within(MINUTE);
    let first = resolver.guest(&cluster, 100, within, &everybody).await.unwrap();
    let again = resolver.guest(&cluster, 100, within, &everybody).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    for unseen in [100, 101, 103] {
        let refused = resolver.guest(&cluster, unseen, within, &stranger).await;
        assert!(matches!(refused, Err(ResolveError::Absent)), "{unseen}");
    }
    for contradicted in [101, 102] {
        for _ in 0..2 {
            let refused = resolver.guest(&cluster, contradicted, within, &everybody).await;
            assert!(matches!(refused, Err(ResolveError::Ambiguous)), "{contradicted}");
        }
    }
    resolver.forget(&cluster).await;
    resolver.shared(&cluster, MINUTE, || async { Ok(rows("second")) }).await.unwrap();
    let other = resolver.guest(&cluster, 100, within, &everybody).await.unwrap();
    assert_eq!((first.label(), other.label()), ("first".to_owned(), "second".to_owned()));
}
