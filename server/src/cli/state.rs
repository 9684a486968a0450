//! `proxward state`: look at the change-set store, take a copy of it, and settle what the server itself must not decide.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use changeset::Store;
use changeset::store::Filter;
use changeset::store::sqlite::SqliteStore;
use clap::{Args, Subcommand};
use serde_json::json;

use super::CONFIG_ERROR;
use super::args::STATE_DIR;
use crate::audit::{Audit, AuditConfig, Event, Record, Redaction, Redactor, history};
use crate::changes::{older_than_trail, view};
use crate::clock::{Clock, SystemClock};
use crate::keys::{Key, Keys};
use crate::state_dir::StateDir;

/// The verbs below `state`.
#[derive(Debug, Clone, Subcommand)]
pub enum StateCommand {
    /// Check the whole store: SQLite's structure, every set against its digest, and the store against the audit trail. May run
    /// beside a server. Exit status 0 when all is well, 1 when not.
    Check(Where),
    /// Print every change set as one line of JSON, oldest first. May run beside a server.
    Export(Where),
    /// Accept a store that was restored from an older copy: every open plan and approval in it is cancelled, because nobody can
    /// tell which of them were used since. Stop the server first.
    AcknowledgeRollback(Acknowledge),
    /// Accept the clock as it is now, after it was set back. Stop the server first.
    AcceptTime(Where),
}

/// Where the state lies.
#[derive(Debug, Clone, Args)]
pub struct Where {
    /// Where the server keeps its state.
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,

    /// The change-set database [default: state.db in the state directory].
    #[arg(long, value_name = "FILE")]
    pub state_file: Option<PathBuf>,

    /// The audit trail [default: audit.jsonl in the state directory].
    #[arg(long, value_name = "FILE")]
    pub audit_log_file: Option<PathBuf>,
}

/// The flags of `state acknowledge-rollback`.
#[derive(Debug, Clone, Args)]
pub struct Acknowledge {
    /// Where it is.
    #[command(flatten)]
    pub place: Where,

    /// Why the older copy is the right one; it is kept in the audit.
    #[arg(long)]
    pub note: String,
}

impl Where {
    fn db(&self) -> PathBuf {
        self.state_file.clone().unwrap_or_else(|| self.state_dir.join("state.db"))
    }

    fn trail(&self) -> PathBuf {
        self.audit_log_file.clone().unwrap_or_else(|| self.state_dir.join("audit.jsonl"))
    }

    /// The store, which must be there: looking at nothing would make a new one.
    fn open(&self) -> Result<SqliteStore, String> {
        let db = self.db();
        if !db.exists() {
            return Err(format!(
                "{}: there is no state file; name the server's --state-dir, or restore the file from a backup",
                db.display()
            ));
        }
        SqliteStore::open(db).map_err(|error| error.to_string())
    }
}

/// Runs the verb.
pub fn run(command: &StateCommand) -> ExitCode {
    let done = match command {
        StateCommand::Check(place) => check(place),
        StateCommand::Export(place) => export(place),
        StateCommand::AcknowledgeRollback(args) => acknowledge(args),
        StateCommand::AcceptTime(place) => accept_time(place),
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(Failure::Found(problems)) => {
            for problem in problems {
                eprintln!("error: {problem}");
            }
            ExitCode::FAILURE
        }
        Err(Failure::Usage(problem)) => {
            eprintln!("error: {problem}");
            ExitCode::from(CONFIG_ERROR)
        }
    }
}

enum Failure {
    Found(Vec<String>),
    Usage(String),
}

impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Self::Found(vec![problem])
    }
}

fn check(place: &Where) -> Result<String, Failure> {
    let store = place.open()?;
    let mut problems: Vec<String> = store.check().iter().map(ToString::to_string).collect();
    match behind(&store, &place.trail()) {
        Ok(None) => {}
        Ok(Some(why)) => problems.push(why),
        Err(error) => problems.push(format!("{}: {error}", place.trail().display())),
    }
    if !problems.is_empty() {
        return Err(Failure::Found(problems));
    }
    let counts = store.counts().map_err(|error| error.to_string())?;
    Ok(format!(
        "sound: {} change sets ({} planned, {} approved, {} applying, {} unknown)",
        counts.total, counts.planned, counts.approved, counts.applying, counts.unknown
    ))
}

