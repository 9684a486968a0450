//! Runs every body over its committed corpus.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use fuzz_bodies::TARGETS;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

#[test]
fn every_corpus_file_replays_clean() {
    let mut failed = Vec::new();
    for (target, body) in TARGETS {
        let corpus = fuzz().join("corpus").join(target);
        let entries = fs::read_dir(&corpus).unwrap_or_else(|e| panic!("{}: {e}", corpus.display()));
        let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "{} is empty", corpus.display());
        for file in &files {
            let data = fs::read(file).unwrap();
            if catch_unwind(|| body(&data)).is_err() {
                failed.push(file.display().to_string());
            }
        }
        println!("{target}: {} files", files.len());
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Bodies also take the degenerate inputs a corpus tends not to hold.
#[test]
fn every_body_takes_degenerate_input() {
    for (target, body) in TARGETS {
        for data in [&[][..], &[0], &[0xff], &[0; 4096], &[0xff; 4096], b"\xf0\x9f\x92\xa9\n\r\t \"'\\"] {
            assert!(catch_unwind(|| body(data)).is_ok(), "{target} on {data:?}");
        }
    }
}

/// The table, the libFuzzer targets and the corpus directories name the same targets.
#[test]
fn targets_corpus_and_table_agree() {
    let table: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let names = |directory: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(fuzz().join(directory)).unwrap();
        entries
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
            .collect()
    };
    assert_eq!(names("corpus"), table);
    assert_eq!(names("fuzz_targets"), table);
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in &table {
        assert!(
            manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n")),
            "{name}"
        );
        let source = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("fuzz_bodies::{name}(data)")), "{name} calls another body");
    }
}

/// A corpus of refusals only would test little: where a body reads a format, some of its files are accepted.
#[test]
fn corpora_hold_accepted_and_refused_inputs() {
    let now = "2026-11-30T00:00:00Z".parse().unwrap();
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    type Accepts<'a> = &'a dyn Fn(&[u8]) -> bool;
    let readers: [(&str, Accepts<'_>); 10] = [
        ("grant_selector", &|data| {
            text(data).split('\n').next().is_some_and(|line| line.parse::<authz::Selector>().is_ok())
        }),
        ("known_hosts", &|data| guest_push::KnownHosts::parse(&text(data)).is_ok()),
        ("link_token", &|data| transfers::LinkToken::parse(&text(data)).is_some()),
        ("mcp_request", &|data| {
            mcp_wire::Message::parse(data, &mcp_wire::jsonrpc::Limits::default()).is_ok()
        }),
        ("json_readers", &|data| {
            data.get(2..).is_some_and(|rest| {
                let line = rest.iter().position(|b| *b == b'\n').unwrap_or(0);
                proxmox_api::fuzzing::list(&rest[line..], "").is_ok()
            })
        }),
        ("volid", &|data| text(data).parse::<proxmox_api::Volid>().is_ok()),
        ("state_decode", &|data| fuzz_bodies::reads_as_a_set(data)),
        ("tokens_json", &|data| authz::TokenTable::parse(data).is_ok_and(|table| !table.is_empty())),
        ("upid", &|data| text(data).parse::<proxmox_api::Upid>().is_ok()),
        ("waivers_json", &|data| {
            authz::WaiverSet::parse(data, |_| true, now).is_ok_and(|(set, _)| set.iter().count() > 0)
        }),
    ];
    for (target, accepts) in readers {
        let entries = fs::read_dir(fuzz().join("corpus").join(target)).unwrap();
        let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        let accepted = files.iter().filter(|file| accepts(&fs::read(file).unwrap())).count();
        println!("{target}: {accepted} of {} accepted", files.len());
        assert!(accepted >= 2 && accepted < files.len(), "{target}: {accepted} of {} accepted", files.len());
    }
}
