//! Everything on a cluster at one moment: `GET /cluster/resources`, read once and indexed.

mod columns;
mod entry;
mod read;
mod resource;

use std::fmt;

pub use entry::Entry;
pub use resource::{Resource, ResourceKind};

use self::read::Row;
use crate::{
    client::Client,
    error::{Effect, Error},
    ids::Vmid,
    wire::{Form, Listing, Path, Reply, Scrubber},
};

/// An answer to `GET /cluster/resources`: the entries in PVE's order, and the guests by number.
///
/// The answer's text is kept and read where a column is asked for, so that the making of an inventory of ten thousand
/// guests costs little more than going through the text once. One odd column costs neither the entry nor the list.
///
/// PVE takes where a guest is, its kind and its tags from the cluster's file system at once. Names, states and loads
/// come from a broadcast every 10 s or so: of the guests of a node that is offline there is no name and `unknown` for
/// a state, and nobody can say that no guest has a certain name while such guests exist ([`Named::unnamed`]).
pub struct Inventory {
    text: String,
    rows: Vec<Row>,
    /// Number of the guest and index of its row, in that order.
    guests: Vec<(u32, u32)>,
    /// Indices of the nodes' rows.
    nodes: Vec<u32>,
    skipped: usize,
}

/// What an inventory says about a guest's number.
#[derive(Debug, Clone, Copy)]
pub enum Lookup<'a> {
    /// No guest has it. That is certain: guests of an offline node are listed too.
    Absent,
    /// One guest has it.
    Guest(Entry<'a>),
    /// The answer contradicts itself, so nothing may be done to either.
    Contradiction(Contradiction),
}

/// How an answer can contradict itself about a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contradiction {
    /// Several entries have the number.
    Repeated,
    /// The guest is on a node that is not among the cluster's nodes.
    UnknownNode,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeated => "the cluster lists this number more than once",
            Self::UnknownNode => "the cluster lists this number at a node that it does not have",
        })
    }
}

/// The guests of one name.
#[derive(Debug, Clone)]
pub struct Named<'a> {
    /// Those that have it, by number. PVE lets several guests have one name.
    pub guests: Vec<Entry<'a>>,
    /// How many guests the answer gives no name of: while there are any, one of them may be meant.
    pub unnamed: usize,
}

impl Inventory {
    /// Reads the body of an answer to `GET /cluster/resources`.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`](crate::ErrorKind::Malformed) when the body is not `{"data": […]}` or nested more than
    /// 128 levels deep. Entries that make no sense are no error; they are counted in [`Inventory::skipped`].
    pub fn parse(body: impl Into<Vec<u8>>) -> Result<Self, Error> {
        let call = "GET /cluster/resources".to_owned();
        // Nothing was sent, so there is nothing that it could have done.
        Self::of(Reply::new(body.into(), Effect::NotSent, Scrubber::without_secret(), call))
    }

    fn of(mut reply: Reply) -> Result<Self, Error> {
        let text = reply.take_text();
        read::read(text).map_err(|problem| reply.malformed(&problem.to_string()))
    }

    /// Everything that could be read, in PVE's order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = Entry<'_>> {
        self.rows.iter().enumerate().map(|(at, row)| Entry::new(&self.text, row, at))
    }

    /// The guests by number. A number that is listed more than once comes more than once.
    pub fn guests(&self) -> impl Iterator<Item = Entry<'_>> {
        self.guests.iter().filter_map(|(_, at)| self.entry(*at))
    }

    /// The nodes, in PVE's order. PVE names all of them whatever the token may see.
    pub fn nodes(&self) -> impl Iterator<Item = Entry<'_>> {
        self.nodes.iter().filter_map(|at| self.entry(*at))
    }

    /// The guest of a number.
    #[must_use]
    pub fn guest(&self, vmid: Vmid) -> Lookup<'_> {
        let mut numbered = self.numbered(vmid);
        match (numbered.next(), numbered.next()) {
            (None, _) => Lookup::Absent,
            (Some(_), Some(_)) => Lookup::Contradiction(Contradiction::Repeated),
            (Some(guest), None) if self.node_is_online(guest).is_none() => {
                Lookup::Contradiction(Contradiction::UnknownNode)
            }
            (Some(guest), None) => Lookup::Guest(guest),
        }
    }

    /// Every entry with this guest's number; more than one is a contradiction.
    pub fn numbered(&self, vmid: Vmid) -> impl Iterator<Item = Entry<'_>> {
        let from = self.guests.partition_point(|(number, _)| *number < vmid.get());
        let these = self.guests.iter().skip(from).take_while(move |(number, _)| *number == vmid.get());
        these.filter_map(|(_, at)| self.entry(*at))
    }

    /// The guests of a name, compared byte for byte.
    #[must_use]
    pub fn named(&self, name: &str) -> Named<'_> {
        let mut found = Named { guests: Vec::new(), unnamed: 0 };
        for guest in self.guests() {
            match guest.name() {
                None => found.unnamed += 1,
                Some(other) if other == name => found.guests.push(guest),
                Some(_) => {}
            }
        }
        found
    }

    /// Whether the node of an entry is online; `None` when it is not among the cluster's nodes.
    #[must_use]
    pub fn node_is_online(&self, entry: Entry<'_>) -> Option<bool> {
        let name = entry.node()?;
        let node = self.nodes().find(|node| node.node().is_some_and(|other| other == name))?;
        Some(node.status().is_some_and(|status| status == "online"))
    }

    /// How many entries were read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether none was. Look at [`Inventory::skipped`] too, and think of a token without privileges.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many entries could not be read, because what identifies them is missing or makes no sense.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// Every entry with all its columns, as values of their own.
    #[must_use]
    pub fn to_listing(&self) -> Listing<Resource> {
        Listing {
            items: self.entries().map(Entry::to_resource).collect(),
            skipped: self.skipped,
            total: None,
        }
    }

    /// The entry at this place in PVE's order, from 0.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<Entry<'_>> {
        Some(Entry::new(&self.text, self.rows.get(at)?, at))
    }

    fn entry(&self, at: u32) -> Option<Entry<'_>> {
        self.get(at as usize)
    }
}

impl fmt::Debug for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inventory")
            .field("entries", &self.rows.len())
            .field("guests", &self.guests.len())
            .field("nodes", &self.nodes.len())
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Everything on the cluster that the token may see, indexed. Only the nodes in it may mean a token without
    /// privileges.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn inventory(&self) -> Result<Inventory, Error> {
        Inventory::of(self.read(Path::of("cluster").word("resources"), Form::new()).await?)
    }

    /// [`Client::inventory`] as values of their own.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn resources(&self) -> Result<Listing<Resource>, Error> {
        Ok(self.inventory().await?.to_listing())
    }

    /// The guests among [`Client::resources`], the answer being that much smaller. Several entries for one number
    /// are given as they are; a caller that needs one must refuse both.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn guests(&self) -> Result<Listing<Resource>, Error> {
        let query = Form::new().put("type", "vm");
        Ok(Inventory::of(self.read(Path::of("cluster").word("resources"), query).await?)?.to_listing())
    }
}

#[cfg(test)]
mod tests;