/// Why the store is older than the trail; `None` when it is not.
fn behind(store: &SqliteStore, trail: &Path) -> Result<Option<String>, String> {
    if !trail.exists() {
        return Ok(None);
    }
    let history = history(trail).map_err(|error| error.to_string())?;
    older_than_trail(store, &history).map_err(|error| error.to_string())
}

fn export(place: &Where) -> Result<String, Failure> {
    let store = place.open()?;
    let mut sets = store.list(&Filter::default()).map_err(|error| error.to_string())?;
    sets.reverse();
    let lines: Vec<String> = sets
        .iter()
        .map(|set| {
            let plan = set.plan();
            let steps: Vec<_> = plan
                .steps()
                .iter()
                .map(|step| json!({"op": step.op, "params": step.params, "summary": step.summary}))
                .collect();
            let mut line = view(set);
            line["plan"] = json!({
                "steps": steps,
                "fingerprint": plan.fingerprint().fields,
                "facts": plan.preview().facts,
                "policy_version": plan.policy_version(),
                "planner_person": plan.planner().person,
            });
            line["version"] = set.version().into();
            line["updated_at"] = set.updated().to_string().into();
            line.to_string()
        })
        .collect();
    Ok(lines.join("\n"))
}

fn acknowledge(args: &Acknowledge) -> Result<String, Failure> {
    if args.note.trim().is_empty() {
        return Err(Failure::Usage("--note is empty: say why the older copy is the right one".to_owned()));
    }
    let place = &args.place;
    let _lock = StateDir::new(&place.state_dir).lock().map_err(|error| error.to_string())?;
    let mut store = place.open()?;
    let trail = place.trail();
    let Some(why) = behind(&store, &trail)? else {
        return Err(Failure::Found(vec![
            "the store is not older than the audit trail: there is nothing to accept".to_owned(),
        ]));
    };
    let clock = SystemClock::start();
    let now = clock.now();
    let mut cancelled = Vec::new();
    for set in
        store.list(&Filter { pending_only: true, ..Filter::default() }).map_err(|error| error.to_string())?
    {
        let by = changeset::Actor::new(
            "(state acknowledge-rollback)",
            "(operator)",
            Some(changeset::ActorKind::Human),
        );
        // One that is being applied is for recovery, which sends nothing.
        if let Ok(ended) = set.cancel(&by, "the state was restored from an older copy", now)
            && store.replace_if(&ended, set.version()).map_err(|error| error.to_string())?
        {
            cancelled.push(set.id().to_string());
        }
    }
    record(place, clock, |record| {
        record.reason(args.note.clone()).detail("found", why).detail("cancelled", cancelled.join(" "))
    })?;
    Ok(format!("accepted; {} open change sets were cancelled", cancelled.len()))
}

/// Puts it on record, where the next server starts to compare from.
fn record(place: &Where, clock: SystemClock, fill: impl FnOnce(Record) -> Record) -> Result<(), String> {
    let keys = Keys::load_or_make(&place.state_dir).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let config = AuditConfig {
        path: place.trail(),
        key: Key::from_bytes(*keys.audit.expose()),
        redactor: Redactor::new(Redaction::default(), Key::from_bytes(*keys.audit.expose())),
    };
    let audit = Audit::open(config, Arc::new(clock)).map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let done = audit.append_durable(fill(Record::new(Event::StateRollbackAcknowledged))).await;
        audit.stop().await;
        done.map(drop).map_err(|error| error.to_string())
    })
}

fn accept_time(place: &Where) -> Result<String, Failure> {
    let _lock = StateDir::new(&place.state_dir).lock().map_err(|error| error.to_string())?;
    let now = SystemClock::start().now();
    place.open()?.accept_time(now).map_err(|error| error.to_string())?;
    Ok(format!("accepted: it is {now}"))
}
