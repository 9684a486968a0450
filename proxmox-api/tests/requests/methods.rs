//! The table of the client's methods.

use std::{future::Future, pin::Pin};

use proxmox_api::{Client, Error};

use crate::{arguments::Args, mutations::MUTATIONS, reads::READS};

pub(crate) type Call = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A method of the client, and how to call it with any arguments.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) run: fn(Client, Args) -> Call,
}

/// An [`Entry`] from the name of a method and a call of it that is awaited.
macro_rules! entry {
    ($name:literal, |$client:ident, $args:ident| $call:expr) => {
        $crate::methods::Entry {
            name: $name,
            run: |client, args| {
                Box::pin(async move {
                    let ($client, $args) = (&client, &args);
                    let result = $call;
                    result.map(drop)
                })
            },
        }
    };
}
pub(crate) use entry;

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Entry> {
    READS.iter().chain(MUTATIONS)
}
