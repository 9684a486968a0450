//! Pools: guests and storages put together, mostly to give rights on them.

use crate::{
    client::Client,
    cluster::Resource,
    error::Error,
    ids::PoolId,
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
