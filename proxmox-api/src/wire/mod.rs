//! How PVE spells things on the wire, and how to read what it answers without tripping.

mod field;
mod flag;
mod form;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod listing;
mod number;
mod path;
pub(crate) mod property;
mod record;
mod reply;
mod scan;
mod text;

pub use field::Field;
pub(crate) use flag::flag;
pub(crate) use form::{ENCODED, Form};
pub(crate) use listing::ENTRIES_CAP;
pub use listing::Listing;
pub(crate) use number::{float, integer};
pub(crate) use path::Path;
pub use record::JsonMap;
pub(crate) use record::{Record, Scalar};
pub(crate) use reply::{Reply, refusal};
pub(crate) use scan::{Scan, ScanError};
pub(crate) use text::Scrubber;

#[cfg(test)]
mod tests;
