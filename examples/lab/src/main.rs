//! Starts the lab, writes a configuration for a server that uses it, and runs until it is interrupted.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lab::{Lab, LabConfig, LabError};
use tokio::signal::unix::{Signal, SignalKind};

/// Simulated Proxmox VE clusters and nodes on 127.0.0.1.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Arguments {
    /// A lab file instead of the two built-in clusters.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder for clusters.json, token secrets, authorities and SSH keys.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), LabError> {
    let config = match &arguments.config {
        Some(path) => LabConfig::from_file(path)?,
        None => LabConfig::two_clusters()?,
    };
    // Before anything is printed, so that whoever waits for the last line may interrupt at once.
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let lab = Lab::start(config).await?;
    let written = lab.write_config(&arguments.out)?;
    for cluster in lab.clusters() {
        println!("{}: {} as {}", cluster.name(), cluster.endpoint(), cluster.token_id());
        for node in cluster.nodes() {
            println!("  {}: ssh -p {} root@{}", node.name(), node.ssh_port(), node.ssh_host());
        }
    }
    println!("configuration: {}", written.display());
    println!("stop with Ctrl-C");
    tokio::select! {
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    Ok(())
}

fn signal(kind: SignalKind) -> Result<Signal, LabError> {
    tokio::signal::unix::signal(kind).map_err(|source| LabError::Io {
        doing: "listen for",
        path: "signals".into(),
        source,
    })
}
