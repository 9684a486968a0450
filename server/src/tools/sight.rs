//! What of a cluster a caller may read, where an answer is about many guests at once.

use std::sync::Arc;

use authz::{Principal, Tier, Vmid};
use proxmox_api::Inventory;

use crate::config::Cluster;
use crate::resolve::facts_of;
use crate::stack::{CallContext, ToolFailure};

/// The guests of one cluster as one caller sees them.
#[derive(Debug)]
pub enum Sight {
    /// Every guest: nothing needs to be looked up.
    Everything,
    /// Some, decided on one listing of the cluster's guests.
    Some(Box<Narrow>),
}

/// A token that may not read every guest, and the guests there are.
#[derive(Debug)]
pub struct Narrow {
    principal: Arc<Principal>,
    /// By number, whether the caller may read it. A number that is listed twice is readable only if both are.
    guests: Vec<(u32, bool)>,
    /// Nodes that hold a readable guest, sorted.
    nodes: Vec<String>,
}

impl Narrow {
    fn new(principal: Arc<Principal>, cluster: &str, inventory: &Inventory) -> Self {
        let mut guests: Vec<(u32, bool)> = Vec::new();
        let mut nodes = Vec::new();
        for entry in inventory.guests() {
            let Some(facts) = facts_of(cluster, entry) else { continue };
            let (vmid, visible) = (facts.vmid.value(), principal.visible(&facts));
            match guests.last_mut() {
                Some((last, both)) if *last == vmid => *both &= visible,
                _ => guests.push((vmid, visible)),
            }
            if visible {
                nodes.extend(entry.node());
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        let nodes = nodes.into_iter().map(String::from).collect();
        Self { principal, guests, nodes }
    }

    /// `None` where there is no such guest.
    fn guest(&self, vmid: u32) -> Option<bool> {
        let at = self.guests.binary_search_by_key(&vmid, |(number, _)| *number).ok()?;
        self.guests.get(at).map(|(_, visible)| *visible)
    }
}

impl Sight {
    /// What the caller sees of `cluster`. A token for every guest costs no request, every other token the same one.
    ///
    /// # Errors
    /// The cluster cannot be asked.
    pub async fn of(ctx: &CallContext, cluster: &Arc<Cluster>) -> Result<Self, ToolFailure> {
        let principal = &ctx.caller.principal;
        if principal.unrestricted_guests() {
            return Ok(Sight::Everything);
        }
        let inventory = ctx.app.resolver.inventory(cluster, ctx.caller.snapshot.read_freshness()).await?;
        Ok(Sight::Some(Box::new(Narrow::new(principal.clone(), &cluster.name, &inventory))))
    }

    /// Whether everything may be shown.
    pub fn is_whole(&self) -> bool {
        matches!(self, Sight::Everything)
    }

    /// Whether what belongs to this guest number may be shown. Where there is no such guest (any more), the number alone
    /// decides, as it does for a guest to be created: what is left of a guest belongs to those whose range holds it.
    pub fn guest(&self, vmid: u32) -> bool {
        let Sight::Some(narrow) = self else { return true };
        narrow.guest(vmid).unwrap_or_else(|| {
            narrow.principal.grant().is_some_and(|grant| {
                grant.actions().holds(Tier::Read)
                    && Vmid::new(vmid).is_some_and(|vmid| grant.selects_new(vmid).is_some())
            })
        })
    }

    /// Whether what belongs to this guest may be shown; what belongs to none is shown only to those who see everything.
    pub fn guest_or_none(&self, vmid: Option<u32>) -> bool {
        vmid.map_or(self.is_whole(), |vmid| self.guest(vmid))
    }

    /// An argument that narrows an answer to one guest. One that may not be shown is refused like one that is not there.
    ///
    /// # Errors
    /// The guest may not be shown, or the number is none.
    pub fn only(&self, vmid: Option<u32>) -> Result<Option<proxmox_api::Vmid>, ToolFailure> {
        let Some(vmid) = vmid else { return Ok(None) };
        if !self.guest(vmid) {
            return Err(authz::Denial::guest_unknown().into());
        }
        let vmid = proxmox_api::Vmid::new(vmid).map_err(|error| {
            ToolFailure::new("invalid_argument", format!("`vmid`: {error}")).with("field", "vmid")
        })?;
        Ok(Some(vmid))
    }

    /// Whether this node holds a guest that may be shown.
    pub fn node(&self, name: &str) -> bool {
        match self {
            Sight::Everything => true,
            Sight::Some(narrow) => narrow.nodes.binary_search_by(|node| node.as_str().cmp(name)).is_ok(),
        }
    }
}
