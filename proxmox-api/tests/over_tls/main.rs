//! The client against small TLS servers of its own, which can misbehave byte by byte.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot be set up has failed")]

mod cases;
mod exchange;
mod failover;
mod hostile;
mod mutated;
mod recorded;
mod storm;
mod support;
mod task;
mod tls;
mod upload;
