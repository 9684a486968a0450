//! The link store embedded: one link, eight requests that race for it, one upload.
//!
//! `cargo run -p transfers --example links`

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use transfers::{CappedHasher, Limits, LinkStore, Outcome, Presented};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let store = Arc::new(LinkStore::new(Limits::default()));

    let mut entropy = [0; 48];
    getrandom::fill(&mut entropy)?;
    let link =
        store.mint("alice", "/srv/backup.tar", Some(Duration::from_secs(5)), started.elapsed(), entropy)?;
    println!("link {} lives {:?} (5 s were asked for, 60 s is the least)", link.id, link.expires_in);

    // A real server would have the token in its URL path; here the "requests" share it.
    let presented = link.token.expose();
    thread::scope(|scope| {
        for request in 1..=8 {
            let store = &store;
            scope.spawn(move || match store.claim(presented, started.elapsed()) {
                Presented::Won(claim) => {
                    let mut hasher = CappedHasher::new(1024);
                    let outcome = match hasher.update(b"the file").and_then(|()| hasher.finish()) {
                        Ok((bytes, sha256)) => {
                            let (verified_at, route) = ("nowhere", "example");
                            Outcome::Ok { bytes, sha256, verified_at, checksum_verified: false, route }
                        }
                        Err(over) => Outcome::Failed { code: "too_large", message: over.to_string() },
                    };
                    println!("request {request}: 200 for {} to {}", claim.owner(), claim.binding());
                    claim.finish(outcome, started.elapsed());
                }
                Presented::Reused { id, .. } => {
                    println!("request {request}: 404, and an alert: {id} was reused")
                }
                Presented::Absent => println!("request {request}: 404"),
            });
        }
    });
    println!("alice reads {:?}", store.status(&link.id, "alice", started.elapsed()));
    println!("bob reads   {:?}", store.status(&link.id, "bob", started.elapsed()));
    Ok(())
}
