//! Storages of a node and what is on them.

pub(crate) mod content;

use serde_json::{Value, json};

use crate::api::format::split_list;
use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};
use crate::config::{GuestKind, StorageConfig, VolumeConfig};

/// Whether a caller sees a storage in lists.
pub(crate) fn may_see(call: &Call<'_>, id: &str) -> bool {
    let path = format!("/storage/{id}");
    call.may(&path, "Datastore.Audit") || call.may(&path, "Datastore.AllocateSpace")
}

/// Whether a node has a storage.
pub(crate) fn is_on(storage: &StorageConfig, node: &str) -> bool {
    storage.nodes.is_empty() || storage.nodes.iter().any(|name| name == node)
}

pub(crate) fn index(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted: Option<Vec<&str>> = call.get("content").map(|list| split_list(list).collect());
    let rows = call
        .state
        .storages
        .iter()
        .filter(|storage| is_on(storage, call.node()) && may_see(call, &storage.id))
        .filter(|storage| call.get("storage").is_none_or(|id| id == storage.id))
        .filter(|storage| {
            wanted
                .as_ref()
                .is_none_or(|wanted| storage.content.iter().any(|kind| wanted.contains(&kind.as_str())))
        })
        .map(|storage| {
            let mut row = figures(storage);
            row["storage"] = json!(storage.id);
            if storage.active {
                // PVE's numbers are exact up to 2^53; a fraction needs no more.
                #[expect(clippy::cast_precision_loss, reason = "a fraction for display")]
                let fraction = storage.used as f64 / storage.total.max(1) as f64;
                row["used_fraction"] = json!(fraction);
            }
            row
        });
    Ok(Answer::Data(rows.collect()))
}

/// What both the list and the status say; one that cannot be reached has no size.
fn figures(storage: &StorageConfig) -> Value {
    let known = |bytes: u64| if storage.active { bytes } else { 0 };
    json!({
        "type": storage.kind, "content": storage.content.join(","), "enabled": 1,
        "active": u8::from(storage.active), "shared": u8::from(storage.shared), "total": known(storage.total),
        "used": known(storage.used), "avail": known(storage.total.saturating_sub(storage.used)),
    })
}

/// The storage of a call, on the node of the call.
pub(crate) fn find<'a>(call: &'a Call<'_>, id: &str) -> Result<&'a StorageConfig, Refusal> {
    let storage = call.state.storages.iter().find(|storage| storage.id == id);
    match storage {
        None => Err(Refusal::die(format!("storage '{id}' does not exist"))),
        Some(storage) if !is_on(storage, call.node()) => {
            Err(Refusal::die(format!("storage '{id}' is not available on node '{}'", call.node())))
        }
        Some(storage) => Ok(storage),
    }
}

pub(crate) fn status(call: &Call<'_>) -> Result<Answer, Refusal> {
    Ok(Answer::Data(figures(find(call, call.get("storage").unwrap_or_default())?)))
}

/// All volumes of a storage that a node has: files, and the disks of guests.
fn volumes(call: &Call<'_>, storage: &StorageConfig) -> Vec<VolumeConfig> {
    let first = call.state.nodes.first().map(|node| node.name.as_str());
    let mut volumes: Vec<VolumeConfig> = storage
        .volumes
        .iter()
        .filter(|volume| storage.shared || volume.node.as_deref().or(first) == Some(call.node()))
        .cloned()
        .collect();
    volumes.extend(guest_disks(call, storage));
    volumes
}

/// Where a storage has a file of its own.
pub(crate) fn path_of(storage: &StorageConfig, volume: &VolumeConfig) -> String {
    let name = volume.volid.rsplit(['/', ':']).next().unwrap_or_default();
    let base = match (storage.kind.as_str(), storage.shared) {
        ("lvm" | "lvmthin", _) => return format!("/dev/pve/{name}"),
        (_, true) => format!("/mnt/pve/{}", storage.id),
        (_, false) => "/var/lib/vz".to_owned(),
    };
    let folder = match volume.content.as_str() {
        "iso" => "template/iso",
        "vztmpl" => "template/cache",
        "backup" => "dump",
        "import" => "import",
        _ => "images",
    };
    format!("{base}/{folder}/{name}")
}

