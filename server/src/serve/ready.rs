//! `/readyz`: whether the server can do its work. Anyone may ask, so it names no cluster and counts none.

use std::time::Duration;

use tokio::sync::Mutex;

use crate::app::App;
use crate::config::Snapshot;
use crate::tools::clusters::ask_each;

/// Longest that a cluster may take to count as one that answers.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// How long a look at the clusters is good for: however often somebody asks, no cluster is asked more often than this.
const KEPT: Duration = Duration::from_secs(5);

/// What `/readyz` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    /// Everything can be done.
    Ok,
    /// Something cannot: a cluster does not answer, or the files hold a configuration that was not taken.
    Degraded,
    /// Nothing can be changed: the audit or the state store refuses, or no cluster answers.
    No,
}

/// Looks at the clusters, and remembers for a while what it saw.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    /// Held while the clusters are asked: who asks in the meantime waits for that answer.
    seen: Mutex<Option<Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    generation: u64,
    at: Duration,
    reach: Reach,
}

/// How many of the clusters answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    All,
    Some,
    None,
}

impl Reach {
    fn of(answering: usize, configured: usize) -> Self {
        match answering {
            all if all == configured => Reach::All,
            0 => Reach::None,
            _ => Reach::Some,
        }
    }
}

impl Readiness {
    /// What to answer now.
    pub(super) async fn ready(&self, app: &App) -> Ready {
        if app.audit.poisoned().is_some() || app.changes.poisoned().await.is_some() {
            return Ready::No;
        }
        match self.reach(app, &app.live.load()).await {
            Reach::None => Ready::No,
            Reach::All if app.live.degraded().is_none() => Ready::Ok,
            Reach::All | Reach::Some => Ready::Degraded,
        }
    }

    async fn reach(&self, app: &App, snapshot: &Snapshot) -> Reach {
        let mut seen = self.seen.lock().await;
        if let Some(seen) = *seen
            && seen.generation == snapshot.generation
            && app.clock.monotonic().saturating_sub(seen.at) < KEPT
        {
            return seen.reach;
        }
        let clusters: Vec<_> = snapshot.clusters.values().cloned().collect();
        let configured = clusters.len();
        let answers = ask_each(clusters, |cluster| async move {
            // The smallest question that proves the address, the certificate and the API token.
            match tokio::time::timeout(ANSWER_WITHIN, cluster.client.version()).await {
                Ok(Ok(_)) => Ok(true),
                Ok(Err(error)) => {
                    tracing::warn!(cluster = %cluster.name, %error, "a cluster does not answer");
                    Ok(false)
                }
                Err(_) => {
                    tracing::warn!(cluster = %cluster.name, "a cluster takes too long to answer");
                    Ok(false)
                }
            }
        })
        .await;
        let answering = answers.iter().filter(|(_, answer)| matches!(answer, Ok(true))).count();
        let reach = Reach::of(answering, configured);
        *seen = Some(Seen { generation: snapshot.generation, at: app.clock.monotonic(), reach });
        reach
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_clusters_are_a_warning_and_none_is_the_end() {
        assert_eq!(Reach::of(2, 2), Reach::All);
        assert_eq!(Reach::of(1, 2), Reach::Some);
        assert_eq!(Reach::of(0, 2), Reach::None);
        assert_eq!(Reach::of(0, 0), Reach::All);
    }
}
