use std::fmt;

use super::resource::resources;
use crate::{
    client::Client,
    error::Error,
    ids::{Digest, HaSid, NodeName},
    wire::{Form, JsonMap, Reply},
};

/// The state HA keeps a guest in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HaState {
    /// It runs, somewhere.
    Started,
    /// It is stopped, and moved when its node fails.
    Stopped,
    /// It is stopped and stays where it is.
    Disabled,
    /// HA leaves it alone.
    Ignored,
}

impl fmt::Display for HaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Disabled => "disabled",
            Self::Ignored => "ignored",
        })
    }
}

/// How HA manages a guest. What is `None` is left to PVE, or stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HaSettings {
    /// The state to keep it in; `started` by default.
    pub state: Option<HaState>,
    /// How often a start is tried again on the same node.
    pub max_restart: Option<u32>,
    /// How often a start is tried on another node.
    pub max_relocate: Option<u32>,
    /// Whether it goes back to its preferred node when that returns (PVE 9).
    pub failback: Option<bool>,
    /// What it is for, at most 4096 characters.
    pub comment: Option<String>,
}

impl HaSettings {
    fn form(&self) -> Result<Form, Error> {
        check_comment(self.comment.as_deref())?;
        Ok(Form::new()
            .put_some("state", self.state)
            .put_some("max_restart", self.max_restart)
            .put_some("max_relocate", self.max_relocate)
            .put_some("failback", self.failback.map(u8::from))
            .put_some("comment", self.comment.as_ref()))
    }
}

pub(super) fn check_comment(comment: Option<&str>) -> Result<(), Error> {
    if comment.is_some_and(|comment| comment.chars().count() > 4096) {
        return Err(Error::argument("comment", "longer than the 4096 characters PVE takes"));
    }
    Ok(())
}

/// What PVE says when it takes a request to move a guest under HA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HaMove {
    /// Guests that move with it, `vm:100`.
    pub comigrated: Vec<String>,
    /// Guests that keep it from moving; then it does not.
    pub blocking: Vec<String>,
    /// The whole answer as PVE sent it; empty before PVE 9.
    pub json: JsonMap,
}

impl HaMove {
    fn read(reply: &Reply) -> Result<Self, Error> {
        if reply.is_null()? {
            return Ok(Self::default());
        }
        reply.record(|data| {
            let blocking = data.listing("blocking-resources", |row| row.filled("sid"));
            Ok(Self {
                comigrated: data.texts("comigrated-resources"),
                blocking: blocking.map(|list| list.items).unwrap_or_default(),
                json: data.json(),
            })
        })
    }
}

impl Client {
    /// Puts a guest under HA (`POST /cluster/ha/resources`; needs `Sys.Console` on `/`; PVE 7 to 9). Done when it is
    /// answered; HA then starts the guest unless told otherwise.
    ///
    /// # Errors
    /// See [`Error`]; [`Exists`](crate::ErrorKind::Exists) when it is under HA.
    pub async fn add_ha_resource(&self, sid: HaSid, settings: &HaSettings) -> Result<(), Error> {
        self.post(resources(), settings.form()?.put("sid", sid)).await?.done()
    }

    /// Changes how HA manages a guest (`PUT /cluster/ha/resources/{sid}`; needs `Sys.Console` on `/`; PVE 7 to 9). Done
    /// when it is answered.
    ///
    /// # Errors
    /// See [`Error`]; [`Changed`](crate::ErrorKind::Changed) when the digest is not that of the resources. A change of
    /// nothing is refused before anything is sent.
    pub async fn update_ha_resource(
        &self,
        sid: HaSid,
        settings: &HaSettings,
        digest: Option<&Digest>,
    ) -> Result<(), Error> {
        if *settings == HaSettings::default() {
            return Err(Error::argument("settings", "they change nothing; set one"));
        }
        let form = settings.form()?.put_some("digest", digest);
        self.put(resources().id(&sid), form).await?.done()
    }

    /// Takes a guest out of HA (`DELETE /cluster/ha/resources/{sid}`; needs `Sys.Console` on `/`; PVE 7 to 9). Done when
    /// it is answered. The guest stays as it is. On PVE 9 it is also taken out of the HA rules.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn remove_ha_resource(&self, sid: HaSid) -> Result<(), Error> {
        self.delete(resources().id(&sid), Form::new()).await?.done()
    }

    /// Asks HA to move a guest to a node while it runs (`POST /cluster/ha/resources/{sid}/migrate`; needs `Sys.Console`
    /// on `/`; PVE 7 to 9). Only the request is done when it is answered: look at the guest.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be asked for.
    pub async fn migrate_ha_resource(&self, sid: HaSid, node: &NodeName) -> Result<HaMove, Error> {
        let path = resources().id(&sid).word("migrate");
        HaMove::read(&self.post(path, Form::new().put("node", node)).await?)
    }

    /// Asks HA to stop a guest, and to start it on a node (`POST /cluster/ha/resources/{sid}/relocate`; needs
    /// `Sys.Console` on `/`; PVE 7 to 9). Only the request is done when it is answered: look at the guest.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be asked for.
    pub async fn relocate_ha_resource(&self, sid: HaSid, node: &NodeName) -> Result<HaMove, Error> {
        let path = resources().id(&sid).word("relocate");
        HaMove::read(&self.post(path, Form::new().put("node", node)).await?)
    }
}
