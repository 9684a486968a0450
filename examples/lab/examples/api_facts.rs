//! Writes `examples/lab/data/api-facts.json` again from PVE's API description.
//!
//! `cargo run -p lab --example api_facts -- <pve-api.json>`
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(source) = std::env::args_os().nth(1) else {
        eprintln!("usage: api_facts <pve-api.json>");
        return ExitCode::FAILURE;
    };
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/api-facts.json");
    let written = std::fs::read_to_string(&source)
        .map_err(|error| error.to_string())
        .and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()))
        .and_then(|api| lab::facts::project(&api).ok_or_else(|| "it lacks an endpoint of the lab".to_owned()))
        .and_then(|facts| {
            std::fs::write(&target, lab::facts::render(&facts)).map_err(|error| error.to_string())
        });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("cannot project {}: {problem}", Path::new(&source).display());
            ExitCode::FAILURE
        }
    }
}
