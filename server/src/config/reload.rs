//! SIGHUP: read everything again; all of it or nothing.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::diff;
use super::load::{Sources, load};
use super::problem::Problem;
use super::process_environment;
use super::snapshot::Live;
use crate::audit::{Audit, Event, Record};

/// The stream of [`catch_hangups`] until a [`Reloader`] takes it over. Signals are the process's, and so is what
/// catches them.
static CAUGHT: Mutex<Option<Signal>> = Mutex::new(None);

/// Catches SIGHUP from now on, for the [`Reloader`] that will run. A program calls this before it reads its
/// configuration: the signal's default would end it, and a change announced while it starts must not be missed.
///
/// # Errors
/// When the system does not let the signal be caught. Needs a running tokio runtime.
pub fn catch_hangups() -> std::io::Result<()> {
    *CAUGHT.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal(SignalKind::hangup())?);
    Ok(())
}

/// What a reload did.
#[derive(Debug)]
pub struct ReloadReport {
    /// The generation now in force.
    pub generation: u64,
    /// What an operator should look at although it loaded.
    pub warnings: Vec<Problem>,
}

/// Reads the configuration again on request.
#[derive(Debug)]
pub struct Reloader {
    sources: Sources,
    live: Arc<Live>,
    audit: OnceLock<Audit>,
    /// One reload at a time, so that an older reading never replaces a newer one.
    turn: tokio::sync::Mutex<()>,
}

impl Reloader {
    /// A reloader for the sources that the first snapshot came from. Without an audit (a stdio process that has
    /// not taken the state lock) nothing is recorded.
    pub fn new(sources: Sources, live: Arc<Live>, audit: Option<Audit>) -> Self {
        let audit = audit.map(OnceLock::from).unwrap_or_default();
        Self { sources, live, audit, turn: tokio::sync::Mutex::new(()) }
    }

    /// Records from now on in `audit`: a stdio process has taken the state lock. The first one given stays.
    pub fn record_to(&self, audit: Audit) {
        let _ = self.audit.set(audit);
    }

    /// Opens the audit file anew, then reads every file. When anything is wrong the running configuration stays
    /// (expiries in it go on counting), the problems are returned, logged and audited, and
    /// [`Live::degraded`] is set until a reload succeeds.
    pub async fn reload(&self) -> Result<ReloadReport, Vec<Problem>> {
        let _turn = self.turn.lock().await;
        // First of all, so that what follows is recorded in the new file.
        if let Some(audit) = self.audit.get()
            && let Err(error) = audit.reopen().await
        {
            tracing::error!(%error, "the audit file was not opened anew");
        }
        let old = self.live.load();
        let sources = self.sources.clone();
        let generation = old.generation.saturating_add(1);
        // Reading and parsing blocks; calls go on meanwhile.
        let result =
            tokio::task::spawn_blocking(move || load(&sources, generation, &process_environment)).await;
        let result = result.unwrap_or_else(|_| {
            Err(vec![Problem::flag(
                "reading the configuration ended unexpectedly; this is a fault of the program",
            )])
        });
        match result {
            Ok(loaded) => {
                let mut record = Record::new(Event::ConfigReload).outcome("ok").generation(generation);
                for (key, value) in diff::between(&old, &loaded.snapshot) {
                    record = record.detail(key, value);
                }
                self.live.replace(loaded.snapshot);
                for warning in &loaded.warnings {
                    tracing::warn!("{warning}");
                }
                tracing::info!(generation, "the configuration was read again");
                self.record(record).await;
                Ok(ReloadReport { generation, warnings: loaded.warnings })
            }
            Err(problems) => {
                // Before it is said, so that whoever reads the log finds it so.
                self.live.keep(problems.clone());
                for problem in &problems {
                    tracing::error!("{problem}");
                }
                tracing::error!(
                    generation = old.generation,
                    "the configuration was not taken; the one in force stays"
                );
                let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
                let record = Record::new(Event::ConfigReload)
                    .outcome("failed")
                    .generation(old.generation)
                    .detail("problems", texts);
                self.record(record).await;
                Err(problems)
            }
        }
    }

    /// Waits for the reload that is running, if one is; none begins while the guard lives. For the end of the server: what a
    /// reload changed is recorded before the audit closes.
    pub async fn pause(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    async fn record(&self, record: Record) {
        if let Some(audit) = self.audit.get()
            && let Err(error) = audit.append_durable(record).await
        {
            tracing::error!(%error, "the reload was not recorded");
        }
    }

    /// Reloads at every SIGHUP, for ever. Signals that arrive during a reload lead to one more, not to many.
    /// A signal that came since [`catch_hangups`] leads to a reload at once.
    pub async fn run(&self) -> std::io::Result<()> {
        let early = CAUGHT.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut hangups = match early {
            Some(hangups) => hangups,
            None => signal(SignalKind::hangup())?,
        };
        while hangups.recv().await.is_some() {
            // Reported by `reload` itself.
            let _ = self.reload().await;
        }
        Ok(())
    }
}
