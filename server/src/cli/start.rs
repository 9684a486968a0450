//! What must hold before the server starts: the rules about flags, and everything the files say.
//!
//! `proxward serve` and `proxward check` run this same code, so they cannot disagree.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use mcp_wire::http::HostPolicy;

use super::args::{ServeArgs, Transport};
use crate::audit::Redaction;
use crate::config::{self, Environment, Problem, Sources};
use crate::keys::{Key, Keys};

/// Checks flags, files and keys without writing anything, and returns the warnings.
pub fn examine(args: &ServeArgs, environment: Environment<'_>) -> Result<Vec<Problem>, Vec<Problem>> {
    let mut problems = rules(args);
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key)
        && let Err(more) = config::tls::server_config(certificate, key)
    {
        problems.extend(more);
    }
    problems.extend(keys(args));
    match config::load(&Sources::of(args), 1, environment) {
        Err(more) => {
            problems.extend(more);
            Err(problems)
        }
        Ok(loaded) => {
            let mut warnings = loaded.warnings;
            let tokens = &loaded.snapshot.tokens;
            if let Some(name) = &args.stdio_principal
                && tokens.principal(name).is_none()
            {
                problems.push(Problem::flag(format!(
                    "--stdio-principal {name}: the tokens file has no entry of that name"
                )));
            }
            if args.transport == Transport::StreamableHttp && tokens.is_empty() && !args.allow_no_auth {
                warnings.push(Problem::flag(
                    "the tokens file has no entry, so nobody can log in: add one with `proxward token add NAME`",
                ));
            }
            if problems.is_empty() { Ok(warnings) } else { Err(problems) }
        }
    }
}

/// The rules that only concern flags. Each problem names the flag to set.
pub fn rules(args: &ServeArgs) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut refuse = |message: String| problems.push(Problem::flag(message));
    match args.transport {
        Transport::StreamableHttp => {
            listener_rules(args, args.listen(), "--host", &mut refuse);
            if args.allow_no_auth && !is_loopback(args.host) {
                refuse(format!(
                    "--allow-no-auth with --host {}: without tokens the server listens on loopback only; drop --allow-no-auth \
                     and name a --tokens-file, or set --host 127.0.0.1",
                    args.host
                ));
            }
            if args.stdio_principal.is_some() {
                refuse(
                    "--stdio-principal is for --transport stdio; over HTTP each caller has a token"
                        .to_owned(),
                );
            }
            if args.transfer_listen.is_some() {
                refuse(
                    "--transfer-listen is for --transport stdio; over HTTP uploads use the main listener"
                        .to_owned(),
                );
            }
        }
        Transport::Stdio => {
            if let Some(address) = args.transfer_listen {
                listener_rules(args, address, "--transfer-listen", &mut refuse);
            }
            if args.allow_no_auth {
                refuse(
                    "--allow-no-auth is for --transport streamable-http; stdio has no tokens to leave out"
                        .to_owned(),
                );
            }
        }
    }
    match (&args.tls_cert, &args.tls_key) {
        (Some(_), None) => refuse("--tls-cert needs --tls-key".to_owned()),
        (None, Some(_)) => refuse("--tls-key needs --tls-cert".to_owned()),
        _ => {}
    }
    if let Some(address) = args.metrics_listen {
        metrics_rules(args, address, &mut refuse);
    }
    if let Err(error) = HostPolicy::new(&args.allowed_host, &args.allowed_origin) {
        refuse(format!("--allowed-host/--allowed-origin: {error}"));
    }
    if args.audit_hmac_key_file.is_some() && args.audit_redact != Redaction::Hmac {
        refuse("--audit-hmac-key-file has no effect without --audit-redact hmac".to_owned());
    }
    problems.extend(state_file(args));
    problems
}

/// Rules for a socket that others can reach.
fn listener_rules(args: &ServeArgs, address: SocketAddr, flag: &str, refuse: &mut impl FnMut(String)) {
    if !is_loopback(address.ip()) && (args.tls_cert.is_none() || args.tls_key.is_none()) {
        refuse(format!(
            "{flag} {address} is reachable from other machines and plain HTTP would show every token: set --tls-cert and \
             --tls-key, or listen on 127.0.0.1 behind a TLS proxy"
        ));
    }
    if address.ip().to_canonical().is_unspecified() {
        if args.allowed_host.is_empty() {
            refuse(format!(
                "{flag} {address} listens on every address: name the hosts it answers to with --allowed-host"
            ));
        }
        if args.allowed_origin.is_empty() {
            refuse(format!(
                "{flag} {address} listens on every address: name the web origins it answers to with --allowed-origin"
            ));
        }
    }
}

/// Counters need no token, so they are never where callers are.
fn metrics_rules(args: &ServeArgs, address: SocketAddr, refuse: &mut impl FnMut(String)) {
    let ip = address.ip().to_canonical();
    if ip.is_unspecified() {
        refuse(format!(
            "--metrics-listen {address} listens on every address, the public one too: name one of them, such as 127.0.0.1:9187"
        ));
    }
    let public = match args.transport {
        Transport::StreamableHttp => Some(args.listen()),
        Transport::Stdio => args.transfer_listen,
    };
    if let Some(public) = public
        && !is_loopback(public.ip())
        && public.ip().to_canonical() == ip
    {
        refuse(format!(
            "--metrics-listen {address} is the address that callers use; counters need no token, so name another, such as \
             127.0.0.1:{}",
            address.port()
        ));
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Refuses the JSON store that other servers of this kind name with the same flag.
fn state_file(args: &ServeArgs) -> Option<Problem> {
    const SQLITE: &[u8] = b"SQLite format 3\0";
    let path = args.state_file.as_ref()?;
    let mut start = Vec::new();
    if let Ok(file) = File::open(path) {
        // A file that cannot be read is the store's to refuse.
        let _ = file.take(SQLITE.len() as u64).read_to_end(&mut start);
    }
    let json = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
    let foreign = !start.is_empty() && start != SQLITE;
    (json || foreign).then(|| {
        Problem::flag(format!(
            "--state-file {}: this is no Proxward database; change sets of another server cannot be taken over: finish or reject \
             them there, then leave the flag out (state goes to {}) or name a file ending in .db",
            path.display(),
            args.state_dir.join("state.db").display()
        ))
    })
}

/// Keys that exist must be usable; those that do not are made at start.
fn keys(args: &ServeArgs) -> Vec<Problem> {
    let own = [Keys::APPROVAL_FILE, Keys::AUDIT_FILE].map(|name| args.state_dir.join("keys").join(name));
    let own = own.into_iter().filter(|path| path.symlink_metadata().is_ok());
    own.chain(args.audit_hmac_key_file.clone())
        .filter_map(|path| Key::read(&path).err())
        .map(|error| Problem::flag(error.to_string()))
        .collect()
}

#[cfg(test)]
mod tests;
