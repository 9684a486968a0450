//! `proxward authz`: why a call is allowed or refused.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use authz::{Asked, Decision, GuestFacts, GuestKind, Known, Overrides, Principal, Question, ToolRule, Vmid};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;

use super::CONFIG_ERROR;
use super::args::config_file;
use crate::catalog::{self, Addresses};
use crate::config::{self, Cluster, Problem, Snapshot, Sources, Vocabulary, process_environment};
use crate::resolve::{Freshness, ResolveError, Resolver};

/// Exit status when the cluster could not be asked, so that nothing was decided.
pub const UNREACHABLE: u8 = 3;
/// Exit status when the question makes no sense (as `clap` has it for wrong usage).
const USAGE: u8 = 2;

/// The verbs below `authz`.
#[derive(Debug, Clone, Subcommand)]
pub enum AuthzCommand {
    /// Say whether a token may do something, and what each check says.
    ///
    /// Decides by the same code as the server, on the files as they are now, and on the guest as the cluster describes it now (or
    /// as the flags do). Nothing is changed anywhere. Exit status: 0 allowed, 1 refused, 2 wrong usage, 3 the cluster could not be
    /// asked, 78 the files have problems.
    Explain(Box<ExplainArgs>),
}

/// The flags of `authz explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// The entry of the tokens file; or `stdio`, or `anonymous`, for callers without a token.
    #[arg(long, value_name = "NAME")]
    pub token: String,

    /// The tool, or the authorization-only scope.
    #[arg(long, value_name = "NAME")]
    pub tool: String,

    /// The cluster; not needed when only one is configured.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,

    /// The guest's number.
    #[arg(long, value_name = "N", value_parser = parse_vmid)]
    pub vmid: Option<Vmid>,

    /// --vmid is the number of a guest to be created.
    #[arg(long, requires = "vmid")]
    pub new: bool,

    /// The operation a waiver must name [default: what the tool does].
    #[arg(long, value_name = "OP")]
    pub op: Option<String>,

    /// The token that planned the operation [default: the token itself].
    #[arg(long, value_name = "NAME")]
    pub planner: Option<String>,

    /// Do not ask the cluster: the guest has these tags (an empty list for none).
    #[arg(long, value_name = "CSV", num_args = 0..=1, default_missing_value = "", requires = "vmid")]
    pub tags: Option<String>,

    /// Do not ask the cluster: the guest is in this pool.
    #[arg(long, value_name = "NAME", requires = "vmid")]
    pub pool: Option<String>,

    /// Do not ask the cluster: PVE's own `protection` flag of the guest.
    #[arg(long, value_enum, value_name = "WHETHER", requires = "vmid")]
    pub protection: Option<Flag>,

    /// When [default: now]: a time such as 2027-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub at: Option<Timestamp>,

    /// As if the server ran in lab mode.
    #[arg(long)]
    pub lab_mode: bool,

    /// Print JSON.
    #[arg(long)]
    pub json: bool,

    /// The clusters and the policy.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("clusters.json"))]
    pub clusters_file: PathBuf,

    /// Who may call.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("tokens.json"))]
    pub tokens_file: PathBuf,

    /// Time-boxed exceptions from protection; a missing file means none.
    #[arg(long, value_name = "FILE", default_value_os_t = config_file("waivers.json"))]
    pub waivers_file: PathBuf,
}

/// A fact that is given instead of read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Flag {
    /// It is set.
    On,
    /// It is not.
    Off,
    /// It could not be read.
    Unreadable,
}

fn parse_vmid(text: &str) -> Result<Vmid, String> {
    text.parse().map_err(|error: authz::VmidError| error.to_string())
}

/// Why nothing was decided.
#[derive(Debug)]
pub enum Failure {
    /// The files have problems.
    Configuration(Vec<Problem>),
    /// The question names something that does not exist, or lacks something.
    Usage(String),
    /// The cluster could not be asked.
    Unreachable(String),
}

