//! Configuration: read strictly, reported completely, swapped as a whole.

pub mod net;
pub mod policy;
pub mod problem;

pub use policy::{Limits, Policy};
pub use problem::Problem;
