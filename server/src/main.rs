//! The `proxward` program.
fn main() {}
