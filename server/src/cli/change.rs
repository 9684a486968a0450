//! `proxward change`: what people do about change sets.

mod ask;
mod door;
mod remote;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use self::ask::{Person, Unconfirmed};
use self::door::{Answer, Door};
use super::CONFIG_ERROR;
use super::args::{STATE_DIR, config_file};
use crate::config::Problem;
use crate::tools::changes::Found;

/// Exit statuses of `proxward change`.
pub mod exit {
    /// Done.
    pub const DONE: u8 = 0;
    /// Nobody could be asked, or the answer made no sense.
    pub const UNREACHABLE: u8 = 1;
    /// The server refused; the text says why.
    pub const REFUSED: u8 = 3;
    /// No such change set in this token's scope.
    pub const UNKNOWN: u8 = 4;
    /// The person did not confirm.
    pub const UNCONFIRMED: u8 = 5;
}

/// The flags and verbs of `proxward change`.
///
/// On the server's host it asks the running server through the state directory, or opens the state itself while no server runs;
/// with --url it asks a server over HTTP. Either way it acts with the rights of a person's token, read from --token-file, from
/// PROXWARD_TOKEN, or from the terminal.
///
/// Exit status: 0 done, 1 nobody could be asked, 2 wrong usage, 3 the server refused, 4 no such change set in the token's scope,
/// 5 not confirmed, 78 the token or the configuration cannot be read.
#[derive(Debug, Clone, Args)]
pub struct ChangeArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,

    /// Ask the server at this address, such as `https://gate.example:30030`, instead of the one on this host.
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,

    /// With --url: trust the certificates in this PEM file instead of the system's.
    #[arg(long, global = true, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// A file with the bearer token, mode 0600.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Answer with the server's JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,

    /// Where the server on this host keeps its state.
    #[arg(long, global = true, value_name = "DIR", default_value = STATE_DIR)]
    pub state_dir: PathBuf,

    /// Used while no server runs: the clusters and the policy.
    #[arg(long, global = true, value_name = "FILE", default_value_os_t = config_file("clusters.json"))]
    pub clusters_file: PathBuf,

    /// Used while no server runs: who may call.
    #[arg(long, global = true, value_name = "FILE", default_value_os_t = config_file("tokens.json"))]
    pub tokens_file: PathBuf,

    /// Used while no server runs: the waivers.
    #[arg(long, global = true, value_name = "FILE", default_value_os_t = config_file("waivers.json"))]
    pub waivers_file: PathBuf,
}

/// The verbs.
#[derive(Debug, Clone, Subcommand)]
pub enum Verb {
    /// List change sets that still need somebody.
    List {
        /// Only sets in this state.
        #[arg(long, conflicts_with = "all")]
        state: Option<String>,
        /// Also sets that have ended.
        #[arg(long)]
        all: bool,
    },
    /// Show one change set: state, digest and the exact preview.
    Show {
        /// The change set.
        id: String,
    },
    /// Approve a change set, after its preview was shown.
    Approve(ApproveArgs),
    /// Say no to a change set, for good.
    Reject {
        /// The change set.
        id: String,
        /// Why.
        #[arg(long)]
        note: Option<String>,
    },
    /// Take back a change set of one's own, for good.
    Cancel {
        /// The change set.
        id: String,
        /// Why.
        #[arg(long)]
        note: Option<String>,
    },
    /// Say what became of a change set whose outcome is unknown, after looking at the cluster. On the server's host only.
    Resolve {
        /// The change set.
        id: String,
        /// What was found: it happened completely, or it did not.
        #[arg(long, value_enum)]
        found: Found,
        /// How you found out; it is kept in the audit.
        #[arg(long)]
        note: String,
    },
}

/// The flags of `change approve`.
#[derive(Debug, Clone, Args)]
pub struct ApproveArgs {
    /// The change set.
    pub id: String,
    /// Answers the question for the guest's number, for a destructive set.
    #[arg(long, value_name = "VMID")]
    pub confirm_vmid: Option<u32>,
    /// Answers the question for the first 8 characters of the digest, for a destructive set.
    #[arg(long, value_name = "CODE")]
    pub confirm_code: Option<String>,
    /// Refuse unless the set has this digest: what was seen elsewhere.
    #[arg(long, value_name = "DIGEST")]
    pub digest: Option<String>,
    /// Answers the question whether to approve a set that is not destructive.
    #[arg(long)]
    pub yes: bool,
}

