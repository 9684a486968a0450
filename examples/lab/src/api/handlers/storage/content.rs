//! Changes of what is on a storage.

use serde_json::json;

use crate::api::handlers::Call;
use crate::api::handlers::storage::{find, path_of, volid};
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::cluster::{Done, Spawn};
use crate::config::VolumeConfig;
use crate::state::{State, now};

/// Bytes of a download of which the lab knows nothing.
const UNKNOWN_SIZE: u64 = 1 << 20;

/// The place of a volume among its storage's.
fn place(state: &State, node: &str, volid: &str) -> Option<(usize, usize)> {
    let first = state.nodes.first().map(|node| node.name.as_str());
    let id = volid.split(':').next()?;
    let storage = state.storages.iter().position(|storage| storage.id == id)?;
    let (shared, volumes) = (state.storages[storage].shared, &state.storages[storage].volumes);
    let here = |volume: &VolumeConfig| shared || volume.node.as_deref().or(first) == Some(node);
    let volume = volumes.iter().position(|volume| volume.volid == volid && here(volume))?;
    Some((storage, volume))
}

/// The guest in the name of a backup or a disk.
fn owner(volid: &str) -> Option<u32> {
    let name = volid.rsplit(['/', ':']).next()?;
    let mut parts = name.split('-');
    match parts.next()? {
        "vzdump" => parts.nth(1)?.parse().ok(),
        "vm" | "base" | "subvol" => parts.next()?.parse().ok(),
        _ => None,
    }
}

/// Who may allocate on a storage may change all of it; a backup also who may back up its guest and has space there.
fn may_change(call: &Call<'_>, volid: &str) -> Result<(), Refusal> {
    let id = volid.split(':').next().unwrap_or_default();
    let path = format!("/storage/{id}");
    let is_backup = volid.contains("backup/");
    if !is_backup || call.may(&path, "Datastore.Allocate") {
        return require(call.state, call.token, &path, &["Datastore.Allocate"], false);
    }
    require(call.state, call.token, &path, &["Datastore.AllocateSpace"], false)?;
    let guest = format!("/vms/{}", owner(volid).unwrap_or_default());
    require(call.state, call.token, &guest, &["VM.Backup"], false)
}

pub(crate) fn delete(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let volid = volid(call);
    let id = volid.split(':').next().unwrap_or_default().to_owned();
    find(call, &id)?;
    may_change(call, &volid)?;
    if let Some(vmid) =
        owner(&volid).filter(|vmid| !volid.contains("backup/") && call.state.guests.contains_key(vmid))
    {
        return Err(Refusal::die(format!("cannot remove image, a guest with VMID '{vmid}' exists!")));
    }
    let node = call.node().to_owned();
    let work = {
        let node = node.clone();
        let volid = volid.clone();
        move |state: &mut State| remove(state, &node, &volid)
    };
    if call.get("delay").is_some() {
        // The lab removes at once, so that nobody has to wait for the worker.
        work(call.state).map_err(Refusal::die)?;
        return Ok(Answer::Changed);
    }
    Ok(Answer::Worker(Spawn {
        node,
        kind: "imgdel".to_owned(),
        id: owner(&volid).map_or_else(|| id.clone(), |vmid| format!("{vmid}@{id}")),
        who: call.token.to_owned(),
        lock: None,
        work: Box::new(work),
    }))
}

fn remove(state: &mut State, node: &str, volid: &str) -> Result<Done, String> {
    let Some((storage, volume)) = place(state, node, volid) else {
        let name = volid.rsplit('/').next().unwrap_or_default();
        return Err(format!("unlink '/var/lib/vz/template/iso/{name}' failed - No such file or directory"));
    };
    if state.storages[storage].volumes[volume].protected {
        let (id, name) = volid.split_once(':').unwrap_or_default();
        return Err(format!("cannot remove protected volume '{name}' on '{id}'"));
    }
    state.storages[storage].volumes.remove(volume);
    Ok(Done { log: vec![format!("Removed volume '{volid}'")], then: None })
}

