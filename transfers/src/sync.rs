//! The locks of this crate, by a name of its own: `tests/interleavings.rs` compiles these very sources with locks whose every
//! interleaving is explored.

pub(crate) use std::sync::Mutex;
