//! From an `Authorization` header to a principal.
//!
//! What is malformed or unknown dies cheaply. A known argon2id entry costs at most one argon2 run, behind a bounded permit; a
//! success is remembered under a keyed hash for as long as the configuration stands. So wrong tokens cannot starve right ones.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use authz::{Lookup, Principal};
use hmac::{Hmac, KeyInit, Mac};
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use mcp_wire::http::Refusal;
use sha2::Sha256;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::app::App;
use crate::audit::{Event, Record};
use crate::config::Snapshot;
use crate::limiter::PeerLimiter;

/// Verified argon2id tokens remembered at once.
const MAX_REMEMBERED: usize = 10_000;
const REALM: &str = "proxward";

type CacheKey = [u8; 32];

/// What a token with a known argon2id entry meets.
#[derive(Debug)]
enum Turn {
    /// It was verified before under this configuration.
    Remembered(Arc<Principal>),
    /// It may be hashed now, while this is held.
    Check(OwnedSemaphorePermit),
}

/// Authenticates requests.
#[derive(Debug)]
pub struct Bearer {
    key: Hmac<Sha256>,
    remembered: Mutex<HashMap<CacheKey, (u64, Arc<Principal>)>>,
    argon2: Arc<Semaphore>,
    failures: PeerLimiter,
    suppressed: AtomicU64,
    allow_no_auth: bool,
}

impl Bearer {
    /// With a process key of its own: nothing remembered outlives the process.
    ///
    /// # Errors
    /// No randomness.
    pub fn new(allow_no_auth: bool) -> anyhow::Result<Self> {
        let mut key = [0_u8; 32];
        getrandom::fill(&mut key)
            .map_err(|error| anyhow::anyhow!("no randomness for the token cache: {error}"))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            key: Hmac::new_from_slice(&key).map_err(|_| anyhow::anyhow!("HMAC takes any key"))?,
            remembered: Mutex::default(),
            argon2: Arc::new(Semaphore::new((cores / 2).max(1))),
            failures: PeerLimiter::default(),
            suppressed: AtomicU64::new(0),
            allow_no_auth,
        })
    }

    /// The principal of a request from `peer`.
    ///
    /// # Errors
    /// 400 for a repeated header, 401 for a missing or wrong token, 429 for a peer with too many wrong ones.
    pub async fn authenticate(
        &self,
        app: &App,
        snapshot: &Snapshot,
        parts: &Parts,
        peer: IpAddr,
    ) -> Result<Arc<Principal>, Refusal> {
        let Some(token) = token_of(&parts.headers)? else {
            if self.allow_no_auth {
                return Ok(Arc::new(Principal::anonymous_reader()));
            }
            return Err(Refusal::unauthorized(
                REALM,
                "a bearer token is required: send `Authorization: Bearer pxw_…`; the operator makes one with `proxward token add`",
            ));
        };
        let now = app.clock.now();
        match snapshot.tokens.lookup(token, now) {
            Lookup::Principal(principal) => Ok(principal),
            Lookup::Refused(refusal) => Err(self.refuse(app, snapshot, peer, refusal.code()).await),
            Lookup::Argon2(candidate) => {
                let key = self.cache_key(token);
                let clock = || app.clock.monotonic();
                let turn = self.turn(&key, snapshot.generation, peer, per_minute(snapshot), clock).await?;
                let permit = match turn {
                    // Its expiry is checked at every call, too: `lookup` just did.
                    Turn::Remembered(principal) => return Ok(principal),
                    Turn::Check(permit) => permit,
                };
                let token = zeroize_on_drop(token);
                let verified = tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    candidate.verify(&token.0)
                })
                .await;
                match verified {
                    Ok(Ok(principal)) => {
                        self.remember(key, snapshot.generation, principal.clone());
                        Ok(principal)
                    }
                    Ok(Err(refusal)) => Err(self.refuse(app, snapshot, peer, refusal.code()).await),
                    Err(_) => Err(self.refuse(app, snapshot, peer, "internal").await),
                }
            }
        }
    }

    /// A token's turn at the slow hash, unless it was verified before. What decided before the wait is looked at again after
    /// it: of a burst that one address sends at once, no more is hashed than its share, and of many calls with one good token
    /// only the first.
    async fn turn(
        &self,
        key: &CacheKey,
        generation: u64,
        peer: IpAddr,
        allowed: u32,
        clock: impl Fn() -> Duration,
    ) -> Result<Turn, Refusal> {
        let settled = || match self.recall(key, generation) {
            Some(principal) => Some(Ok(Turn::Remembered(principal))),
            None => self.failures.exhausted(peer, allowed, clock()).then(|| Err(too_many())),
        };
        if let Some(settled) = settled() {
            return settled;
        }
        let permit = self.argon2.clone().acquire_owned().await.map_err(|_| too_many())?;
        settled().unwrap_or(Ok(Turn::Check(permit)))
    }

    /// One answer for every wrong token; the audit knows which it was. A flood is counted, not written line by line.
    async fn refuse(&self, app: &App, snapshot: &Snapshot, peer: IpAddr, code: &str) -> Refusal {
        app.metrics.refused_bearer();
        if !self.failures.failure(peer, per_minute(snapshot), app.clock.monotonic()) {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return too_many();
        }
        let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
        let mut record =
            Record::new(Event::AuthFailure).peer(peer).denied(code, "the bearer token was refused");
        if suppressed > 0 {
            record = record.detail("not_written_before", suppressed);
        }
        if let Err(error) = app.audit.append(record).await {
            tracing::error!(%error, "a refused login could not be audited");
        }
        Refusal::invalid_token(
            REALM,
            "the bearer token is not valid; ask the operator of this server for one",
        )
    }

    fn cache_key(&self, token: &str) -> CacheKey {
        let mut mac = self.key.clone();
        mac.update(token.as_bytes());
        mac.finalize().into_bytes().into()
    }

    fn recall(&self, key: &CacheKey, generation: u64) -> Option<Arc<Principal>> {
        let remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.get(key).filter(|(at, _)| *at == generation).map(|(_, principal)| principal.clone())
    }

    fn remember(&self, key: CacheKey, generation: u64, principal: Arc<Principal>) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= MAX_REMEMBERED {
            remembered.retain(|_, (at, _)| *at == generation);
        }
        if remembered.len() < MAX_REMEMBERED {
            remembered.insert(key, (generation, principal));
        }
    }
}

