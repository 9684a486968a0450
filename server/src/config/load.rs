//! All configuration files in one pass.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use authz::json::{Document, FileProblem, Warning};
use authz::{TokenTable, WaiverSet};
use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::Environment;
use super::clusters;
use super::problem::Problem;
use super::snapshot::Snapshot;
use crate::cli::ServeArgs;
use crate::files::{self, Privacy};

/// Where the configuration comes from; fixed for the life of the process.
#[derive(Debug, Clone)]
pub struct Sources {
    /// `--clusters-file`.
    pub clusters: PathBuf,
    /// `--tokens-file`; `None` where the transport reads none.
    pub tokens: Option<PathBuf>,
    /// `--waivers-file`; it need not exist.
    pub waivers: PathBuf,
    /// `--lab-mode`.
    pub lab_mode: bool,
    /// The words that scope lists and waivers may use; others load with a warning.
    pub vocabulary: Vocabulary,
}

/// Tells the words that mean something to this server.
#[derive(Clone, Copy)]
pub struct Vocabulary {
    /// Whether a tool, or an authorization-only scope, of this name exists.
    pub knows_tool: fn(&str) -> bool,
    /// Whether a waiver can name this operation.
    pub knows_op: fn(&str) -> bool,
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary").finish_non_exhaustive()
    }
}

impl Sources {
    /// The files that the flags name.
    pub fn of(args: &ServeArgs) -> Self {
        Self {
            clusters: args.clusters_file.clone(),
            tokens: args.tokens(),
            waivers: args.waivers_file.clone(),
            lab_mode: args.lab_mode,
            vocabulary: Vocabulary {
                knows_tool: crate::catalog::knows_scope,
                knows_op: crate::catalog::knows_op,
            },
        }
    }
}

/// What was loaded.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub snapshot: Snapshot,
    /// What an operator should look at although it loads.
    pub warnings: Vec<Problem>,
}

/// Reads everything. Nothing is kept when anything is wrong, and all of it is reported.
pub fn load(
    sources: &Sources,
    generation: u64,
    environment: Environment<'_>,
) -> Result<Loaded, Vec<Problem>> {
    let mut all = Collected::default();
    let mut version = Sha256::new();
    version.update(b"pxw-policy-v1\0");
    version.update([u8::from(sources.lab_mode)]);

    let clusters = all.read(&sources.clusters).and_then(|bytes| {
        hash_file(&mut version, &bytes);
        let base = sources.clusters.parent().unwrap_or(Path::new("."));
        let result = Document::parse(&bytes).map_err(|problem| vec![problem]).and_then(|document| {
            let mut findings = document.findings();
            let read = clusters::read(&document, &mut findings, base, environment);
            findings.into_result(read)
        });
        all.take(&sources.clusters, result)
    });
    let tokens = match &sources.tokens {
        Some(path) => all.read(path).and_then(|bytes| {
            let result = TokenTable::parse(&bytes);
            let clusters = clusters.as_ref();
            let result = result.map(|table| {
                let mut warnings = table.warnings().to_vec();
                // Without the clusters, every name would look unknown.
                warnings.extend(table.unknown_names(sources.vocabulary.knows_tool, |name| {
                    clusters.is_none_or(|file| file.clusters.contains_key(name))
                }));
                (table, warnings)
            });
            all.take(path, result)
        }),
        None => TokenTable::parse(NO_TOKENS).ok(),
    };
    let waivers = match files::read(&sources.waivers, Privacy::Secret, MAX_FILE) {
        Ok(bytes) => {
            hash_file(&mut version, &bytes);
            all.take(
                &sources.waivers,
                WaiverSet::parse(&bytes, sources.vocabulary.knows_op, Timestamp::now()),
            )
        }
        Err(error) if error.is_missing() => {
            hash_file(&mut version, b"");
            Some(WaiverSet::empty())
        }
        Err(error) => {
            all.problems.push(Problem::flag(error.to_string()));
            None
        }
    };

    match (clusters, tokens, waivers) {
        (Some(clusters), Some(tokens), Some(waivers)) if all.problems.is_empty() => {
            let snapshot = Snapshot {
                generation,
                clusters: clusters.clusters,
                tokens: Arc::new(tokens),
                waivers: Arc::new(waivers),
                policy: Arc::new(clusters.policy),
                lab_mode: sources.lab_mode,
                policy_version: data_encoding::HEXLOWER.encode(&version.finalize()),
            };
            Ok(Loaded { snapshot, warnings: all.warnings })
        }
        _ => Err(all.problems),
    }
}

/// What stands in for the tokens file where the transport reads none.
const NO_TOKENS: &[u8] = br#"{"version": 1, "tokens": {}}"#;

/// Longest configuration file read.
const MAX_FILE: u64 = authz::json::MAX_FILE_BYTES as u64;

fn hash_file(hasher: &mut Sha256, bytes: &[u8]) {
    hasher.update((bytes.len() as u64).to_be_bytes());
    hasher.update(bytes);
}

/// What was found so far, over all files.
#[derive(Default)]
struct Collected {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Collected {
    fn read(&mut self, path: &Path) -> Option<Vec<u8>> {
        match files::read(path, Privacy::Secret, MAX_FILE) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                // The text names the path already.
                self.problems.push(Problem::flag(error.to_string()));
                None
            }
        }
    }

    fn take<T>(&mut self, path: &Path, result: Result<(T, Vec<Warning>), Vec<FileProblem>>) -> Option<T> {
        let located = |line, column, place, message| Problem {
            file: Some(path.to_owned()),
            position: Some((line, column)),
            place,
            message,
        };
        match result {
            Ok((value, warnings)) => {
                let warnings = warnings.into_iter().map(|w| located(w.line, w.column, w.path, w.message));
                self.warnings.extend(warnings);
                Some(value)
            }
            Err(problems) => {
                let problems = problems.into_iter().map(|p| located(p.line, p.column, p.path, p.message));
                self.problems.extend(problems);
                None
            }
        }
    }
}
