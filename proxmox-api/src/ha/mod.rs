//! High availability: which guests PVE starts elsewhere when their node fails, and by which rules.

mod resource;
mod rule;
mod status;

pub use resource::HaResource;
pub use rule::HaRule;
pub use status::HaStatus;
