//! HTTP/1.1 written and read by hand, for what a well-behaved client would never send.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::panic,
    missing_docs,
    reason = "shared by several test programs, none of which uses all of it; a test stops at the first surprise"
)]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a test waits for something that is bound to happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
pub struct Raw {
    pub stream: TcpStream,
    read: Vec<u8>,
}

/// One answer, byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    /// Status line and headers, up to and with the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The `code` of an error.
    pub fn code(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        body["error"]["code"].as_str().unwrap_or_default().to_owned()
    }
}

impl Raw {
    pub async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, read: Vec::new() }
    }

    /// Sends bytes that the server is sure to take.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends bytes, as many as the server takes before it closes.
    pub async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// The next answer; `None` where the connection ends first. An answer to HEAD has no body whatever its headers say.
    pub async fn next(&mut self, of_head: bool) -> Option<Reply> {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            if !self.more().await {
                assert!(self.read.is_empty(), "cut off: {:?}", String::from_utf8_lossy(&self.read));
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head, body: Vec::new() };
        if of_head || status < 200 {
            return Some(reply);
        }
        match reply.header("content-length").map(|length| length.parse::<usize>().unwrap()) {
            Some(length) => {
                while self.read.len() < length {
                    assert!(self.more().await, "cut off in the body of {}", reply.head);
                }
                reply.body = self.read.drain(..length).collect();
            }
            None => {
                while self.more().await {}
                reply.body = std::mem::take(&mut self.read);
            }
        }
        Some(reply)
    }

    /// The next answer.
    pub async fn reply(&mut self) -> Reply {
        self.next(false).await.unwrap_or_else(|| panic!("closed without an answer"))
    }

    /// Waits until the server has closed the connection, which it must do without another byte.
    pub async fn closed(&mut self) {
        while self.more().await {}
        assert!(self.read.is_empty(), "it said more: {:?}", String::from_utf8_lossy(&self.read));
    }

    /// Reads some. `false`: the connection has ended, in whichever way.
    async fn more(&mut self) -> bool {
        let mut space = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, self.stream.read(&mut space)).await;
        let read = read.unwrap_or_else(|_| panic!("the server was silent for {PATIENCE:?}")).unwrap_or(0);
        self.read.extend_from_slice(&space[..read]);
        read > 0
    }
}

/// Sends one request over a connection of its own and returns its answer.
pub async fn once(address: SocketAddr, bytes: impl AsRef<[u8]>) -> Reply {
    let mut raw = Raw::open(address).await;
    raw.try_write(bytes).await;
    raw.reply().await
}

/// A request's head: method and target as given, the right host, and these further lines.
pub fn head(address: SocketAddr, method: &str, target: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n{lines}\r\n")
}

/// A whole upload with a declared length.
pub fn put(address: SocketAddr, target: &str, body: &str) -> String {
    head(address, "PUT", target, &[&format!("Content-Length: {}", body.len())]) + body
}
