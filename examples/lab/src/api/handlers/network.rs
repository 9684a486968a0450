//! The network addresses of guests: what a container shows, and what a VM's agent tells.

use std::net::Ipv6Addr;

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;
use crate::state::guest::Guest;

/// One NIC as its guest sees it.
struct Nic {
    name: String,
    mac: String,
    /// Address and prefix length.
    v4: (String, u8),
    v6: (String, u8),
}

/// The loopback and the guest's own NICs.
fn nics(guest: &Guest) -> Vec<Nic> {
    let loopback = Nic {
        name: "lo".to_owned(),
        mac: "00:00:00:00:00:00".to_owned(),
        v4: ("127.0.0.1".to_owned(), 8),
        v6: ("::1".to_owned(), 128),
    };
    let own = guest.macs().into_iter().enumerate().map(|(index, (key, mac))| {
        let option = |name: &str| {
            let value = guest.option(&key)?;
            value.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let name = option("name").map_or_else(|| format!("eth{index}"), str::to_owned);
        let fixed = option("ip").and_then(|ip| ip.split_once('/'));
        let fixed = fixed.and_then(|(ip, prefix)| Some((ip.to_owned(), prefix.parse().ok()?)));
        let v4 = fixed.unwrap_or_else(|| (leased(guest.vmid, index), 24));
        let v6 = (link_local(&mac).to_string(), 64);
        Nic { name, mac, v4, v6 }
    });
    std::iter::once(loopback).chain(own).collect()
}

/// The address that the lab's network gives a NIC: each NIC of a guest is in a network of its own.
fn leased(vmid: u32, index: usize) -> String {
    format!("10.{index}.{}.{}", (vmid / 250) % 256, vmid % 250 + 1)
}

/// The address that a NIC makes of its MAC.
fn link_local(mac: &str) -> Ipv6Addr {
    let byte = |at: usize| {
        mac.split(':').nth(at).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default()
    };
    let word = |high: u8, low: u8| u16::from_be_bytes([high, low]);
    Ipv6Addr::new(
        0xfe80,
        0,
        0,
        0,
        word(byte(0) ^ 2, byte(1)),
        word(byte(2), 0xff),
        word(0xfe, byte(3)),
        word(byte(4), byte(5)),
    )
}

/// `/lxc/{vmid}/interfaces`; null for a container that does not run.
pub(crate) fn interfaces(call: &Call<'_>) -> Result<Answer, Refusal> {
    let guest = call.guest(GuestKind::Lxc)?;
    if !guest.running {
        return Ok(Answer::Data(Value::Null));
    }
    let rows = nics(guest).into_iter().map(|nic| {
        json!({
            "name": nic.name, "hwaddr": nic.mac, "hardware-address": nic.mac,
            "inet": format!("{}/{}", nic.v4.0, nic.v4.1), "inet6": format!("{}/{}", nic.v6.0, nic.v6.1),
            "ip-addresses": [
                { "ip-address-type": "inet", "ip-address": nic.v4.0, "prefix": nic.v4.1 },
                { "ip-address-type": "inet6", "ip-address": nic.v6.0, "prefix": nic.v6.1 },
            ],
        })
    });
    Ok(Answer::Data(rows.collect()))
}

/// The result of the agent's `network-get-interfaces`.
pub(crate) fn of_agent(guest: &Guest) -> Value {
    let rows = nics(guest).into_iter().map(|nic| {
        let mut row = json!({
            "name": nic.name, "hardware-address": nic.mac,
            "ip-addresses": [
                { "ip-address-type": "ipv4", "ip-address": nic.v4.0, "prefix": nic.v4.1 },
                { "ip-address-type": "ipv6", "ip-address": nic.v6.0, "prefix": nic.v6.1 },
            ],
        });
        if nic.name != "lo" {
            row["statistics"] = json!({
                "rx-bytes": 1234, "rx-packets": 1, "rx-errs": 0, "rx-dropped": 0,
                "tx-bytes": 4321, "tx-packets": 1, "tx-errs": 0, "tx-dropped": 0,
            });
        }
        row
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_from_the_number_and_the_mac() {
        assert_eq!(leased(100, 0), "10.0.0.101");
        assert_eq!(link_local("bc:24:11:00:00:01").to_string(), "fe80::be24:11ff:fe00:1");
    }
}
