//! The endpoints. A handler sees checked parameters, reads or changes the state, and starts nothing itself: the
//! worker it wants is part of its answer.

mod access;
mod agent;
mod backup;
mod clone;
mod cluster;
mod config;
mod create;
mod disks;
mod firewall;
mod guest;
mod ha;
mod lists;
mod migrate;
mod network;
mod node;
mod pending;
mod pools;
mod power;
mod resize;
mod snapshot;
mod storage;
mod task;
mod time;
mod worker;

use std::sync::Arc;

use crate::api::check::Checked;
use crate::api::reply::{Answer, Refusal};
use crate::api::upload::Uploaded;
use crate::cluster::Cluster;
use crate::config::GuestKind;
use crate::state::State;
use crate::state::guest::Guest;

/// One call of an endpoint.
pub(crate) struct Call<'a> {
    pub(crate) state: &'a mut State,
    /// The token of the caller, `user@realm!id`.
    pub(crate) token: &'a str,
    pub(crate) parameters: &'a Checked,
    pub(crate) cluster: &'a Arc<Cluster>,
    /// The file that came with the request, if it was an upload.
    pub(crate) upload: Option<Uploaded>,
}

impl Call<'_> {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name) == Some("1")
    }

    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(|value| value.parse().ok())
    }

    pub(crate) fn node(&self) -> &str {
        self.get("node").unwrap_or_default()
    }

    pub(crate) fn vmid(&self) -> u32 {
        self.get("vmid").and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn may(&self, path: &str, privilege: &str) -> bool {
        self.state.acl.has(self.token, path, privilege, &self.state.pools)
    }

    /// The guest of the call, on the node of the call.
    pub(crate) fn guest(&self, kind: GuestKind) -> Result<&Guest, Refusal> {
        let (node, vmid) = (self.node(), self.vmid());
        self.state.guest_at(node, kind, vmid).ok_or_else(|| missing_config(kind, node, vmid))
    }
}

/// PVE's "not found" for a guest, which also means that it is on another node.
pub(crate) fn missing_config(kind: GuestKind, node: &str, vmid: u32) -> Refusal {
    Refusal::die(format!("Configuration file 'nodes/{node}/{}/{vmid}.conf' does not exist", kind.conf_dir()))
}

