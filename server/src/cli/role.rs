//! `proxward role`: the least-privilege role for the cluster's token.

use std::process::ExitCode;

use authz::Tier;
use clap::Args;

use super::output;
use crate::catalog;
use crate::privileges::{self, NEWEST, Need, OLDEST, RoleNames};

/// The flags of `role`.
#[derive(Debug, Clone, Args)]
pub struct RoleArgs {
    /// The major version of the cluster's PVE: privileges were renamed between versions.
    #[arg(long, value_name = "MAJOR", default_value_t = NEWEST, value_parser = clap::value_parser!(u32).range(i64::from(OLDEST)..=i64::from(NEWEST)))]
    pub pve: u32,

    /// Tools and scopes to make the role for: `all`, `read`, or names separated by commas.
    #[arg(long, value_name = "NAMES", default_value = "all")]
    pub tools: String,

    /// The role's name.
    #[arg(long, value_name = "NAME", default_value = "Proxward", value_parser = plain_name)]
    pub name: String,

    /// The token to make, `user@realm!token`; its user is made too.
    #[arg(long, value_name = "ID", default_value = "proxward@pve!gate", value_parser = token_id)]
    pub token: String,

    /// Print which tool needs which privilege instead.
    #[arg(long, conflicts_with = "json")]
    pub table: bool,

    /// Print the privileges, their tools and the lines as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Prints the lines; exit status 2 when a tool is not known.
pub fn run(args: &RoleArgs) -> ExitCode {
    let needs = match enabled(&args.tools) {
        Ok(names) => privileges::needs(args.pve, |name| names.contains(&name)),
        Err(problem) => {
            eprintln!("error: --tools: {problem}");
            return ExitCode::from(2);
        }
    };
    let names = RoleNames { role: args.name.clone(), ..RoleNames::of_token(&args.token) };
    let text = if args.json {
        json(&needs, &names)
    } else if args.table {
        table(&needs)
    } else {
        lines(&needs, &names, args.pve)
    };
    output::print(&text)
}

/// The names that `--tools` means.
fn enabled(tools: &str) -> Result<Vec<&'static str>, String> {
    let all = || catalog::privileges().map(|(name, _)| name);
    match tools {
        "all" => Ok(all().collect()),
        "read" => {
            let reads = |name: &&str| catalog::rule(name).is_some_and(|rule| matches!(rule.tier, Tier::Read));
            Ok(all().filter(reads).collect())
        }
        list => list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(|name| {
                all().find(|known| *known == name).ok_or_else(|| {
                    format!("no tool or scope is called {name:?}; `proxward role --table` prints all names")
                })
            })
            .collect(),
    }
}

fn commands(needs: &[Need], names: &RoleNames) -> Vec<String> {
    vec![names.make_role(needs), names.make_user(), names.give_user(), names.make_token()]
}

fn lines(needs: &[Need], names: &RoleNames, pve: u32) -> String {
    let mut text = format!(
        "# The role holds what the tools need on PVE {pve}, on the whole cluster. Run this as root on one node; the last line\n\
         # prints the token's secret, once: put it into the file that `token_secret_file` names, mode 0600.\n"
    );
    for command in commands(needs, names) {
        text.push_str(&command);
        text.push('\n');
    }
    for need in needs {
        if let Some(why) = need.apart {
            text.push_str(&format!(
                "# Not in the role: {} for {}: {why}.\n",
                need.privilege,
                need.tools.join(", ")
            ));
        }
    }
    text
}

fn table(needs: &[Need]) -> String {
    let width = needs.iter().map(|need| need.privilege.len()).max().unwrap_or(0);
    needs.iter().map(|need| format!("{:width$}  {}\n", need.privilege, need.tools.join(", "))).collect()
}

fn json(needs: &[Need], names: &RoleNames) -> String {
    let privileges: Vec<_> = needs
        .iter()
        .map(|need| {
            serde_json::json!({
                "privilege": need.privilege,
                "path": privileges::place(need.privilege),
                "tools": need.tools,
                "in_role": need.apart.is_none(),
                "reason": need.apart,
            })
        })
        .collect();
    let value =
        serde_json::json!({"role": names.role, "privileges": privileges, "commands": commands(needs, names)});
    format!("{value:#}\n")
}

/// A word that a shell passes on as it is.
fn plain_name(text: &str) -> Result<String, String> {
    let plain = !text.is_empty()
        && text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if plain { Ok(text.to_owned()) } else { Err("expected letters, digits, `-`, `_` and `.`".to_owned()) }
}

fn token_id(text: &str) -> Result<String, String> {
    let parts = text.split_once('!').and_then(|(user, token)| Some((user.rsplit_once('@')?, token)));
    match parts {
        Some(((user, realm), token)) if [user, realm, token].iter().all(|part| plain_name(part).is_ok()) => {
            Ok(text.to_owned())
        }
        _ => Err("expected `user@realm!token`".to_owned()),
    }
}
