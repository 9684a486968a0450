//! The command line: one file per verb.

pub mod args;

pub use args::{ServeArgs, Transport};