/// Notes and protection of a backup.
pub(crate) fn update(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let volid = volid(call);
    may_change(call, &volid)?;
    let Some((storage, volume)) = place(call.state, call.node(), &volid) else {
        return Err(Refusal::die(format!("volume '{volid}' does not exist")));
    };
    let (notes, protected) =
        (call.get("notes").map(str::to_owned), call.get("protected").map(|flag| flag == "1"));
    let volume = &mut call.state.storages[storage].volumes[volume];
    if volume.content != "backup" {
        return Err(Refusal::die(format!(
            "volume '{volid}' has no notes and no protection, as it is no backup"
        )));
    }
    if let Some(notes) = notes {
        volume.notes = Some(notes).filter(|notes| !notes.is_empty());
    }
    if let Some(protected) = protected {
        volume.protected = protected;
    }
    Ok(Answer::Changed)
}

/// A new empty disk for a guest; answered with its volume id.
pub(crate) fn allocate(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let id = call.get("storage").unwrap_or_default().to_owned();
    find(call, &id)?;
    let (vmid, name) = (call.vmid(), call.get("filename").unwrap_or_default().to_owned());
    require(call.state, call.token, &format!("/vms/{vmid}"), &["VM.Allocate"], false)?;
    if !name.starts_with(&format!("vm-{vmid}-")) {
        return Err(Refusal::die(format!("illegal name '{name}' - should be 'vm-{vmid}-*'")));
    }
    let text = call.get("size").unwrap_or_default();
    // Without a unit these are KiB.
    let size = crate::state::guest::parse_size(text)
        .map_or(0, |size| if text.ends_with(|char: char| char.is_ascii_digit()) { size << 10 } else { size });
    let volid = format!("{id}:{name}");
    if place(call.state, call.node(), &volid).is_some() {
        return Err(Refusal::die(format!("disk image '{name}' already exists")));
    }
    let volume = VolumeConfig {
        content: "images".to_owned(),
        format: call.get("format").unwrap_or("raw").to_owned(),
        vmid: Some(vmid),
        ..file(&volid, size, call.node())
    };
    for storage in call.state.storages.iter_mut().filter(|storage| storage.id == id) {
        storage.volumes.push(volume.clone());
    }
    Ok(Answer::ChangedTo(json!(volid)))
}

/// A plain file, by its name.
fn file(volid: &str, size: u64, node: &str) -> VolumeConfig {
    let content = volid.split(':').nth(1).and_then(|name| name.split('/').next()).unwrap_or_default();
    let format = match volid.rsplit('.').next() {
        Some("zst") => "tzst",
        Some("gz") => "tgz",
        Some("xz") => "txz",
        Some(other) => other,
        None => "raw",
    };
    VolumeConfig {
        volid: volid.to_owned(),
        content: content.to_owned(),
        format: format.to_owned(),
        size,
        ctime: now(),
        vmid: None,
        subtype: None,
        notes: None,
        protected: false,
        node: Some(node.to_owned()),
        config: None,
    }
}

/// The name of a new file: without its path, with the ending that its content type needs.
fn name_for(content: &str, given: &str) -> Result<String, Refusal> {
    let name = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let normal: String = name
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '_' })
        .collect();
    let endings: &[&str] = match content {
        "iso" => &[".iso", ".img"],
        "vztmpl" => &[".tar.gz", ".tar.xz", ".tar.zst", ".tar"],
        _ => &[".ova", ".ovf", ".qcow2", ".vmdk", ".raw"],
    };
    let lower = normal.to_ascii_lowercase();
    if endings.iter().any(|ending| lower.ends_with(ending) && lower.len() > ending.len()) {
        Ok(normal)
    } else {
        Err(Refusal::parameter("filename", "wrong file extension"))
    }
}

/// What a call that brings a file has in common: the storage, the content type and the volume id.
fn incoming(call: &Call<'_>) -> Result<(String, String), Refusal> {
    let (id, content) = (call.get("storage").unwrap_or_default(), call.get("content").unwrap_or_default());
    let storage = find(call, id)?;
    let name = name_for(content, call.get("filename").unwrap_or_default())?;
    if !storage.content.iter().any(|known| known == content) {
        return Err(Refusal::die(format!("storage '{id}' is not configured for content-type '{content}'")));
    }
    Ok((format!("{id}:{content}/{name}"), name))
}

