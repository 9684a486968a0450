//! High availability: which guests PVE starts elsewhere when their node fails, and by which rules.

mod resource;
mod resource_write;
mod rule;
mod rule_write;
mod status;

pub use resource::HaResource;
pub use resource_write::{HaMove, HaSettings, HaState};
pub use rule::HaRule;
pub use rule_write::{HaAffinity, HaRuleKind, NewHaRule};
pub use status::HaStatus;
