//! `/nodes` and the status of a node.

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::handlers::cluster::{REPOID, VERSION};
use crate::api::reply::{Answer, Refusal};
use crate::config::NodeConfig;
use crate::state::now;

/// Bytes of RAM of every node.
const MEMORY: u64 = 24 << 30;
/// Bytes of RAM in use on every node.
const MEMORY_USED: u64 = 1_430_945_792;
/// Bytes of the root file system.
const DISK: u64 = 252 << 30;
/// Bytes in use there.
const DISK_USED: u64 = 22 << 30;

/// The figures of a node in `/nodes` and `/cluster/resources`; those of use only for who may see them.
pub(crate) fn row(call: &Call<'_>, node: &NodeConfig) -> Value {
    let status = if node.online { "online" } else { "offline" };
    let mut row =
        json!({ "type": "node", "id": format!("node/{}", node.name), "node": node.name, "status": status });
    if node.online {
        row["level"] = json!("");
        if call.may(&format!("/nodes/{}", node.name), "Sys.Audit") {
            row["maxcpu"] = json!(4);
            row["cpu"] = json!(0);
            row["maxmem"] = json!(MEMORY);
            row["mem"] = json!(MEMORY_USED);
            row["maxdisk"] = json!(DISK);
            row["disk"] = json!(DISK_USED);
            row["uptime"] = json!(uptime(call));
        }
    }
    row
}

fn uptime(call: &Call<'_>) -> i64 {
    3000 + now() - call.state.started
}

pub(crate) fn index(call: &Call<'_>) -> Result<Answer, Refusal> {
    let rows = call.state.nodes.iter().map(|node| {
        let mut row = row(call, node);
        row["ssl_fingerprint"] = json!(call.state.fingerprint);
        row
    });
    Ok(Answer::Data(rows.collect()))
}

/// The settings of a node: PVE leaves defaults out and writes numbers as text.
pub(crate) fn config(call: &Call<'_>) -> Result<Answer, Refusal> {
    let all = json!({ "startall-onboot-delay": "15", "digest": "6bd9d4a8d6ac8d0ec2e3a0be2c9a1e6f0f3c4b21" });
    // PVE reads one setting for the caller, and keeps the digest out of that.
    let chosen = call.get("property").filter(|property| *property != "all");
    Ok(Answer::Data(chosen.map_or(all.clone(), |property| match all.get(property) {
        Some(value) => json!({ property: value }),
        None => json!({}),
    })))
}

pub(crate) fn status() -> Result<Answer, Refusal> {
    Ok(Answer::Data(json!({
        "uptime": 3000,
        "cpu": 0, "wait": 0, "idle": 0,
        "loadavg": ["0.26", "0.33", "0.98"],
        "kversion": "Linux 6.17.2-1-pve #1 SMP PREEMPT_DYNAMIC",
        "current-kernel": {
            "machine": "x86_64", "sysname": "Linux", "release": "6.17.2-1-pve", "version": "#1 SMP PREEMPT_DYNAMIC",
        },
        "boot-info": { "mode": "legacy-bios" },
        "cpuinfo": {
            "vendor": "AuthenticAMD", "model": "AMD EPYC", "family": "25", "mhz": "2445.426", "flags": "fpu vme",
            "hvm": "1", "user_hz": 100, "sockets": 1, "cores": 4, "cpus": 4,
        },
        "memory": {
            "total": MEMORY, "used": MEMORY_USED, "free": MEMORY - MEMORY_USED, "available": MEMORY - MEMORY_USED,
        },
        "rootfs": { "total": DISK, "used": DISK_USED, "free": DISK - DISK_USED, "avail": DISK - DISK_USED },
        "swap": { "total": 0, "used": 0, "free": 0 },
        "ksm": { "shared": 0 },
        "pveversion": format!("pve-manager/{VERSION}/{REPOID}"),
    })))
}