fn put(state: &mut State, node: &str, volid: &str, size: u64) {
    if let Some((storage, volume)) = place(state, node, volid) {
        state.storages[storage].volumes.remove(volume);
    }
    let id = volid.split(':').next().unwrap_or_default();
    let volume = file(volid, size, node);
    for storage in state.storages.iter_mut().filter(|storage| storage.id == id) {
        storage.volumes.push(volume.clone());
    }
}

/// What a server says of a file, without its contents; what `LabCluster::publish` says nothing of is one MiB.
pub(crate) fn url_metadata(call: &Call<'_>) -> Result<Answer, Refusal> {
    let url = call.get("url").unwrap_or_default();
    let size = call.state.published.get(url).map_or(UNKNOWN_SIZE, |(size, _)| *size);
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    Ok(Answer::Data(json!({ "filename": name, "mimetype": "application/octet-stream", "size": size })))
}

/// The lab fetches nothing: what an URL has is told by `LabCluster::publish`, and what it says nothing of is one MiB.
pub(crate) fn download(call: &Call<'_>) -> Result<Answer, Refusal> {
    let (volid, name) = incoming(call)?;
    let url = call.get("url").unwrap_or_default().to_owned();
    let wanted = call.get("checksum").map(str::to_ascii_lowercase);
    let node = call.node().to_owned();
    let place_of = node.clone();
    Ok(Answer::Worker(Spawn {
        node,
        kind: "download".to_owned(),
        id: name,
        who: call.token.to_owned(),
        lock: None,
        work: Box::new(move |state| {
            let known = state.published.get(&url).cloned();
            let (size, sum) = known.map_or((UNKNOWN_SIZE, None), |(size, sum)| (size, Some(sum)));
            if let Some((storage, volume)) = place(state, &place_of, &volid) {
                let storage = &state.storages[storage];
                let path = path_of(storage, &storage.volumes[volume]);
                return Err(format!("refusing to override existing file '{path}'"));
            }
            let mut log = vec![format!("downloading {url} to {volid}")];
            if let (Some(wanted), Some(sum)) = (&wanted, &sum) {
                log.push(format!("calculating checksum...got '{sum}'"));
                if wanted != sum {
                    return Err(format!("checksum mismatch: got '{sum}' != expect '{wanted}'"));
                }
            }
            put(state, &place_of, &volid, size);
            log.push(format!("download of '{url}' to '{volid}' finished"));
            Ok(Done { log, then: None })
        }),
    }))
}

/// A file that came with the request; an existing one is overwritten. What came is told by the listener.
pub(crate) fn upload(call: &Call<'_>) -> Result<Answer, Refusal> {
    let (volid, _) = incoming(call)?;
    let Some((size, sums)) = call.upload.clone() else {
        return Err(Refusal::parameter("tmpfilename", "property is missing"));
    };
    if !call.state.is_online(call.node()) {
        let id = call.get("storage").unwrap_or_default();
        return Err(Refusal::die(format!(
            "can't activate storage '{id}' on node '{}': node is offline",
            call.node()
        )));
    }
    let wanted = call.get("checksum").map(str::to_ascii_lowercase);
    let got = call.get("checksum-algorithm").and_then(|algorithm| sums.get(algorithm).cloned());
    let node = call.node().to_owned();
    let place_of = node.clone();
    Ok(Answer::Worker(Spawn {
        node,
        kind: "imgcopy".to_owned(),
        id: String::new(),
        who: call.token.to_owned(),
        lock: None,
        work: Box::new(move |state| {
            if let (Some(wanted), Some(got)) = (wanted, got)
                && wanted != got
            {
                return Err(format!("checksum mismatch: got '{got}' != expect '{wanted}'"));
            }
            put(state, &place_of, &volid, size);
            Ok(Done { log: vec![format!("finished file import successfully ({volid})")], then: None })
        }),
    }))
}
