//! A server on a lab, for the benches that measure whole calls.

use clap::Parser as _;
use lab::Lab;
use proxward::cli::token::{ActorType, AddArgs, HashKind, add};
use proxward::cli::{Cli, Command, ServeArgs};
use serde_json::Value;
use tempfile::TempDir;

/// The flags of a server on the lab with this policy, and the bearer of its token `reader`, which may read these guests.
pub(crate) fn reader_of(lab: &Lab, dir: &TempDir, policy: Value, guests: &[&str]) -> (ServeArgs, String) {
    lab.write_config(dir.path()).unwrap();
    let path = dir.path().join("clusters.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    file["policy"] = policy;
    std::fs::write(&path, file.to_string()).unwrap();
    let args = AddArgs {
        name: "reader".to_owned(),
        tokens_file: dir.path().join("tokens.json"),
        tools: vec!["*".to_owned()],
        devices: vec!["*".to_owned()],
        guests: guests.iter().map(|guests| guests.parse().unwrap()).collect(),
        actions: vec!["read".parse().unwrap()],
        person: None,
        actor_type: Some(ActorType::Agent),
        expires: None,
        hash: HashKind::Sha256,
        provider: None,
        provider_tier: None,
        on_behalf_of: None,
    };
    let bearer = add(&args, jiff::Timestamp::now()).unwrap().as_str().to_owned();
    let mut line: Vec<String> =
        ["proxward", "serve", "-t", "streamable-http", "-p", "0"].map(str::to_owned).into();
    for (flag, name) in [
        ("--clusters-file", "clusters.json"),
        ("--tokens-file", "tokens.json"),
        ("--waivers-file", "waivers.json"),
        ("--state-dir", "state"),
    ] {
        line.extend([flag.to_owned(), dir.path().join(name).display().to_string()]);
    }
    let Some(Command::Serve(args)) = Cli::parse_from(line).command else { panic!("not a serve command") };
    (*args, bearer)
}
