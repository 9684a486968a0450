//! Start-up: configuration, keys, audit, store, recovery, in this order; the first that fails ends it with everything it found.

use std::net::SocketAddr;
use std::sync::Arc;

use changeset::store::sqlite::SqliteStore;
use changeset::{ApprovalKey, Timing};

use crate::app::{App, Tracker};
use crate::audit::{self, Audit, AuditConfig, Event, Record, Redactor};
use crate::catalog::Catalog;
use crate::changes::{Changes, ChangesError, Observer, StoreThread, older_than_trail};
use crate::cli::ServeArgs;
use crate::clock::{Clock, SystemClock};
use crate::config::{self, Live, Problem, Sources};
use crate::fetch::Fetcher;
use crate::keys::{Key, KeyError, Keys};
use crate::resolve::Resolver;
use crate::state_dir::{StateDir, StateDirError, StateLock};
use crate::transfer_http::Transfers;

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Problems of the configuration, all of them.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Configuration(Vec<Problem>),
    /// The state directory cannot be used.
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    /// A key cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The audit trail cannot be opened.
    #[error(transparent)]
    Audit(#[from] crate::audit::OpenError),
    /// The audit trail cannot be written.
    #[error(transparent)]
    AuditWrite(#[from] crate::audit::AuditError),
    /// The change-set store cannot be used.
    #[error(transparent)]
    Store(#[from] changeset::StoreError),
    /// The change-set store cannot be read.
    #[error(transparent)]
    Changes(#[from] ChangesError),
    /// The listener cannot be opened.
    #[error("cannot listen on {address}: {problem}{}", listen_remedy(problem))]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The system's words.
        problem: std::io::Error,
    },
    /// A fault of the system or of ours.
    #[error("{0:#}")]
    Internal(anyhow::Error),
}

fn listen_remedy(problem: &std::io::Error) -> &'static str {
    match problem.kind() {
        std::io::ErrorKind::AddrInUse => "; another process listens there: stop it, or choose another port",
        std::io::ErrorKind::AddrNotAvailable => "; this machine has no such address: choose one of its own",
        std::io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023, or let the service manager allow this one"
        }
        _ => "",
    }
}

impl From<anyhow::Error> for StartError {
    fn from(error: anyhow::Error) -> Self {
        Self::Internal(error)
    }
}

impl StartError {
    /// The process's exit status: 78 (`EX_CONFIG`) for what an operator puts right in a file, 75 (`EX_TEMPFAIL`) for what another
    /// process holds, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Configuration(_) | Self::Key(_) => 78,
            Self::StateDir(StateDirError::Held { .. }) | Self::Listen { .. } => 75,
            _ => 1,
        }
    }
}

/// Loads the configuration for the first time.
pub(crate) fn load(sources: &Sources) -> Result<Arc<Live>, StartError> {
    let loaded = config::load(sources, 1, &config::process_environment).map_err(StartError::Configuration)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    if loaded.snapshot.lab_mode {
        tracing::warn!(
            "LAB MODE: protection is lifted on every guest, and a plan against a protected guest is approved when it is made, by \
             nobody. An ordinary guest still needs a second person's approval. Never use this with guests that matter."
        );
    }
    Ok(Arc::new(Live::new(loaded.snapshot)))
}

/// The transfer parts of a listener at `address`. Only a loopback listener knows a URL of its own.
pub(super) fn transfers_for(live: &Live, address: SocketAddr, tls: bool) -> Arc<Transfers> {
    let links = crate::transfer_http::link_limits(&live.load().policy.limits);
    let scheme = if tls { "https" } else { "http" };
    let base = address.ip().is_loopback().then(|| format!("{scheme}://{address}"));
    let transfers = Transfers::new(links, base);
    transfers.listens_on(address.port());
    Arc::new(transfers)
}

/// Opens everything that a call needs: takes the state directory's lock, makes the keys, opens audit and store, and starts looking
/// at what an earlier process left half-done.
///
/// # Errors
/// The first part that cannot be used.
pub async fn start_app(
    args: &ServeArgs,
    live: Arc<Live>,
    transfers: Option<Arc<Transfers>>,
    observer: Option<Observer>,
) -> Result<(Arc<App>, StateLock), StartError> {
    let (app, lock) = open_app(args, live, transfers, observer).await?;
    let cut_off = audit::unfinished(&args.audit_file())
        .map_err(|error| StartError::Internal(anyhow::anyhow!("{}: {error}", args.audit_file().display())))?;
    for record in cut_off {
        app.audit.append_durable(record).await?;
    }
    let recovering = app.changes.recover_all(&app).await?;
    if recovering > 0 {
        tracing::warn!(
            change_sets = recovering,
            "looking at change sets that were being applied when the server stopped"
        );
    }
    Ok((app, lock))
}

/// The same without a look at what an earlier process left half-done: for a short visit that leaves that to the next server.
///
/// # Errors
/// The first part that cannot be used.
pub async fn open_app(
    args: &ServeArgs,
    live: Arc<Live>,
    transfers: Option<Arc<Transfers>>,
    observer: Option<Observer>,
) -> Result<(Arc<App>, StateLock), StartError> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let state_dir = StateDir::new(&args.state_dir);
    let lock = state_dir.lock()?;
    let keys = Keys::load_or_make(&args.state_dir)?;
    let redaction_key = match &args.audit_hmac_key_file {
        Some(path) => Key::read(path)?,
        None => Key::from_bytes(*keys.audit.expose()),
    };
    let audit = Audit::open(
        AuditConfig {
            path: args.audit_file(),
            key: Key::from_bytes(*keys.audit.expose()),
            redactor: Redactor::new(args.audit_redact, redaction_key),
        },
        clock.clone(),
    )?;
    let store = SqliteStore::open(args.state_db())?;
    let history = audit::history(&args.audit_file())
        .map_err(|error| StartError::Internal(anyhow::anyhow!("{}: {error}", args.audit_file().display())))?;
    let older = older_than_trail(&store, &history)?;
    if let Some(why) = &older {
        tracing::error!("{why}");
        audit.append_durable(Record::new(Event::StateRollback).reason(why.clone())).await?;
    }
    let snapshot = live.load();
    let limits = &snapshot.policy.limits;
    let timing = Timing { settle: limits.recovery_settle(), give_up: limits.recovery_give_up() };
    let key = ApprovalKey::new(*keys.approval.expose());
    let store = StoreThread::start(store)
        .map_err(|error| anyhow::anyhow!("no thread for the state store: {error}"))?;
    let changes = Changes::new(store, key, timing, observer).with_flags(&args.change_flags()).frozen(older);
    let catalog = Arc::new(Catalog::new(transfers.is_some())?);
    let app = Arc::new(App {
        live,
        clock,
        audit,
        catalog,
        resolver: Resolver::default(),
        changes,
        transfers,
        slots: Arc::default(),
        fetcher: Fetcher::system()?,
        fetch_slots: Arc::default(),
        tracker: Tracker::default(),
        metrics: crate::metrics::Shared::default(),
    });
    let record = Record::new(Event::Start)
        .generation(snapshot.generation)
        .lab_mode(snapshot.lab_mode)
        .detail("version", env!("CARGO_PKG_VERSION"))
        .detail("keys_made", keys.made.join(","));
    app.audit.append_durable(record).await?;
    app.changes.count_recent(app.clock.now()).await?;
    if keys.made.contains(&Keys::APPROVAL_FILE) && app.changes.any().await? {
        tracing::warn!("the approval key was lost and a new one made: approvals that were open are void");
    }
    Ok((app, lock))
}
