//! `proxward token`: bearer tokens. The file is changed in one step, under a lock, and keeps every byte that the change is not
//! about.

mod add;
mod list;
mod revoke;
mod rotate;
mod scopes;
mod tell;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use authz::token::edit::EditError;
use authz::{MintedToken, TokenTable};
use clap::{Args, Subcommand, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use zeroize::Zeroizing;

use super::args::config_file;
use crate::config::Problem;
use crate::files::{self, Edit, Privacy};

pub use add::{AddArgs, add};
pub use list::{ListArgs, list};
pub use revoke::{RevokeArgs, revoke};
pub use rotate::{RotateArgs, rotate};
pub use scopes::{ScopesArgs, set_scopes};
pub use tell::{Telling, Told};

/// The verbs below `token`.
#[derive(Debug, Clone, Subcommand)]
pub enum TokenCommand {
    /// Make a token, add its hash to the tokens file, and print the token once.
    Add(Box<AddArgs>),
    /// Show the entries of the tokens file, without hashes.
    List(ListArgs),
    /// Give an entry another secret, keep its rights, and print the token once.
    Rotate(RotateArgs),
    /// Take an entry out, and tell the running server.
    Revoke(RevokeArgs),
    /// Give an entry other scopes; its token stays valid.
    SetScopes(ScopesArgs),
}

/// Which entry of which file.
#[derive(Debug, Clone, Args)]
pub struct Named {
    /// The entry's name.
    #[arg(value_name = "NAME", required_unless_present = "name_flag")]
    positional: Option<String>,

    /// The entry's name, as a flag.
    #[arg(long = "name", id = "name_flag", value_name = "NAME", conflicts_with = "positional")]
    flag: Option<String>,

    /// The tokens file.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("tokens.json"))]
    pub tokens_file: PathBuf,
}

impl Named {
    /// The entry's name.
    pub fn name(&self) -> &str {
        self.positional.as_deref().or(self.flag.as_deref()).unwrap_or_default()
    }
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

impl Expiry {
    /// The instant, which must not have passed.
    ///
    /// # Errors
    /// It has, or lies beyond what a timestamp can hold.
    fn from(self, now: Timestamp) -> Result<Timestamp, Vec<Problem>> {
        let one = |message: &str| vec![Problem::flag(message)];
        let at = match self {
            Expiry::At(at) => at,
            Expiry::After(wait) => {
                now.checked_add(wait).map_err(|_| one("--expires is too far in the future"))?
            }
        };
        match at <= now {
            true => Err(one("--expires is in the past: the token would never work")),
            false => Ok(at),
        }
    }
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

/// Runs the verb. A token alone goes to standard output; what there is to say about it goes to standard error.
pub fn run(command: &TokenCommand) -> ExitCode {
    let now = Timestamp::now();
    let done = match command {
        TokenCommand::Add(args) => add(args, now).map(|token| {
            println!("{}", token.as_str());
            eprintln!("{}", add::told_about(args));
        }),
        TokenCommand::List(args) => list(args, now).map(|text| print!("{text}")),
        TokenCommand::Rotate(args) => rotate(args, now).map(|token| {
            println!("{}", token.as_str());
            eprintln!(
                "{} has a new token, shown this once; its rights are unchanged. The old one works until the server reloads.",
                args.entry.name()
            );
            tell(&args.server);
        }),
        TokenCommand::Revoke(args) => revoke(args).map(|()| {
            eprintln!("{} was taken out of {}.", args.entry.name(), args.entry.tokens_file.display());
            tell(&args.server);
        }),
        TokenCommand::SetScopes(args) => set_scopes(args, scopes::ask).map(|()| {
            eprintln!("{} has its new scopes; its token stays valid.", args.entry.name());
            tell(&args.server);
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problems) => {
            super::report(&problems);
            ExitCode::FAILURE
        }
    }
}

fn tell(server: &Told) {
    eprintln!("{}", server.report(&server.tell()));
}

/// A new token and the text that stands for it in the file.
fn mint(kind: HashKind) -> Result<(MintedToken, String), Vec<Problem>> {
    let one = |message: String| vec![Problem::flag(message)];
    let mut entropy = Zeroizing::new([0u8; 32]);
    let (mut id, mut salt) = ([0u8; 10], [0u8; 16]);
    getrandom::fill(entropy.as_mut_slice())
        .and_then(|()| getrandom::fill(&mut id))
        .and_then(|()| getrandom::fill(&mut salt))
        .map_err(|error| one(format!("no random bytes: {error}")))?;
    let minted = authz::mint_token(*entropy, id);
    let hash = match kind {
        HashKind::Sha256 => authz::sha256_entry(&minted.text),
        HashKind::Argon2id => {
            authz::argon2id_entry(&minted.text, salt).map_err(|error| one(error.to_string()))?
        }
    };
    Ok((minted, hash))
}

/// Changes an existing tokens file: its text and what it says go in, the new text comes out.
fn edit(
    path: &Path,
    change: impl FnOnce(&str, &TokenTable) -> Result<String, Vec<Problem>>,
) -> Result<(), Vec<Problem>> {
    let one = |error: files::FileError| vec![Problem::flag(error.to_string())];
    let edit = Edit::begin(path, authz::json::MAX_FILE_BYTES as u64).map_err(one)?;
    let Some(current) = edit.current() else {
        return Err(vec![Problem::file(path, "does not exist: `token add` makes it")]);
    };
    let table = TokenTable::parse(current).map_err(|problems| explain(path, EditError::File(problems)))?;
    let current = std::str::from_utf8(current).map_err(|_| vec![Problem::file(path, "is not UTF-8 text")])?;
    let edited = change(current, &table)?;
    edit.commit(edited.as_bytes()).map_err(one)
}

/// What the tokens file says.
fn load(path: &Path) -> Result<TokenTable, Vec<Problem>> {
    let bytes = files::read(path, Privacy::Secret, authz::json::MAX_FILE_BYTES as u64)
        .map_err(|error| vec![Problem::flag(error.to_string())])?;
    TokenTable::parse(&bytes).map_err(|problems| explain(path, EditError::File(problems)))
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
