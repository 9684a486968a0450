//! Pools: guests and storages put together, mostly to give rights on them.

use crate::{
    client::Client,
    error::Error,
    ids::{PoolId, StorageId, Vmid},
    inventory::Resource,
    wire::{Form, JsonMap, Listing, Path, Record},
};

/// A pool in the list of pools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its id.
    pub poolid: PoolId,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// A pool with what is in it.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolMembers {
    /// The pool; its JSON holds the members as PVE sent them.
    pub pool: Pool,
    /// The members the token may see: guests and storages.
    pub members: Listing<Resource>,
}

impl Pool {
    fn read(row: &Record<'_>) -> Option<Self> {
        Some(Self { poolid: row.id("poolid")?, comment: row.filled("comment"), json: row.json() })
    }
}

/// `/pools`
fn pools() -> Path {
    Path::of("pools")
}

impl Client {
    /// The pools the token may see (`GET /pools`; `Pool.Audit` or a right on each; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn pools(&self) -> Result<Listing<Pool>, Error> {
        self.read(pools(), Form::new()).await?.list(Pool::read)
    }

    /// A pool and its members (`GET /pools?poolid=…`; needs `Pool.Audit` on it; PVE 8.1 to 9).
    ///
    /// # Errors
    /// See [`Error`]; [`NotFound`](crate::ErrorKind::NotFound) when there is none of that name.
    pub async fn pool(&self, poolid: &PoolId) -> Result<PoolMembers, Error> {
        let reply = self.read(pools(), Form::new().put("poolid", poolid)).await?;
        let mut list = reply.list(|row| {
            let members = row.listing("members", Resource::read);
            Some((Pool::read(row)?, members))
        })?;
        match list.items.pop() {
            Some((pool, Some(members))) if list.items.is_empty() && pool.poolid == *poolid => {
                Ok(PoolMembers { pool, members })
            }
            _ => Err(reply.malformed("`data` is not one pool with its members, the one asked for")),
        }
    }
}

/// What to put into a pool or take out of it; at least one thing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolChange {
    /// Guests.
    pub vms: Vec<Vmid>,
    /// Storages.
    pub storage: Vec<StorageId>,
}

impl PoolChange {
    fn form(&self, poolid: &PoolId) -> Result<Form, Error> {
        if self.vms.is_empty() && self.storage.is_empty() {
            return Err(Error::argument("change", "it changes nothing; name guests or storages"));
        }
        Ok(Form::new().put("poolid", poolid).put_list("vms", &self.vms).put_list("storage", &self.storage))
    }
}

impl Client {
    /// Makes a pool (`POST /pools`; needs `Pool.Allocate` on it; PVE 7 to 9, nested ones 8.1 and later). Done when it is
    /// answered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn create_pool(&self, poolid: &PoolId, comment: Option<&str>) -> Result<(), Error> {
        self.post(pools(), Form::new().put("poolid", poolid).put_some("comment", comment)).await?.done()
    }

    /// Changes what is written about a pool (`PUT /pools`; needs `Pool.Allocate` on it; PVE 8.1 to 9). Done when it is
    /// answered.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn describe_pool(&self, poolid: &PoolId, comment: &str) -> Result<(), Error> {
        self.put(pools(), Form::new().put("poolid", poolid).put("comment", comment)).await?.done()
    }

    /// Puts guests and storages into a pool (`PUT /pools`; needs `Pool.Allocate` on it, and on each member
    /// `Permissions.Modify`, or `VM.Allocate` or `Datastore.Allocate`; PVE 8.1 to 9). Done when it is answered. A guest
    /// is in one pool at most: `allow_move` takes it out of another one.
    ///
    /// # Errors
    /// See [`Error`]. A change of nothing is refused before anything is sent.
    pub async fn add_to_pool(
        &self,
        poolid: &PoolId,
        members: &PoolChange,
        allow_move: bool,
    ) -> Result<(), Error> {
        self.put(pools(), members.form(poolid)?.put_if("allow-move", allow_move)).await?.done()
    }

    /// Takes guests and storages out of a pool (`PUT /pools` with `delete`; privileges as for
    /// [`Client::add_to_pool`]; PVE 8.1 to 9). Done when it is answered.
    ///
    /// # Errors
    /// See [`Error`]. A change of nothing is refused before anything is sent.
    pub async fn remove_from_pool(&self, poolid: &PoolId, members: &PoolChange) -> Result<(), Error> {
        self.put(pools(), members.form(poolid)?.put_flag("delete", true)).await?.done()
    }

    /// Deletes a pool (`DELETE /pools`; needs `Pool.Allocate` on it; PVE 8.1 to 9). Done when it is answered. It must be
    /// empty.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn delete_pool(&self, poolid: &PoolId) -> Result<(), Error> {
        self.delete(pools(), Form::new().put("poolid", poolid)).await?.done()
    }
}
