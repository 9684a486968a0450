//! Criterion benches of the leaf crates
