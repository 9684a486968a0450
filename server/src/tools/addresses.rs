//! Addresses of guests.

use proxmox_api::{Error, ErrorKind, Interface, Listing, RunState};
use serde_json::{Value, json};

use super::args::GuestArgs;
use super::power::guest_of;
use super::table::{Table, integer, objects, text, texts};
use crate::catalog::{HandlerResult, Target};
use crate::resolve::Guest;
use crate::stack::{CallContext, ToolFailure};

/// `get_vm_ip` and `get_container_ip`.
pub static ADDRESSES: Table<(Guest, Listing<Interface>)> = Table(&[
    integer("vmid", "", |(guest, _)| Some(guest.vmid().into())),
    text("node", "where it is now", |(guest, _)| Some(guest.node().to_owned())),
    texts("addresses", "under which others can reach it: no loopback, no link-local", |(_, listing)| {
        listing.iter().flat_map(Interface::reachable).map(|ip| ip.to_string()).collect()
    }),
    objects("interfaces", "`name`, `hwaddr`, and `addresses` with prefix", |(_, listing)| {
        listing.iter().map(interface).collect()
    }),
    integer("skipped", "unreadable rows of the answer", |(_, listing)| Some(listing.skipped as u64)),
]);

fn interface(interface: &Interface) -> Value {
    let addresses: Vec<String> = interface
        .addresses
        .iter()
        .map(|address| match address.prefix {
            Some(prefix) => format!("{}/{prefix}", address.ip),
            None => address.ip.to_string(),
        })
        .collect();
    let mut out = json!({"name": interface.name, "addresses": addresses});
    if let Some(hwaddr) = &interface.hwaddr {
        out["hwaddr"] = hwaddr.as_str().into();
    }
    out
}

/// `get_vm_ip`.
pub async fn of_vm(_ctx: &CallContext, target: &Target, _args: GuestArgs) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    let found = cluster.client.agent_interfaces(&guest.at).await.map_err(|error| no_agent(error, guest))?;
    Ok(Value::Object(ADDRESSES.record(&(guest.clone(), found))))
}

/// `get_container_ip`.
pub async fn of_container(_ctx: &CallContext, target: &Target, _args: GuestArgs) -> HandlerResult {
    let (cluster, guest) = guest_of(target)?;
    // PVE answers null about a container that does not run, and the listing may not know yet that it was stopped.
    let found = match cluster.client.lxc_interfaces(&guest.at).await {
        Err(error) if error.kind() == ErrorKind::Malformed => {
            let status = cluster.client.guest_status(&guest.at).await?;
            let stopped = status.state == RunState::Stopped;
            return Err(if stopped { not_running(guest, "start_container") } else { error.into() });
        }
        asked => asked?,
    };
    Ok(Value::Object(ADDRESSES.record(&(guest.clone(), found))))
}

fn not_running(guest: &Guest, start: &str) -> ToolFailure {
    let message =
        format!("guest {} is not running, so it has no addresses: start it first ({start})", guest.vmid());
    ToolFailure::new("guest_not_running", message)
}

/// The agent's ways to fail, each with what helps.
fn no_agent(error: Error, guest: &Guest) -> ToolFailure {
    let said = error.message().trim_end();
    let vmid = guest.vmid();
    let remedy = if said.contains("is not running") && said.starts_with("VM ") {
        return not_running(guest, "start_vm");
    } else if said.contains("No QEMU guest agent configured") {
        "switch it on in the machine's configuration (`agent: 1`), install qemu-guest-agent in the guest, and stop and start it \
         once"
    } else if said.contains("guest agent is not running") {
        "it is switched on, but does not answer: install and start qemu-guest-agent in the guest, or wait until it has booted"
    } else if said.contains("got timeout") {
        "the agent took too long; the guest may be busy or hang: try again, and look at it from the console"
    } else if said.starts_with("Agent error") {
        "the agent refused; its own configuration may forbid `guest-network-get-interfaces`"
    } else {
        return error.into();
    };
    ToolFailure::new("agent_unavailable", format!("guest {vmid}: {said}; {remedy}"))
}
