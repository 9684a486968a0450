//! Plan, approve, apply: a two-person change-control state machine with at most one dispatch per step
