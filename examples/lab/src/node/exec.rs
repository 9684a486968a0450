//! Commands: the closed set that is interpreted. Nothing is ever started on the host.

use tokio::sync::mpsc;

use crate::node::{Node, pct, words};

/// What a command leaves behind.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    pub(crate) code: u32,
}

impl Output {
    pub(crate) fn ok(stdout: impl Into<String>) -> Output {
        Output { stdout: stdout.into().into_bytes(), ..Output::default() }
    }

    pub(crate) fn fail(code: u32, stderr: impl Into<String>) -> Output {
        Output { stderr: stderr.into(), code, ..Output::default() }
    }
}

/// Standard input of a command, chunk by chunk. Reading blocks.
#[derive(Debug)]
pub(crate) struct Input(Option<mpsc::Receiver<Vec<u8>>>);

impl Input {
    /// What comes through this channel until it closes.
    pub(crate) fn from_channel(receiver: mpsc::Receiver<Vec<u8>>) -> Input {
        Input(Some(receiver))
    }

    /// Nothing at all.
    pub(crate) fn empty() -> Input {
        Input(None)
    }

    /// The next bytes; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.0.as_mut()?.blocking_recv()
    }
}

/// Interprets one command line. File operations and input block: call it where blocking is allowed.
pub(crate) fn run(node: &Node, line: &str, input: Input) -> Output {
    let Some(words) = words::split(line) else {
        node.faults.note(vec![line.to_owned()]);
        return Output::fail(127, "sh: command not found\n");
    };
    node.faults.note(words.clone());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = match words.as_slice() {
        ["sudo", "-n", rest @ ..] => rest,
        all => all,
    };
    match command {
        ["pct" | "/usr/sbin/pct", verb, vmid, rest @ ..] => {
            // What `pct` accepts as a VMID: canonical decimal.
            let Ok(number) = vmid.parse::<u32>() else { return pct::bad_parameters("vmid") };
            match (*verb, rest) {
                ("push", rest) => pct::push(node, number, rest),
                ("status", []) => pct::status(node, number),
                ("exec", ["--", "sh", "-c", script, "proxward", arguments @ ..]) => {
                    pct::exec(node, number, script, arguments, input)
                }
                _ => not_found("pct"),
            }
        }
        [] => Output::default(),
        [other, ..] => not_found(other),
    }
}

fn not_found(name: &str) -> Output {
    Output::fail(127, format!("sh: 1: {name}: not found\n"))
}