/// Calls the endpoint; `None` when there is no such one.
pub(crate) fn dispatch(method: &str, template: &str, call: &mut Call<'_>) -> Option<Result<Answer, Refusal>> {
    use GuestKind::{Lxc, Qemu};
    Some(match (method, template) {
        ("GET", "/version") => cluster::version(),
        ("GET", "/cluster/status") => cluster::status(call),
        ("GET", "/cluster/resources") => lists::resources(call),
        ("GET", "/cluster/nextid") => cluster::nextid(call),
        ("GET", "/cluster/tasks") => task::of_cluster(call),
        ("GET", "/nodes") => node::index(call),
        ("GET", "/nodes/{node}/status") => node::status(),
        ("GET", "/nodes/{node}/config") => node::config(call),
        ("GET", "/nodes/{node}/query-url-metadata") => storage::content::url_metadata(call),
        ("GET", "/nodes/{node}/qemu") => guest::list(call, Qemu),
        ("GET", "/nodes/{node}/lxc") => guest::list(call, Lxc),
        ("GET", "/nodes/{node}/qemu/{vmid}/config") => config::get(call, Qemu),
        ("GET", "/nodes/{node}/lxc/{vmid}/config") => config::get(call, Lxc),
        ("PUT", "/nodes/{node}/qemu/{vmid}/config") => config::put(call, Qemu),
        ("PUT", "/nodes/{node}/lxc/{vmid}/config") => config::put(call, Lxc),
        ("GET", "/nodes/{node}/qemu/{vmid}/status/current") => guest::current(call, Qemu),
        ("GET", "/nodes/{node}/lxc/{vmid}/status/current") => guest::current(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/status/start") => power::start(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/status/start") => power::start(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/status/stop") => power::stop(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/status/stop") => power::stop(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/status/shutdown") => power::shutdown(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/status/shutdown") => power::shutdown(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/status/reboot") => power::reboot(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/status/reboot") => power::reboot(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/status/suspend") => power::suspend(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/status/suspend") => power::suspend(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/status/resume") => power::resume(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/status/resume") => power::resume(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/status/reset") => power::reset(call),
        ("POST", "/nodes/{node}/qemu") => create::create(call, Qemu),
        ("POST", "/nodes/{node}/lxc") => create::create(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/config") => config::post(call),
        ("POST", "/nodes/{node}/qemu/{vmid}/clone") => clone::clone(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/clone") => clone::clone(call, Lxc),
        ("GET", "/nodes/{node}/qemu/{vmid}/migrate") => migrate::precondition(call, Qemu),
        ("GET", "/nodes/{node}/lxc/{vmid}/migrate") => migrate::precondition(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/migrate") => migrate::migrate(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/migrate") => migrate::migrate(call, Lxc),
        ("PUT", "/nodes/{node}/qemu/{vmid}/resize") => resize::resize(call, Qemu),
        ("PUT", "/nodes/{node}/lxc/{vmid}/resize") => resize::resize(call, Lxc),
        ("GET", "/nodes/{node}/qemu/{vmid}/snapshot") => guest::snapshots(call, Qemu),
        ("GET", "/nodes/{node}/lxc/{vmid}/snapshot") => guest::snapshots(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/snapshot") => snapshot::create(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/snapshot") => snapshot::create(call, Lxc),
        ("DELETE", "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}") => snapshot::delete(call, Qemu),
        ("DELETE", "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}") => snapshot::delete(call, Lxc),
        ("PUT", "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config") => snapshot::describe(call, Qemu),
        ("PUT", "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/config") => snapshot::describe(call, Lxc),
        ("POST", "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/rollback") => snapshot::rollback(call, Qemu),
        ("POST", "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/rollback") => snapshot::rollback(call, Lxc),
        ("DELETE", "/nodes/{node}/qemu/{vmid}") => power::destroy(call, Qemu),
        ("DELETE", "/nodes/{node}/lxc/{vmid}") => power::destroy(call, Lxc),
        ("GET", "/nodes/{node}/tasks") => task::list(call),
        ("GET", "/nodes/{node}/tasks/{upid}/status") => task::status(call),
        ("GET", "/nodes/{node}/tasks/{upid}/log") => task::log(call),
        ("DELETE", "/nodes/{node}/tasks/{upid}") => task::stop(call),
        ("GET", "/nodes/{node}/storage") => storage::index(call),
        ("GET", "/nodes/{node}/storage/{storage}/content") => storage::content(call),
        ("GET", "/nodes/{node}/storage/{storage}/status") => storage::status(call),
        ("GET", "/nodes/{node}/storage/{storage}/content/{volume}") => storage::volume(call),
        ("GET", "/nodes/{node}/qemu/{vmid}/pending") => pending::get(call, Qemu),
        ("GET", "/nodes/{node}/lxc/{vmid}/pending") => pending::get(call, Lxc),
        ("GET", "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config") => guest::snapshot_config(call, Qemu),
        ("GET", "/nodes/{node}/lxc/{vmid}/snapshot/{snapname}/config") => guest::snapshot_config(call, Lxc),
        ("GET", "/nodes/{node}/lxc/{vmid}/interfaces") => network::interfaces(call),
        ("POST", "/nodes/{node}/storage/{storage}/content") => storage::content::allocate(call),
        ("PUT", "/nodes/{node}/storage/{storage}/content/{volume}") => storage::content::update(call),
        ("DELETE", "/nodes/{node}/storage/{storage}/content/{volume}") => storage::content::delete(call),
        ("POST", "/nodes/{node}/storage/{storage}/download-url") => storage::content::download(call),
        ("POST", "/nodes/{node}/storage/{storage}/upload") => storage::content::upload(call),
        ("POST", "/nodes/{node}/vzdump") => backup::vzdump(call),
        ("GET", "/nodes/{node}/vzdump/extractconfig") => backup::extract_config(call),
        ("POST", "/pools") => pools::create(call),
        ("PUT", "/pools" | "/pools/{poolid}") => pools::update(call),
        ("DELETE", "/pools" | "/pools/{poolid}") => pools::delete(call),
        ("GET", "/pools") => lists::pools(call),
        ("GET", "/pools/{poolid}") => lists::pool(call),
        ("GET", "/access/permissions") => access::permissions(call),
        _ => {
            return firewall::dispatch(method, template, call)
                .or_else(|| ha::dispatch(method, template, call))
                .or_else(|| agent::dispatch(method, template, call));
        }
    })
}
