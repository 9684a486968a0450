//! What is kept between requests: questions, sessions, tasks, subscriptions, over HTTP and stdio.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod asking;
mod listening;
mod over_stdio;
mod sessions;
mod support;
mod tasks;
