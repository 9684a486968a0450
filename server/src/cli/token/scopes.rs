//! `proxward token set-scopes`: other rights for an entry, the same secret.

use std::io::{BufRead, IsTerminal};

use authz::token::edit::{ScopeChange, Widening, set_scopes as rescoped, widenings};
use authz::{Grant, Selector, Tier, TokenTable};
use clap::Args;

use super::{Named, Told, edit, explain};
use crate::config::Problem;

/// The flags of `token set-scopes`.
///
/// What is not named stays as it is. --guests and --actions replace the grant as a whole, so they come together.
#[derive(Debug, Clone, Args)]
pub struct ScopesArgs {
    /// Which entry, and where.
    #[command(flatten)]
    pub entry: Named,

    /// The clusters it may address; `*` means all.
    #[arg(long, value_name = "CSV", value_delimiter = ',')]
    pub devices: Option<Vec<String>>,

    /// The tools it may call. `*` means every tool that only reads; others have to be named.
    #[arg(long, value_name = "CSV", value_delimiter = ',')]
    pub tools: Option<Vec<String>>,

    /// The guests it may address: vmid:N, vmid:A-B, tag:T, pool:P or *.
    #[arg(long, value_name = "CSV", value_delimiter = ',', requires = "actions")]
    pub guests: Option<Vec<Selector>>,

    /// What it may do to them: read, low, destructive. None of them includes another.
    #[arg(long, value_name = "CSV", value_delimiter = ',', requires = "guests")]
    pub actions: Option<Vec<Tier>>,

    /// Do not ask before rights are added.
    #[arg(short, long)]
    pub yes: bool,

    /// Whom to tell.
    #[command(flatten)]
    pub server: Told,
}

/// Changes the entry. `confirm` is asked about every right the change adds, unless --yes was given; narrowing needs nobody.
///
/// # Errors
/// Every problem; nothing was written then.
pub fn set_scopes(
    args: &ScopesArgs,
    confirm: impl FnOnce(&[Widening]) -> Result<(), Vec<Problem>>,
) -> Result<(), Vec<Problem>> {
    let path = &args.entry.tokens_file;
    let name = args.entry.name();
    if args.devices.is_none() && args.tools.is_none() && args.guests.is_none() {
        let message = "nothing to change: name --tools, --devices, or --guests with --actions";
        return Err(vec![Problem::flag(message)]);
    }
    let grant = args
        .guests
        .as_ref()
        .map(|guests| Grant::new(guests.iter().cloned(), args.actions.iter().flatten().copied().collect()));
    let change =
        ScopeChange { devices: args.devices.as_deref(), tools: args.tools.as_deref(), grant: grant.as_ref() };
    edit(path, |current, before| {
        let edited = rescoped(current, name, &change).map_err(|error| explain(path, error))?;
        let after = TokenTable::parse(edited.as_bytes())
            .map_err(|_| vec![Problem::file(path, "would not load after the change")])?;
        if let (Some(before), Some(after)) = (before.principal(name), after.principal(name)) {
            let reaches =
                |tool: &str| crate::catalog::rule(tool).is_some_and(authz::ToolRule::wildcard_reaches);
            let wider = widenings(&before, &after, reaches);
            if !wider.is_empty() && !args.yes {
                confirm(&wider)?;
            }
        }
        Ok(edited)
    })
}

/// Asks at the terminal; where there is none, refuses.
///
/// # Errors
/// Nobody there, or nobody who says yes.
pub(super) fn ask(wider: &[Widening]) -> Result<(), Vec<Problem>> {
    let list: String = wider.iter().map(|right| format!("\n  {right}")).collect();
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(vec![Problem::flag(format!(
            "this adds rights, and there is no terminal to ask at; nothing was changed. With --yes it would add:{list}"
        ))]);
    }
    eprint!("This adds rights to the token:{list}\nType `yes` to go on: ");
    let mut line = String::new();
    match stdin.lock().read_line(&mut line) {
        Ok(_) if line.trim() == "yes" => Ok(()),
        _ => Err(vec![Problem::flag("not confirmed; nothing was changed")]),
    }
}
