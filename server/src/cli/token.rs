//! `proxward token`: make bearer tokens.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use authz::token::edit::{EditError, NewEntry, add_entry};
use authz::{ActorKind, Grant, Selector, Tier};
use clap::{Args, Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

use super::args::config_file;
use crate::config::Problem;
use crate::files::Edit;

/// The verbs below `token`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Make a token, add its hash to the tokens file, and print the token once.
    Add(AddArgs),
}

/// The flags of `token add`.
#[derive(Debug, Clone, Args)]
pub struct AddArgs {
    /// The token's name: what the audit trail and other people see.
    pub name: String,

    /// The tokens file; made with mode 0600 when it does not exist.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("tokens.json"))]
    pub tokens_file: PathBuf,

    /// Tools it may call. `*` means every tool that only reads; others have to be named.
    #[arg(long, value_name = "CSV", value_delimiter = ',', default_value = "*")]
    pub tools: Vec<String>,

    /// Clusters it may address; `*` means all.
    #[arg(long, value_name = "CSV", value_delimiter = ',', default_value = "*")]
    pub devices: Vec<String>,

    /// Guests it may address: vmid:N, vmid:A-B, tag:T, pool:P or *. Without it, none.
    #[arg(long, value_name = "CSV", value_delimiter = ',', requires = "actions")]
    pub guests: Vec<Selector>,

    /// What it may do to them: read, low, destructive. None of them includes another.
    #[arg(long, value_name = "CSV", value_delimiter = ',', requires = "guests")]
    pub actions: Vec<Tier>,

    /// Whose token it is [default: its name]. Two tokens of one person count as one when a second person is needed.
    #[arg(long, value_name = "NAME")]
    pub person: Option<String>,

    /// Who will hold it. Only a human can approve.
    #[arg(long, value_enum)]
    pub actor_type: Option<ActorType>,

    /// When it stops working: a time such as 2027-01-31T12:00:00Z, or from now such as 90d or 12h.
    #[arg(long, value_name = "WHEN", value_parser = parse_expiry)]
    pub expires: Option<Expiry>,

    /// How it is stored. sha256 is for machines that call many times a second; 256 random bits need no slow hash.
    #[arg(long, value_enum, default_value_t)]
    pub hash: HashKind,
}

/// Who will hold the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ActorType {
    /// A person.
    Human,
    /// A program.
    Agent,
}

/// How the token is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum HashKind {
    /// Slow and salted.
    #[default]
    Argon2id,
    /// Fast.
    Sha256,
}

/// When a token stops working.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    /// At a time.
    At(Timestamp),
    /// So long after it was made.
    After(SignedDuration),
}

fn parse_expiry(text: &str) -> Result<Expiry, String> {
    if let Some((digits, hours)) = text
        .strip_suffix('d')
        .map(|digits| (digits, 24))
        .or_else(|| text.strip_suffix('h').map(|digits| (digits, 1)))
        && let Ok(count @ 1..=87_600) = digits.parse::<i64>()
    {
        return Ok(Expiry::After(SignedDuration::from_hours(count.saturating_mul(hours))));
    }
    text.parse()
        .map(Expiry::At)
        .map_err(|_| "expected a time with zone such as 2027-01-31T12:00:00Z, or 90d, or 12h".to_owned())
}

/// Runs the verb. The token alone goes to standard output; what there is to say about it goes to standard error.
pub fn run(command: &TokenCommand) -> ExitCode {
    let TokenCommand::Add(args) = command;
    match add(args, Timestamp::now()) {
        Ok(token) => {
            println!("{}", token.as_str());
            eprintln!("{}", told_about(args));
            ExitCode::SUCCESS
        }
        Err(problems) => {
            super::report(&problems);
            ExitCode::FAILURE
        }
    }
}

/// Makes the token, adds its entry to the file and returns the token's text, which is kept nowhere else.
///
/// # Errors
/// Every problem; nothing was written then.
pub fn add(args: &AddArgs, now: Timestamp) -> Result<Zeroizing<String>, Vec<Problem>> {
    let one = |message: String| vec![Problem::flag(message)];
    let expires = match args.expires {
        None => None,
        Some(Expiry::At(at)) => Some(at),
        Some(Expiry::After(wait)) => {
            Some(now.checked_add(wait).map_err(|_| one("--expires is too far in the future".to_owned()))?)
        }
    };
    if expires.is_some_and(|at| at <= now) {
        return Err(one("--expires is in the past: the token would never work".to_owned()));
    }
    let mut entropy = Zeroizing::new([0u8; 32]);
    let (mut id, mut salt) = ([0u8; 10], [0u8; 16]);
    getrandom::fill(entropy.as_mut_slice())
        .and_then(|()| getrandom::fill(&mut id))
        .and_then(|()| getrandom::fill(&mut salt))
        .map_err(|error| one(format!("no random bytes: {error}")))?;
    let minted = authz::mint_token(*entropy, id);
    let hash = match args.hash {
        HashKind::Sha256 => authz::sha256_entry(&minted.text),
        HashKind::Argon2id => {
            authz::argon2id_entry(&minted.text, salt).map_err(|error| one(error.to_string()))?
        }
    };
    let grant = (!args.guests.is_empty())
        .then(|| Grant::new(args.guests.iter().cloned(), args.actions.iter().copied().collect()));
    let entry = NewEntry {
        name: &args.name,
        hash: &hash,
        id: &minted.id,
        grant: grant.as_ref(),
        tools: &args.tools,
        devices: &args.devices,
        person: args.person.as_deref(),
        actor_type: args.actor_type.map(|kind| match kind {
            ActorType::Human => ActorKind::Human,
            ActorType::Agent => ActorKind::Agent,
        }),
        expires,
    };
    let path = &args.tokens_file;
    let edit =
        Edit::begin(path, authz::json::MAX_FILE_BYTES as u64).map_err(|error| one(error.to_string()))?;
    let current = std::str::from_utf8(edit.current().unwrap_or_default())
        .map_err(|_| vec![Problem::file(path, "is not UTF-8 text")])?;
    let edited = add_entry(current, &entry).map_err(|error| explain(path, error))?;
    edit.commit(edited.as_bytes()).map_err(|error| one(error.to_string()))?;
    Ok(minted.text)
}

fn explain(path: &Path, error: EditError) -> Vec<Problem> {
    match error {
        EditError::File(problems) => problems
            .into_iter()
            .map(|problem| Problem {
                file: Some(path.to_owned()),
                position: Some((problem.line, problem.column)),
                place: problem.path,
                message: problem.message,
            })
            .collect(),
        // Their positions are in a text that nobody has seen.
        EditError::Entry(problems) => problems
            .into_iter()
            .map(|problem| Problem::flag(format!("the new entry would be refused: {}", problem.message)))
            .collect(),
        other => vec![Problem::flag(other.to_string())],
    }
}

fn told_about(args: &AddArgs) -> String {
    let mut text = format!(
        "Token {} was added to {}. It is shown this once; keep it where only its holder can read it.\n\
         A running server knows it after its next reload (SIGHUP).",
        args.name,
        args.tokens_file.display()
    );
    if args.guests.is_empty() {
        text.push_str("\nIt has no --guests, so every tool that addresses a guest is refused to it.");
    }
    if args.actor_type != Some(ActorType::Human) {
        text.push_str("\nIt is not marked --actor-type human, so it cannot approve change sets.");
    }
    text
}
