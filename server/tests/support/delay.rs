//! A stretch of network on loopback: every byte arrives so much later, in either direction, and none is lost.
#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test stops at the first surprise")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Pieces under way in one direction: far more than a connection with such a distance keeps in flight.
const IN_FLIGHT: usize = 4096;
const PIECE: usize = 64 * 1024;

/// Listens until the process ends.
pub struct Delay {
    port: u16,
}

impl Delay {
    /// In front of this port of loopback.
    pub fn before(port: u16, each_way: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                }
                stretch(near.try_clone().unwrap(), far.try_clone().unwrap(), each_way);
                stretch(far, near, each_way);
            }
        });
        Self { port: own }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

/// One direction: a thread that reads at once, and one that writes when the time has come.
fn stretch(from: TcpStream, to: TcpStream, delay: Duration) {
    let (sender, receiver) = sync_channel(IN_FLIGHT);
    thread::spawn(move || read(from, &sender, delay));
    thread::spawn(move || write(to, &receiver));
}

fn read(mut from: TcpStream, sender: &SyncSender<(Instant, Vec<u8>)>, delay: Duration) {
    let mut buffer = vec![0; PIECE];
    loop {
        let piece = match from.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(length) => buffer[..length].to_vec(),
        };
        if sender.send((Instant::now() + delay, piece)).is_err() {
            break;
        }
    }
    // The end of the stream travels as long as its bytes: the writer sees the channel's end after the last of them.
    let _gone = from.shutdown(Shutdown::Read);
}

fn write(mut to: TcpStream, receiver: &Receiver<(Instant, Vec<u8>)>) {
    for (due, piece) in receiver {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _gone = to.shutdown(Shutdown::Write);
}
