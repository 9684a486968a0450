//! Criterion benches of the leaf crates, one file a crate under `benches/`. Figures and commands are in `README.md`.
#![forbid(unsafe_code)]
