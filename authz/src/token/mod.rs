//! Bearer tokens: their text, the file that holds their hashes, how one is checked, and how the file is
//! edited.

pub mod edit;
mod file;
mod format;
mod verify;

pub use file::{Lookup, StoredAs, TokenTable};
pub use format::{MintedToken, TokenRefusal, mint_token};
pub use verify::{Argon2Candidate, ArgonError, argon2id_entry, sha256_entry};
