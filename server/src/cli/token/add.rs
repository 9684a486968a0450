//! `proxward token add`: one entry more.

use std::path::PathBuf;

use authz::token::edit::{NewEntry, add_entry};
use authz::{ActorKind, Grant, Provenance, Selector, Tier};
use clap::Args;
use jiff::Timestamp;
use zeroize::Zeroizing;

use super::{ActorType, Expiry, HashKind, explain, mint, parse_expiry};
use crate::cli::args::config_file;
use crate::config::Problem;
use crate::files::Edit;

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

    /// For the audit: who runs the model behind the token.
    #[arg(long, value_name = "TEXT")]
    pub provider: Option<String>,

    /// For the audit: what kind of provider that is.
    #[arg(long, value_name = "TEXT")]
    pub provider_tier: Option<String>,

    /// For the audit: for whom the token's holder acts.
    #[arg(long, value_name = "TEXT")]
    pub on_behalf_of: Option<String>,

    /// When it stops working: a time such as 2027-01-31T12:00:00Z, or from now such as 90d or 12h.
    #[arg(long, value_name = "WHEN", value_parser = parse_expiry)]
    pub expires: Option<Expiry>,

    /// How it is stored. sha256 is for machines that call many times a second; 256 random bits need no slow hash.
    #[arg(long, value_enum, default_value_t)]
    pub hash: HashKind,
}

/// Makes the token, adds its entry to the file and returns the token's text, which is kept nowhere else.
///
/// # Errors
/// Every problem; nothing was written then.
pub fn add(args: &AddArgs, now: Timestamp) -> Result<Zeroizing<String>, Vec<Problem>> {
    let one = |message: String| vec![Problem::flag(message)];
    let expires = args.expires.map(|expires| expires.from(now)).transpose()?;
    let (minted, hash) = mint(args.hash)?;
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
        provenance: &Provenance {
            provider: args.provider.clone(),
            provider_tier: args.provider_tier.clone(),
            on_behalf_of: args.on_behalf_of.clone(),
        },
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

/// What there is to say about a new entry.
pub(super) fn told_about(args: &AddArgs) -> String {
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
