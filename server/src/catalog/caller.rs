//! What a caller can learn about itself.

use super::read::{Read, record};
use super::schema::schema_of;
use super::spec::{Addresses, ToolSpec};
use crate::tools::args::NoArgs;
use crate::tools::caller;

pub(super) static TOOLS: &[ToolSpec] = &[Read {
    name: "whoami",
    title: "Who am I",
    description: "Who the caller is to this server and what it may do: token, person, scopes, clusters, guests, actions, expiry; which \
                  tools it can call, and for every other tool and scope what is missing. Asks no cluster.",
    addresses: Addresses::Nothing,
    privileges: &[],
    input: schema_of::<NoArgs>,
    output: || caller::WHO.record_schema(),
    run: record!(caller::who),
}
.tool()];
