//! `pct push`, `pct exec` and `pct status`, with the weaknesses of the real ones.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::config::GuestKind;
use crate::node::exec::{Input, Output};
use crate::node::fault::PushFault;
use crate::node::scripts::{self, Guest};
use crate::node::{Node, files};

/// Exit status of a Perl `die`.
const DIED: u32 = 255;

/// What PVE's command line says to a wrong argument.
pub(crate) fn bad_parameters(name: &str) -> Output {
    Output::fail(DIED, format!("400 Parameter verification failed.\n{name}: type check failed\n"))
}

/// The folder of a container that runs on this node.
fn running_container(node: &Node, vmid: u32, refusal: &str) -> Result<PathBuf, Output> {
    let running = {
        let state = node.cluster.state();
        state.guest_at(&node.name, GuestKind::Lxc, vmid).map(|guest| guest.running)
    };
    match running {
        None => {
            let text = format!("Configuration file 'nodes/{}/lxc/{vmid}.conf' does not exist\n", node.name);
            Err(Output::fail(DIED, text))
        }
        Some(false) => Err(Output::fail(DIED, format!("{refusal}\n"))),
        Some(true) => Ok(node.cluster.guest_root(vmid)),
    }
}

/// `pct status <vmid>`.
pub(crate) fn status(node: &Node, vmid: u32) -> Output {
    match running_container(node, vmid, "") {
        Ok(_) => Output::ok("status: running\n"),
        Err(refusal) if refusal.stderr == "\n" => Output::ok("status: stopped\n"),
        Err(refusal) => refusal,
    }
}

/// `pct exec <vmid> -- sh -c <script> proxward <arguments…>` for the known scripts.
pub(crate) fn exec(node: &Node, vmid: u32, script: &str, arguments: &[&str], input: Input) -> Output {
    match running_container(node, vmid, &format!("container '{vmid}' not running!")) {
        Ok(root) => {
            let guest = Guest { cluster: &node.cluster, root: &root, switches: node.faults.switches() };
            scripts::run(&guest, script, arguments, input)
        }
        Err(refusal) => refusal,
    }
}

#[derive(Default)]
struct PushOptions<'a> {
    perms: Option<&'a str>,
    user: Option<&'a str>,
    group: Option<&'a str>,
}

/// `pct push <vmid> <file> <destination> [--perms …] [--user …] [--group …]`.
///
/// As the real one: needs a running container, truncates an existing destination in place, and does not notice
/// a copy that fails halfway.
pub(crate) fn push(node: &Node, vmid: u32, arguments: &[&str]) -> Output {
    let [source, destination, rest @ ..] = arguments else { return bad_parameters("destination") };
    let Some(options) = options(rest) else { return bad_parameters("perms") };
    let root = match running_container(node, vmid, "can only push files to a running VM") {
        Ok(root) => root,
        Err(refusal) => return refusal,
    };
    match copy(node, &root, source, destination, &options) {
        Ok(()) => Output::default(),
        Err(text) => Output::fail(DIED, text + "\n"),
    }
}

fn options<'a>(mut rest: &[&'a str]) -> Option<PushOptions<'a>> {
    let mut options = PushOptions::default();
    while let [first, others @ ..] = rest {
        let (name, value, others) = match first.split_once('=') {
            Some((name, value)) => (name, value, others),
            None => {
                let [value, others @ ..] = others else { return None };
                (*first, *value, others)
            }
        };
        match name {
            "--perms" => options.perms = Some(value),
            "--user" => options.user = Some(value),
            "--group" => options.group = Some(value),
            _ => return None,
        }
        rest = others;
    }
    Some(options)
}

fn copy(
    node: &Node,
    root: &Path,
    source: &str,
    destination: &str,
    options: &PushOptions<'_>,
) -> Result<(), String> {
    let user = options.user.map(|user| lookup(root, "passwd", user)).transpose()?;
    let group = options.group.map(|group| lookup(root, "group", group)).transpose()?;
    let mode = options.perms.map(|perms| u32::from_str_radix(perms.trim_start_matches("0o"), 8));
    let mode = mode.transpose().map_err(|_| "perms is not an octal number".to_owned())?;
    let why = |what: &str, path: &str| {
        let text = format!("failed to open '{path}' for {what}");
        move |error: io::Error| format!("{text}: {}", reason(&error))
    };
    let from =
        files::resolve(&node.cluster.node_root(&node.name), source, true).map_err(why("reading", source))?;
    let from = File::open(&from).map_err(why("reading", source))?;
    let fault = node.faults.switches().push;
    if fault == Some(PushFault::Fail) {
        return Err(format!("failed to create file '{destination}': Input/output error"));
    }
    let target = files::resolve(root, destination, true).map_err(why("writing", destination))?;
    let fresh = !target.exists();
    let mut to = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&target)
        .map_err(why("writing", destination))?;
    let limit = match fault {
        Some(PushFault::Short(bytes)) => bytes,
        _ => u64::MAX,
    };
    // The result of the copy is ignored, as PVE ignores it.
    let _ = io::copy(&mut from.take(limit), &mut to);
    if let Some(mode) = mode.or_else(|| fresh.then_some(0o644)) {
        let permissions = Permissions::from_mode(mode & 0o7777);
        std::fs::set_permissions(&target, permissions).map_err(why("chmod", destination))?;
    }
    if user.is_some() || group.is_some() || fresh {
        node.cluster.set_owner(&target, user.unwrap_or(0), group.unwrap_or(0));
    }
    Ok(())
}

/// A user or group of the container, by number or by its name in `/etc/passwd` or `/etc/group`.
pub(crate) fn lookup(root: &Path, file: &str, name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    if name == "root" {
        return Ok(0);
    }
    let table = files::resolve(root, &format!("/etc/{file}"), true).and_then(std::fs::read_to_string);
    table
        .unwrap_or_default()
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|fields| fields.first() == Some(&name))
        .and_then(|fields| fields.get(2)?.parse().ok())
        .ok_or_else(|| format!("lookup failed for '{name}' in the container's {file}"))
}

/// The text that C's `strerror` has for an error.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "No such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
        io::ErrorKind::AlreadyExists => "File exists".to_owned(),
        io::ErrorKind::NotADirectory => "Not a directory".to_owned(),
        io::ErrorKind::IsADirectory => "Is a directory".to_owned(),
        _ => error.to_string(),
    }
}