/// The volume id of a call, which may be given without the storage.
pub(crate) fn volid(call: &Call<'_>) -> String {
    let (storage, volume) = (call.get("storage").unwrap_or_default(), call.get("volume").unwrap_or_default());
    if volume.contains(':') { volume.to_owned() } else { format!("{storage}:{volume}") }
}

pub(crate) fn volume(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = volid(call);
    let storage = find(call, wanted.split(':').next().unwrap_or_default())?;
    let Some(volume) = volumes(call, storage).into_iter().find(|volume| volume.volid == wanted) else {
        return Err(Refusal::die(format!("volume_size_info on '{wanted}' failed - no format")));
    };
    if !may_see_volume(call, storage, &volume) {
        return Err(Refusal::permission(&format!("/storage/{}, Datastore.Allocate", storage.id)));
    }
    let mut row = json!({
        "path": path_of(storage, &volume), "size": volume.size, "used": 0, "format": "raw",
    });
    if let Some(notes) = &volume.notes {
        row["notes"] = json!(notes);
    }
    if volume.protected {
        row["protected"] = json!(1);
    }
    Ok(Answer::Data(row))
}

pub(crate) fn content(call: &Call<'_>) -> Result<Answer, Refusal> {
    let storage = find(call, call.get("storage").unwrap_or_default())?;
    let volumes = volumes(call, storage);
    let vmid = call.get("vmid").map(|_| call.vmid());
    let rows = volumes
        .iter()
        .filter(|volume| call.get("content").is_none_or(|kind| kind == volume.content))
        .filter(|volume| vmid.is_none_or(|vmid| volume.vmid == Some(vmid)))
        .filter(|volume| may_see_volume(call, storage, volume))
        .map(row);
    Ok(Answer::Data(rows.collect()))
}

/// The disks of guests that are on this storage and, unless it is shared, on this node.
fn guest_disks(call: &Call<'_>, storage: &StorageConfig) -> Vec<VolumeConfig> {
    let guests = call.state.guests.values().filter(|guest| storage.shared || guest.node == call.node());
    guests
        .flat_map(|guest| guest.disks().into_iter().map(move |(_, volid, size)| (guest, volid, size)))
        .filter(|(_, volid, _)| volid.split(':').next() == Some(storage.id.as_str()))
        .map(|(guest, volid, size)| VolumeConfig {
            volid: volid.to_owned(),
            content: match guest.kind {
                GuestKind::Qemu => "images".to_owned(),
                GuestKind::Lxc => "rootdir".to_owned(),
            },
            format: "raw".to_owned(),
            size,
            ctime: call.state.started,
            vmid: Some(guest.vmid),
            subtype: None,
            notes: None,
            protected: false,
            node: None,
            config: None,
        })
        .collect()
}

/// PVE's access check of one volume.
fn may_see_volume(call: &Call<'_>, storage: &StorageConfig, volume: &VolumeConfig) -> bool {
    let path = format!("/storage/{}", storage.id);
    if call.may(&path, "Datastore.Allocate") {
        return true;
    }
    let owner =
        |privilege: &str| volume.vmid.is_some_and(|vmid| call.may(&format!("/vms/{vmid}"), privilege));
    match volume.content.as_str() {
        "iso" | "vztmpl" | "import" => may_see(call, &storage.id),
        "backup" => call.may(&path, "Datastore.AllocateSpace") && owner("VM.Backup"),
        "images" | "rootdir" => call.may(&path, "Datastore.Audit") && owner("VM.Config.Disk"),
        _ => false,
    }
}

fn row(volume: &VolumeConfig) -> Value {
    let mut row = json!({
        "volid": volume.volid, "content": volume.content, "format": volume.format, "size": volume.size,
        "ctime": volume.ctime,
    });
    if let Some(vmid) = volume.vmid {
        row["vmid"] = json!(vmid);
    }
    if let Some(subtype) = &volume.subtype {
        row["subtype"] = json!(subtype);
    }
    if let Some(notes) = &volume.notes {
        row["notes"] = json!(notes);
    }
    if volume.protected {
        row["protected"] = json!(1);
    }
    row
}
