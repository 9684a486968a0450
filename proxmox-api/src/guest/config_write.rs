//! Changes to a guest's configuration.

use std::collections::{BTreeMap, BTreeSet};

use super::{GuestKind, GuestRef, options};
use crate::{
    client::Client,
    error::Error,
    ids::{Digest, Tags, Upid},
    wire::Form,
};

/// A change of a guest's configuration: keys to set, keys to unset, and the digest of the configuration it was made
/// for. Keys and values are PVE's; what cannot be sent as meant is refused when the change is sent.
///
/// ```
/// use proxmox_api::{ConfigUpdate, Tags};
///
/// let update = ConfigUpdate::new().set("cores", "4").tags(&Tags::parse("web;prod")).unset("balloon");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigUpdate {
    set: BTreeMap<String, String>,
    unset: BTreeSet<String>,
    revert: BTreeSet<String>,
    digest: Option<Digest>,
    force: bool,
}

impl ConfigUpdate {
    /// A change of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a key.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.set.insert(key.into(), value.into());
        self
    }

    /// Switches a key on or off.
    #[must_use]
    pub fn flag(self, key: impl Into<String>, value: bool) -> Self {
        self.set(key, if value { "1" } else { "0" })
    }

    /// Replaces the tags. PVE has no call to add or remove one: read them first, and send the digest.
    #[must_use]
    pub fn tags(self, tags: &Tags) -> Self {
        self.set("tags", tags.to_string())
    }

    /// Sets the public keys cloud-init puts into a virtual machine, one to a line.
    #[must_use]
    pub fn sshkeys(self, keys: &str) -> Self {
        self.set("sshkeys", encoded_keys(keys))
    }

    /// Unsets a key. A disk is detached by it and kept as `unusedN`; unsetting that destroys it.
    #[must_use]
    pub fn unset(mut self, key: impl Into<String>) -> Self {
        self.unset.insert(key.into());
        self
    }

    /// Drops the change of a key that waits for the next start.
    #[must_use]
    pub fn revert(mut self, key: impl Into<String>) -> Self {
        self.revert.insert(key.into());
        self
    }

    /// Refuses the change if the configuration is no longer the one with this digest.
    #[must_use]
    pub fn digest(mut self, digest: Digest) -> Self {
        self.digest = Some(digest);
        self
    }

    /// Destroys the disks that are unset instead of detaching them; virtual machines only.
    #[must_use]
    pub fn destroy_unset_disks(mut self) -> Self {
        self.force = true;
        self
    }

    fn form(&self, guest: &GuestRef) -> Result<Form, Error> {
        if self.set.is_empty() && self.unset.is_empty() && self.revert.is_empty() {
            return Err(Error::argument("update", "it changes nothing; set, unset or revert a key"));
        }
        if let Some(key) = self.set.keys().find(|key| self.unset.contains(*key)) {
            return Err(Error::argument(key, "both set and unset; do one of them"));
        }
        for key in self.unset.iter().chain(&self.revert) {
            options::check_key(key)?;
        }
        if self.force {
            guest.must_be(
                GuestKind::Qemu,
                "only disks of a virtual machine can be destroyed by unsetting them",
            )?;
            if self.unset.is_empty() {
                return Err(Error::argument("force", "there is no disk to destroy; unset one"));
            }
        }
        let mut form = Form::new();
        for (key, value) in &self.set {
            options::check(guest.kind, key, value)?;
            form = form.put(key, value);
        }
        Ok(form
            .put_list("delete", &self.unset)
            .put_list("revert", &self.revert)
            .put_if("force", self.force)
            .put_some("digest", self.digest.as_ref().map(Digest::for_guest).transpose()?))
    }
}

/// Public keys as PVE keeps them in a virtual machine's configuration, percent-encoded, and takes them no other way.
pub(super) fn encoded_keys(keys: &str) -> String {
    percent_encoding::utf8_percent_encode(keys, crate::wire::ENCODED).to_string()
}

impl Client {
    /// Changes the guest's configuration (`PUT …/config`; needs `VM.Config.*` by key, tags and disks more; PVE 7 to 9).
    /// Done when it is answered, but what a running guest cannot take waits for its next start:
    /// [`Client::guest_pending`]. A change that makes or moves disks of a virtual machine can outlast PVE's 30 seconds
    /// for a call; use [`Client::update_config_task`] for it.
    ///
    /// # Errors
    /// See [`Error`]; [`Changed`](crate::ErrorKind::Changed) when the digest is not the configuration's. A change that a
    /// running guest refused (`hotplug problem`) waits all the same.
    pub async fn update_config(&self, guest: &GuestRef, update: &ConfigUpdate) -> Result<(), Error> {
        let form = update.form(guest)?;
        self.put(guest.path().word("config"), form).await?.done()
    }

    /// As [`Client::update_config`], in a task (`POST …/config`); virtual machines only, PVE 7 to 9. `None` when PVE
    /// answers without one.
    ///
    /// # Errors
    /// As for [`Client::update_config`]. A container, which PVE has no such call for, is refused before anything is
    /// sent.
    pub async fn update_config_task(
        &self,
        guest: &GuestRef,
        update: &ConfigUpdate,
    ) -> Result<Option<Upid>, Error> {
        guest.must_be(GuestKind::Qemu, "PVE changes containers without a task only; use `update_config`")?;
        let form = update.form(guest)?;
        self.post(guest.path().word("config"), form).await?.upid_if_any()
    }
}
