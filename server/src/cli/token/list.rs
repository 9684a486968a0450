//! `proxward token list`: who may call, and with which rights. Neither tokens nor hashes are shown.

use std::fmt::Write as _;
use std::path::PathBuf;

use authz::{Principal, StoredAs, TokenTable};
use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::load;
use crate::cli::args::config_file;
use crate::config::Problem;

/// The flags of `token list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// The tokens file.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("tokens.json"))]
    pub tokens_file: PathBuf,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The list as text.
///
/// # Errors
/// Every problem of the file.
pub fn list(args: &ListArgs, now: Timestamp) -> Result<String, Vec<Problem>> {
    let table = load(&args.tokens_file)?;
    let entries: Vec<(&Principal, Option<&StoredAs>)> =
        table.principals().map(|principal| (&**principal, table.stored(principal.name()))).collect();
    if args.json {
        let entries: Vec<Value> =
            entries.iter().map(|(principal, stored)| entry(principal, *stored, now)).collect();
        return Ok(format!("{:#}\n", Value::Array(entries)));
    }
    let mut text = String::new();
    for (principal, stored) in &entries {
        // Writing to a String cannot fail.
        let _ = write!(text, "{}", lines(principal, *stored, now));
    }
    if entries.is_empty() {
        text.push_str("no entries\n");
    }
    text.push_str(&warnings(&table));
    Ok(text)
}

fn entry(principal: &Principal, stored: Option<&StoredAs>, now: Timestamp) -> Value {
    let mut view = json!(principal.describe());
    view["hash"] = json!(stored.map(|stored| stored.hash));
    view["id"] = json!(stored.and_then(|stored| stored.id.clone()));
    view["expired"] = json!(principal.is_expired(now));
    view
}

fn lines(principal: &Principal, stored: Option<&StoredAs>, now: Timestamp) -> String {
    let view = principal.describe();
    let actor = view.actor_type.map_or("unattributed", authz::ActorKind::as_str);
    let until = match (&view.expires, principal.is_expired(now)) {
        (None, _) => "never".to_owned(),
        (Some(at), false) => at.clone(),
        (Some(at), true) => format!("{at} (EXPIRED)"),
    };
    let (hash, id) = match stored {
        Some(stored) => (stored.hash, stored.id.as_deref().unwrap_or("none")),
        None => ("?", "none"),
    };
    let grant = match &view.grant {
        Some(grant) => format!("{} on {}", grant.actions.join(","), grant.guests.join(",")),
        None => "none: every guest is refused".to_owned(),
    };
    format!(
        "{}\n  person   {} ({actor})\n  tools    {}\n  devices  {}\n  grant    {grant}\n  expires  {until}\n  \
         stored   {hash}, id {id}\n",
        view.token,
        view.person,
        view.tools.join(","),
        view.devices.join(","),
    )
}

fn warnings(table: &TokenTable) -> String {
    table.warnings().iter().map(|warning| format!("warning: {warning}\n")).collect()
}
