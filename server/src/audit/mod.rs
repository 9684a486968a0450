//! The audit trail: an append-only, hash-chained JSONL file with a writer of its own.
//!
//! It never goes through `tracing`, so no log filter can switch it off. One line is one event, whatever the
//! event's texts hold. Each line carries the hash of the one before; the chain goes on across restarts and
//! across rotated files. A mutation first makes its attempt durable ([`Audit::append_durable`]); when that
//! fails the trail is *poisoned* and every further record is refused until the file is opened anew.
//!
//! - [`record`]: what one record says.
//! - [`chain`]: how a record becomes a line, and how lines are verified.
//! - [`checkpoint`]: the sealed note of where the chain stands, kept beside the file.
//! - [`writer`]: the thread that owns the file.
//! - [`redact`]: what `--audit-redact` does.

pub mod chain;
pub mod checkpoint;
mod file;
mod history;
pub mod record;
pub mod redact;
mod unfinished;
pub mod writer;

pub use chain::{BadRecord, Head, Summary, VerifyError, verify, verify_files};
pub use history::history;
pub use record::{Decision, Event, Record};
pub use redact::{Redaction, Redactor};
pub use unfinished::unfinished;
pub use writer::{Audit, AuditConfig, AuditError, OpenError, Seq};
