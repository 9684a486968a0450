//! `proxward doctor`: will the tools work on these clusters, and if not, what makes them work.
//!
//! It reads only: connections, certificates, and what PVE says about itself and about the token. What it prints to fix
//! things is for the operator to run.

mod clock;
mod cluster;
mod egress;
mod finding;
mod nodes;
mod rights;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::args::ServeArgs;
use super::{CONFIG_ERROR, output};
use crate::audit::verify_files;
use crate::catalog;
use crate::config::{self, Cluster, Problem, Snapshot, Sources, process_environment};

use finding::{Finding, Level};

/// The flags of `doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// The flags that `serve` gets, so that the same files are looked at.
    #[command(flatten)]
    pub serve: ServeArgs,

    /// Look at this cluster only; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub cluster: Vec<String>,

    /// Print the findings as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Looks and reports. Exit status 0 when no finding is a problem, 1 when one is, 78 when the configuration cannot be read.
pub fn run(args: &DoctorArgs) -> ExitCode {
    let loaded = match config::load(&Sources::of(&args.serve), 1, &process_environment) {
        Ok(loaded) => loaded,
        Err(problems) => {
            super::report(&problems);
            return ExitCode::from(CONFIG_ERROR);
        }
    };
    let clusters = match chosen(&loaded.snapshot, &args.cluster) {
        Ok(clusters) => clusters,
        Err(problem) => {
            super::report(&[problem]);
            return ExitCode::from(CONFIG_ERROR);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut findings: Vec<Finding> = loaded
        .warnings
        .iter()
        .map(|warning| Finding::warning("configuration", warning.to_string()))
        .collect();
    findings.extend(audit_trail(&args.serve));
    let enabled = Enabled::of(&loaded.snapshot);
    if enabled.has("proxmox_fetch_url") {
        findings.push(egress::examine());
    }
    for cluster in clusters {
        findings.extend(runtime.block_on(cluster::examine(&cluster, &enabled)));
    }
    let printed = output::print(&if args.json { finding::json(&findings) } else { finding::text(&findings) });
    if findings.iter().any(|finding| finding.level == Level::Problem) { ExitCode::FAILURE } else { printed }
}

/// The tools that a cluster's token must be able to serve.
#[derive(Debug)]
struct Enabled {
    names: Vec<&'static str>,
    /// Whose they are, in words.
    basis: &'static str,
}

impl Enabled {
    /// What some entry of the tokens file may use; without entries, every tool.
    fn of(snapshot: &Snapshot) -> Self {
        let now = jiff::Timestamp::now();
        let known = || catalog::privileges().map(|(name, _)| name);
        if snapshot.tokens.is_empty() {
            return Self { names: known().collect(), basis: "all tools, because no token was read" };
        }
        let usable = |name: &&'static str| {
            catalog::rule(name)
                .is_some_and(|rule| snapshot.tokens.principals().any(|who| who.may_use(rule, now).is_ok()))
        };
        Self { names: known().filter(usable).collect(), basis: "the tools that tokens may use" }
    }

    fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }
}

fn chosen(snapshot: &Snapshot, names: &[String]) -> Result<Vec<Arc<Cluster>>, Problem> {
    if names.is_empty() {
        return Ok(snapshot.clusters.values().cloned().collect());
    }
    let find = |name: &String| {
        snapshot.clusters.get(name).cloned().ok_or_else(|| {
            let known: Vec<_> = snapshot.clusters.keys().map(String::as_str).collect();
            Problem::flag(format!(
                "--cluster {name}: no such cluster; clusters.json has {}",
                known.join(", ")
            ))
        })
    };
    names.iter().map(find).collect()
}

/// The state of the audit trail, where there is one.
fn audit_trail(args: &ServeArgs) -> Option<Finding> {
    let path = args.audit_file();
    path.symlink_metadata().ok()?;
    Some(match verify_files(&[path.as_path()], None) {
        Ok(summary) => Finding::ok("audit", format!("chain sound up to {}", summary.head)),
        Err(error) => Finding::problem("audit", format!("{}: {error}", path.display()))
            .fix("keep the file for inspection; docs/audit.md says how to go on"),
    })
}