/// Runs the verb.
pub fn run(command: &AuthzCommand) -> ExitCode {
    let AuthzCommand::Explain(args) = command;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::from(UNREACHABLE);
        }
    };
    match runtime.block_on(explain(args)) {
        Ok(decision) => {
            if args.json {
                println!("{:#}", serde_json::json!(decision));
            } else {
                print!("{decision}");
            }
            if decision.allowed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(Failure::Configuration(problems)) => {
            super::report(&problems);
            ExitCode::from(CONFIG_ERROR)
        }
        Err(Failure::Usage(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(USAGE)
        }
        Err(Failure::Unreachable(message)) => {
            eprintln!("error: {message}");
            ExitCode::from(UNREACHABLE)
        }
    }
}

/// Whether the tool of this rule shows a cluster, a node or a storage as a whole.
fn shows_a_whole_place(rule: &authz::ToolRule) -> bool {
    catalog::all().any(|spec| spec.name() == rule.name && matches!(spec.addresses, Addresses::Whole(_)))
}

/// The decision with its reasoning.
///
/// # Errors
/// See [`Failure`].
pub async fn explain(args: &ExplainArgs) -> Result<Decision, Failure> {
    let sources = Sources {
        clusters: args.clusters_file.clone(),
        tokens: Some(args.tokens_file.clone()),
        waivers: args.waivers_file.clone(),
        lab_mode: args.lab_mode,
        vocabulary: Vocabulary { knows_tool: catalog::knows_scope, knows_op: catalog::knows_op },
    };
    let snapshot = config::load(&sources, 1, &process_environment).map_err(Failure::Configuration)?.snapshot;
    let principal = principal(args, &snapshot)?;
    let rule = catalog::rule(&args.tool)
        .ok_or_else(|| Failure::Usage(format!("--tool {}: no tool or scope has this name", args.tool)))?;
    let addresses = catalog::all().find(|spec| spec.name() == rule.name).map(|spec| spec.addresses);
    // A tool that makes a guest is about its number, and only that.
    let new = args.new || addresses == Some(Addresses::NewGuest);
    let needs_guest = new || rule.protection_refuses() || matches!(addresses, Some(Addresses::Guest(_)));
    if needs_guest && args.vmid.is_none() {
        return Err(Failure::Usage(format!("`{}` is about a guest: name it with --vmid", rule.name)));
    }
    let cluster = snapshot.cluster(args.cluster.as_deref());
    let name = match (&args.cluster, cluster) {
        (Some(name), _) => Some(name.as_str()),
        (None, Some(only)) => Some(only.name.as_str()),
        (None, None) if args.vmid.is_some() => {
            return Err(Failure::Usage(
                "several clusters are configured: name one with --cluster".to_owned(),
            ));
        }
        (None, None) => None,
    };
    let facts = match (args.vmid, cluster) {
        (Some(vmid), Some(cluster)) if !new => Some(guest(args, cluster, vmid).await?),
        _ => None,
    };
    let subject = match (args.vmid, &facts) {
        (Some(vmid), _) if new => Asked::NewGuest(vmid),
        (_, Some(Some(facts))) => Asked::Guest(facts),
        (Some(vmid), _) => Asked::AbsentGuest(vmid),
        (None, _) if shows_a_whole_place(rule) => Asked::EveryGuest,
        (None, _) => Asked::Nothing,
    };
    let nothing_protected = authz::Protection::default();
    let question = Question {
        principal: &principal,
        rule,
        cluster: name,
        cluster_known: cluster.is_some(),
        subject,
        op: args.op.as_deref().unwrap_or_else(|| usual_op(rule)),
        planner: args.planner.as_deref().unwrap_or_else(|| principal.name()),
        protection: cluster.map_or(&nothing_protected, |cluster| &cluster.protection),
        overrides: Overrides { waivers: &snapshot.waivers, lab_mode: snapshot.lab_mode },
        now: args.at.unwrap_or_else(Timestamp::now),
    };
    Ok(question.explain())
}

fn principal(args: &ExplainArgs, snapshot: &Snapshot) -> Result<Arc<Principal>, Failure> {
    match args.token.as_str() {
        "stdio" => Ok(Arc::new(Principal::local_reader("stdio"))),
        "anonymous" => Ok(Arc::new(Principal::anonymous_reader())),
        name => snapshot.tokens.principal(name).ok_or_else(|| {
            Failure::Usage(format!(
                "--token {name}: {} has no entry of that name; `token list` shows the names it has",
                args.tokens_file.display()
            ))
        }),
    }
}

/// The word that a waiver for this rule names.
fn usual_op(rule: &ToolRule) -> &'static str {
    match rule.name {
        "delete_vm" | "delete_container" => crate::changes::DESTROY_GUEST,
        "restore_backup_new_vmid" => "restore_new_vmid",
        name => name,
    }
}

/// The guest's facts as the flags give them, or as the cluster does; `None` for one it does not have.
async fn guest(
    args: &ExplainArgs,
    cluster: &Arc<Cluster>,
    vmid: Vmid,
) -> Result<Option<Arc<GuestFacts>>, Failure> {
    if args.tags.is_some() || args.pool.is_some() || args.protection.is_some() {
        let tags = args.tags.as_deref().unwrap_or_default();
        return Ok(Some(Arc::new(GuestFacts {
            cluster: cluster.name.clone(),
            vmid,
            kind: GuestKind::Qemu,
            name: None,
            tags: Known::Known(
                tags.split([',', ';']).filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
            ),
            pool: Known::Known(args.pool.clone()),
            protection: match args.protection.unwrap_or(Flag::Off) {
                Flag::On => Known::Known(true),
                Flag::Off => Known::Known(false),
                Flag::Unreadable => Known::Unreadable,
            },
        })));
    }
    // The operator sees every guest, whatever the token in question does.
    let operator = Principal::local_reader("stdio");
    match Resolver::default().guest(cluster, vmid.value(), Freshness::Now, &operator).await {
        Ok(guest) => Ok(Some(guest.facts.clone())),
        Err(ResolveError::Absent) => Ok(None),
        Err(ResolveError::Ambiguous) => Err(Failure::Unreachable(format!(
            "cluster {} reports guest {vmid} more than once: every call about it is refused until an administrator has looked",
            cluster.name
        ))),
        Err(ResolveError::Cluster(error)) => Err(Failure::Unreachable(format!(
            "cluster {} could not be asked: {error}; without it, describe the guest with --tags, --pool and --protection",
            cluster.name
        ))),
    }
}
