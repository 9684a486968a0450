//! The network addresses of a running guest.

use std::net::IpAddr;

use super::{GuestKind, GuestRef};
use crate::{
    client::Client,
    error::Error,
    wire::{Form, JsonMap, Listing, Record},
};

/// A network interface as the guest itself sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Its name, `eth0`.
    pub name: String,
    /// Its hardware address.
    pub hwaddr: Option<String>,
    /// Its addresses; those that cannot be read are left out.
    pub addresses: Vec<InterfaceAddress>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

/// An address of an [`Interface`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// The length of the network's prefix.
    pub prefix: Option<u8>,
}

impl InterfaceAddress {
    /// Whether somebody elsewhere can reach the guest under it: not a loopback, link-local, multicast or unspecified
    /// address.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        let link_local = match self.ip {
            IpAddr::V4(ip) => ip.is_link_local(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        !(link_local || self.ip.is_loopback() || self.ip.is_multicast() || self.ip.is_unspecified())
    }

    /// Reads `10.0.0.5/24` or `10.0.0.5`.
    fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = match text.split_once('/') {
            Some((ip, prefix)) => (ip, prefix.parse().ok()),
            None => (text, None),
        };
        // A link-local address of IPv6 may carry the interface, `fe80::1%eth0`.
        let ip = ip.split('%').next()?.parse().ok()?;
        Some(Self { ip, prefix })
    }
}

impl Interface {
    /// The addresses under which the guest can be reached.
    pub fn reachable(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().filter(|address| address.is_reachable()).map(|address| address.ip)
    }

    /// Both kinds tell a list; containers before 9 have only `inet` and `inet6`, one address each.
    fn read(row: &Record<'_>) -> Option<Self> {
        let listed = row.listing("ip-addresses", |entry| {
            let mut address = InterfaceAddress::parse(&entry.filled("ip-address")?)?;
            let prefix = entry.integer("prefix").and_then(|prefix| prefix.try_into().ok());
            address.prefix = prefix.or(address.prefix);
            Some(address)
        });
        let mut addresses = listed.unwrap_or_default().items;
        for key in ["inet", "inet6"] {
            let single = row.filled(key).and_then(|text| InterfaceAddress::parse(&text));
            addresses.extend(single.filter(|single| addresses.iter().all(|known| known.ip != single.ip)));
        }
        Some(Self {
            name: row.filled("name")?,
            hwaddr: row.filled("hardware-address").or_else(|| row.filled("hwaddr")),
            addresses,
            json: row.json(),
        })
    }
}

impl Client {
    /// The interfaces and addresses of a running guest, whatever its kind: [`Client::agent_interfaces`] of a virtual
    /// machine, [`Client::lxc_interfaces`] of a container.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn interfaces(&self, guest: &GuestRef) -> Result<Listing<Interface>, Error> {
        match guest.kind {
            GuestKind::Qemu => self.agent_interfaces(guest).await,
            GuestKind::Lxc => self.lxc_interfaces(guest).await,
        }
    }

    /// The interfaces of a running container as the node sees them (`GET …/lxc/{vmid}/interfaces`; needs `VM.Audit`;
    /// PVE 8.1 to 9).
    ///
    /// # Errors
    /// See [`Error`]. A virtual machine is refused before anything is sent.
    pub async fn lxc_interfaces(&self, guest: &GuestRef) -> Result<Listing<Interface>, Error> {
        guest.must_be(
            GuestKind::Lxc,
            "PVE lists interfaces of containers only; ask the agent of a virtual machine",
        )?;
        self.read(guest.path().word("interfaces"), Form::new()).await?.list(Interface::read)
    }

    /// The interfaces of a running virtual machine as its guest agent sees them
    /// (`GET …/qemu/{vmid}/agent/network-get-interfaces`; needs `VM.GuestAgent.Audit` or `VM.GuestAgent.Unrestricted`,
    /// before PVE 9 `VM.Monitor`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]. Without a configured and running agent PVE answers with an error of its own. A container is
    /// refused before anything is sent.
    pub async fn agent_interfaces(&self, guest: &GuestRef) -> Result<Listing<Interface>, Error> {
        guest.must_be(GuestKind::Qemu, "only virtual machines have a guest agent")?;
        let path = guest.path().word("agent").word("network-get-interfaces");
        let reply = self.read(path, Form::new()).await?;
        reply.record(|data| match data.raw("result") {
            Some(result) => {
                Listing::read(result, Interface::read).map_err(|_| reply.malformed("`result` is not a list"))
            }
            None => Err(reply.malformed("`result` is missing")),
        })
    }
}
