//! `guest-push`: the shells themselves say what became of quoted arguments.

use std::io::{BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use guest_push::quote;

const SHELLS: [&[&str]; 3] = [&["sh"], &["dash"], &["busybox", "sh"]];
/// What is written in one go fits a pipe, so that neither side waits for the other.
const MOST: usize = 8 * 1024;

/// A shell that reads commands as long as the process lives.
struct Shell {
    name: &'static str,
    _child: Child,
    commands: ChildStdin,
    printed: BufReader<ChildStdout>,
}

static RUNNING: LazyLock<Mutex<Vec<Shell>>> =
    LazyLock::new(|| Mutex::new(SHELLS.into_iter().filter_map(Shell::start).collect()));

/// Arguments separated by NUL bytes, printed by each shell that this machine has.
pub fn quote_shells(data: &[u8]) {
    if data.len() > MOST {
        return;
    }
    let arguments: Vec<&[u8]> = data.split(|b| *b == 0).collect();
    let mut expected = format!("{}\0", arguments.len()).into_bytes();
    for argument in &arguments {
        expected.extend([*argument, b"\0"].concat());
    }
    let mut vector = vec![&b"show"[..]];
    vector.extend(&arguments);
    let line = quote::argv(&vector).expect("no argument has a NUL");
    if line.len() > 4 * MOST {
        return;
    }
    for shell in RUNNING.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
        assert_eq!(shell.show(&line, &expected), expected, "{} on {line:?}", shell.name);
    }
}

impl Shell {
    fn start(words: &'static [&'static str]) -> Option<Self> {
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let (mut commands, printed) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        commands.write_all(b"show() { printf '%s\\0' \"$#\" \"$@\"; }\n").ok()?;
        Some(Self { name: words[0], _child: child, commands, printed })
    }

    /// What it prints for a command line, which ends with a mark of its own; the mark in an argument is no end.
    fn show(&mut self, line: &[u8], expected: &[u8]) -> Vec<u8> {
        const MARK: &[u8] = b"\0end of it\0";
        self.commands.write_all(line).expect("the shell has ended");
        self.commands.write_all(b"\nprintf '\\0end of it\\0'\n").expect("the shell has ended");
        let mut printed = Vec::with_capacity(expected.len() + MARK.len());
        while !printed.ends_with(MARK) || expected.starts_with(&printed) {
            let mut byte = [0];
            self.printed.read_exact(&mut byte).expect("the shell has ended");
            printed.push(byte[0]);
            assert!(
                printed.len() <= expected.len() + MARK.len(),
                "{} printed more than it was given",
                self.name
            );
        }
        printed.truncate(printed.len() - MARK.len());
        printed
    }
}
