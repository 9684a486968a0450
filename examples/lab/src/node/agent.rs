//! What a VM's guest agent starts: the closed set of scripts, and two harmless commands. Nothing is ever started on the
//! host.

use std::path::Path;

use crate::cluster::Cluster;
use crate::node::exec::{Input, Output};
use crate::node::fault::Switches;
use crate::node::scripts::{self, Guest};

/// Runs a command line in a guest; anything unknown ends with 127. File operations block: call it where blocking is
/// allowed.
pub(crate) fn run(cluster: &Cluster, root: &Path, argv: &[String], input: &str) -> Output {
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["sh" | "/bin/sh", "-c", script, "proxward", arguments @ ..] => {
            let guest = Guest { cluster, root, switches: Switches::default() };
            scripts::run(&guest, script, arguments, Input::empty())
        }
        ["echo" | "/bin/echo", words @ ..] => Output::ok(format!("{}\n", words.join(" "))),
        ["cat" | "/bin/cat"] => Output::ok(input),
        [program, ..] => Output::fail(127, format!("{program}: not found\n")),
        [] => Output::fail(127, "no command\n"),
    }
}