/// How a verb ended badly.
#[derive(Debug)]
pub enum Failure {
    /// Flags, token or configuration.
    Configuration(Vec<Problem>),
    /// Nobody answered.
    Unreachable(String),
    /// The server said no.
    Refused {
        /// Its stable word.
        code: String,
        /// Cause and remedy.
        message: String,
    },
    /// The person said no, or something else than the preview.
    Unconfirmed(Unconfirmed),
}

impl Failure {
    fn status(&self) -> u8 {
        match self {
            Self::Configuration(_) => CONFIG_ERROR,
            Self::Unreachable(_) => exit::UNREACHABLE,
            Self::Refused { code, .. } if code == "unknown_change_set" => exit::UNKNOWN,
            Self::Refused { .. } => exit::REFUSED,
            Self::Unconfirmed(_) => exit::UNCONFIRMED,
        }
    }
}

/// Runs the verb.
pub fn run(args: &ChangeArgs) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::from(exit::UNREACHABLE);
        }
    };
    match runtime.block_on(perform(args)) {
        Ok(()) => ExitCode::from(exit::DONE),
        Err(failure) => {
            tell(args, &failure);
            ExitCode::from(failure.status())
        }
    }
}

fn tell(args: &ChangeArgs, failure: &Failure) {
    match failure {
        Failure::Configuration(problems) => super::report(problems),
        Failure::Unreachable(why) => eprintln!("error: {why}"),
        Failure::Refused { code, message } if args.json => {
            println!("{}", json!({"error": {"code": code, "message": message}}));
        }
        Failure::Refused { code, message } => eprintln!("refused ({code}): {}", show::plain(message)),
        Failure::Unconfirmed(why) => eprintln!("not done: {why}"),
    }
}

async fn perform(args: &ChangeArgs) -> Result<(), Failure> {
    let token = ask::token(args.token_file.as_deref())?;
    let door = Door::open(args, token).await?;
    let done = verb(args, &door).await;
    door.close().await;
    done
}

async fn verb(args: &ChangeArgs, door: &Door) -> Result<(), Failure> {
    match &args.verb {
        Verb::List { state, all } => {
            let mut wanted = json!({"limit": 700});
            if let Some(state) = state {
                wanted["state"] = state.clone().into();
            }
            if *all {
                wanted["all"] = true.into();
            }
            let mut sets = Vec::new();
            loop {
                let page = door.call("list_change_sets", &wanted).await?;
                sets.extend(page["items"].as_array().cloned().unwrap_or_default());
                if page["has_more"] != true || page["items"].as_array().is_none_or(Vec::is_empty) {
                    break;
                }
                wanted["offset"] = sets.len().into();
            }
            answer(args, &Value::Array(sets), show::table);
        }
        Verb::Show { id } => {
            answer(args, &door.call("get_proxmox_change_set", &named(id)).await?, show::set);
        }
        Verb::Approve(approve) => {
            let set = door.call("get_proxmox_change_set", &named(&approve.id)).await?;
            // The person reads this, whatever the answer's form.
            eprintln!("{}", show::set(&set));
            let confirmed =
                ask::confirm(&set, approve, &mut Person::default()).map_err(Failure::Unconfirmed)?;
            answer(args, &door.call("approve_proxmox_change_set", &confirmed).await?, show::moved);
        }
        Verb::Reject { id, note } => {
            answer(
                args,
                &door.call("reject_change_set", &with_note(id, note.as_deref())).await?,
                show::moved,
            );
        }
        Verb::Cancel { id, note } => {
            answer(
                args,
                &door.call("cancel_change_set", &with_note(id, note.as_deref())).await?,
                show::moved,
            );
        }
        Verb::Resolve { id, found, note } => {
            let resolve = json!({"change_set_id": id, "found": found.as_str(), "note": note});
            answer(args, &door.call(crate::serve::control::RESOLVE, &resolve).await?, show::moved);
        }
    }
    Ok(())
}

fn named(id: &str) -> Value {
    json!({"change_set_id": id})
}

fn with_note(id: &str, note: Option<&str>) -> Value {
    let mut arguments = named(id);
    if let Some(note) = note {
        arguments["note"] = note.into();
    }
    arguments
}

fn answer(args: &ChangeArgs, value: &Answer, text: fn(&Value) -> String) {
    if args.json {
        println!("{value}");
    } else {
        println!("{}", text(value));
    }
}