fn per_minute(snapshot: &Snapshot) -> u32 {
    u32::try_from(snapshot.policy.limits.bearer_failures_per_minute).unwrap_or(u32::MAX)
}

fn too_many() -> Refusal {
    let mut refusal = Refusal::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too_many_requests",
        "too many wrong tokens from this address; wait a minute",
    );
    refusal.retry_after = Some(60);
    refusal
}

/// The bearer token of a request. It is read from this header and from nowhere else.
fn token_of(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            "bad_request",
            "the Authorization header was sent more than once",
        ));
    }
    let malformed = || Refusal::unauthorized(REALM, "the Authorization header must be `Bearer` and a token");
    let text = value.to_str().map_err(|_| malformed())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(malformed)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(malformed());
    }
    Ok(Some(token.trim_matches(' ')))
}

struct Wiped(String);

impl Drop for Wiped {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

fn zeroize_on_drop(token: &str) -> Wiped {
    Wiped(token.to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(values: &[&'static str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn tk_04_one_header_one_scheme_in_any_case() {
        for value in ["Bearer abc", "bearer abc", "BEARER abc", "Bearer  abc "] {
            assert_eq!(token_of(&headers(&[value])).unwrap(), Some("abc"), "{value}");
        }
        assert_eq!(token_of(&headers(&[])).unwrap(), None);
        assert_eq!(
            token_of(&headers(&["Bearer a", "Bearer b"])).unwrap_err().status,
            StatusCode::BAD_REQUEST
        );
        for value in ["abc", "Basic abc", "Bearer\tabc"] {
            assert_eq!(token_of(&headers(&[value])).unwrap_err().status, StatusCode::UNAUTHORIZED, "{value}");
        }
    }

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    /// Everything that waits for the hash, with the hash's permits taken.
    async fn waiting(
        bearer: &Arc<Bearer>,
        calls: u8,
        key: impl Fn(u8) -> CacheKey,
    ) -> (Vec<tokio::task::JoinHandle<Result<Turn, Refusal>>>, OwnedSemaphorePermit) {
        let all = u32::try_from(bearer.argon2.available_permits()).unwrap();
        let taken = bearer.argon2.clone().acquire_many_owned(all).await.unwrap();
        let calls = (0..calls)
            .map(|n| {
                let (bearer, key) = (bearer.clone(), key(n));
                tokio::spawn(async move { bearer.turn(&key, 1, PEER, 20, || Duration::from_secs(9)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        (calls, taken)
    }

    #[tokio::test]
    async fn tk_01_a_burst_that_waits_for_the_hash_is_held_to_its_address_share() {
        let bearer = Arc::new(Bearer::new(false).unwrap());
        let (calls, taken) = waiting(&bearer, 60, |n| [n; 32]).await;
        // Meanwhile the address has failed as often as it may.
        assert!((0..20).all(|_| bearer.failures.failure(PEER, 20, Duration::from_secs(9))));
        drop(taken);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap_err().status, StatusCode::TOO_MANY_REQUESTS);
        }
    }

    /// The cache is keyed by a secret of this process: what another one remembered means nothing here.
    #[test]
    fn tk_13_no_two_processes_remember_a_token_under_the_same_key() {
        let (one, other) = (Bearer::new(false).unwrap(), Bearer::new(false).unwrap());
        assert_eq!(one.cache_key("pxw_x"), one.cache_key("pxw_x"));
        assert_ne!(one.cache_key("pxw_x"), one.cache_key("pxw_y"));
        assert_ne!(one.cache_key("pxw_x"), other.cache_key("pxw_x"));
        one.remember(one.cache_key("pxw_x"), 1, Arc::new(Principal::anonymous_reader()));
        assert!(one.recall(&one.cache_key("pxw_x"), 1).is_some());
        // Nor does a configuration remember for the next one.
        assert!(one.recall(&one.cache_key("pxw_x"), 2).is_none());
        assert!(other.recall(&one.cache_key("pxw_x"), 1).is_none());
    }

    #[tokio::test]
    async fn tk_02_calls_that_wait_with_one_good_token_cost_one_hash() {
        let bearer = Arc::new(Bearer::new(false).unwrap());
        let (calls, taken) = waiting(&bearer, 60, |_| [7; 32]).await;
        bearer.remember([7; 32], 1, Arc::new(Principal::anonymous_reader()));
        drop(taken);
        for call in calls {
            assert!(matches!(call.await.unwrap().unwrap(), Turn::Remembered(_)));
        }
    }
}
