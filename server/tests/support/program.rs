//! The real program as a child process: over HTTP, over stdio, and whatever it says on its way out.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "shared by several test programs, none of which uses all of it; a test stops at the first surprise"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How long a test waits for something that is bound to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of a pipe, read by a thread so that the pipe never fills and waiting for a line has an end.
pub struct Lines {
    lines: Receiver<String>,
}

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { lines }
    }

    /// The next line; `None` at the end.
    pub fn next(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => panic!("the program said nothing for {PATIENCE:?}"),
        }
    }

    /// The next line that contains `what`.
    pub fn until(&self, what: &str) -> String {
        let mut seen = Vec::new();
        while let Some(line) = self.next() {
            if line.contains(what) {
                return line;
            }
            seen.push(line);
        }
        panic!("it ended without saying {what:?}:\n{}", seen.join("\n"))
    }

    /// Everything up to the end.
    pub fn rest(&self) -> Vec<String> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// `proxward` in a process of its own, killed when dropped.
pub struct Program {
    child: Child,
    pub log: Lines,
}

/// How it ended.
pub struct Exit {
    pub code: Option<i32>,
    pub log: String,
}

impl Program {
    /// Starts it with these arguments; standard output is dropped.
    pub fn start(line: &[String]) -> Self {
        Self::spawn(command(line).stdin(Stdio::null()).stdout(Stdio::null()))
    }

    /// Starts it over HTTP and waits until it serves.
    pub fn serve(line: &[String]) -> (Self, SocketAddr) {
        let program = Self::start(line);
        let ready = program.log.until("serving MCP at /mcp");
        let (_, address) = ready.split_once("address=").unwrap();
        let address = address.trim().parse().unwrap();
        (program, address)
    }

    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = Lines::of(child.stderr.take().unwrap());
        Self { child, log }
    }

    /// Where it serves, or all that it said when it ended without.
    pub fn ready(&self) -> Result<SocketAddr, String> {
        let mut said = Vec::new();
        while let Some(line) = self.log.next() {
            if line.contains("serving MCP at /mcp") {
                return Ok(line.split_once("address=").unwrap().1.trim().parse().unwrap());
            }
            said.push(line);
        }
        Err(said.join("\n"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until it has ended: the end of its log is the end of the process.
    pub fn exit(mut self) -> Exit {
        let log = self.log.rest().join("\n");
        Exit { code: self.child.wait().unwrap().code(), log }
    }

    pub fn terminate(self) -> Exit {
        self.signal(Signal::TERM);
        self.exit()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn command(line: &[String]) -> Command {
    let mut command = Command::new(binary());
    command.args(line).env_remove("RUST_LOG");
    command
}

/// The program that was built with the tests; to measure, another build of it, from `PROXWARD_TEST_PROGRAM`.
pub fn binary() -> std::ffi::OsString {
    std::env::var_os("PROXWARD_TEST_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_proxward").into())
}

/// A client over standard input and output that insists on frames.
pub struct StdioClient {
    pub program: Program,
    input: Option<ChildStdin>,
    frames: Lines,
    last_id: u64,
}

impl StdioClient {
    /// Starts `proxward` with the arguments of a stage's HTTP server, but over stdio.
    pub fn start(line: &[String]) -> Self {
        Self::spawn(&mut command(line))
    }

    pub fn spawn(command: &mut Command) -> Self {
        let mut program = Program::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let input = program.child.stdin.take();
        let frames = Lines::of(program.child.stdout.take().unwrap());
        Self { program, input, frames, last_id: 0 }
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(bytes).unwrap();
        input.flush().unwrap();
    }

    /// The next frame on standard output, which must be one JSON-RPC message on a line.
    pub fn frame(&self) -> Option<Value> {
        let line = self.frames.next()?;
        let frame: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("no frame: {e}: {line:?}"));
        assert_eq!(frame["jsonrpc"], "2.0", "{line}");
        Some(frame)
    }

    /// Sends a request of revision 2026-07-28 without waiting, and returns its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.send_plain(method, params)
    }

    /// The same without `_meta`, as the older revisions do.
    pub fn send_plain(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(format!("{message}\n").as_bytes());
        id
    }

    /// The answer to the request of that id, which must be the next frame.
    pub fn answer(&self, id: u64) -> Value {
        let frame = self.frame().unwrap_or_else(|| panic!("the program ended before it answered {id}"));
        assert_eq!(frame["id"], id, "{frame}");
        frame
    }

    /// One request and its answer.
    pub fn rpc(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Calls a tool: `Ok` with its structured result, `Err` with the JSON of an `isError` result.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let frame = self.rpc("tools/call", json!({"name": tool, "arguments": arguments}));
        let result = &frame["result"];
        assert!(result.is_object(), "{tool}: {frame}");
        let text = result["content"][0]["text"].as_str().unwrap();
        if result["isError"] == true {
            return Err(serde_json::from_str(text).unwrap());
        }
        Ok(result["structuredContent"].clone())
    }

    /// Definitions that `tools/list` shows.
    pub fn list(&mut self) -> Vec<Value> {
        let frame = self.rpc("tools/list", json!({}));
        frame["result"]["tools"].as_array().unwrap().clone()
    }

    /// Names that `tools/list` shows.
    pub fn tools(&mut self) -> Vec<String> {
        self.list().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Closes the program's input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Closes the program's input, and waits for its end; what it still says must be frames.
    pub fn end(mut self) -> Exit {
        self.close_input();
        while self.frame().is_some() {}
        self.program.exit()
    }
}
