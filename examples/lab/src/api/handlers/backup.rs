//! Backups.

use serde_json::json;

use crate::api::format::split_list;
use crate::api::handlers::{Call, disks, storage, time};
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::cluster::{Done, Spawn};
use crate::config::{GuestKind, VolumeConfig};
use crate::state::{State, now};

/// What a backup is made with.
struct Job {
    storage: String,
    mode: String,
    /// What follows the archive's own ending.
    compression: &'static str,
    notes: Option<String>,
    protected: bool,
    /// How many unprotected backups of a guest stay.
    keep: Option<usize>,
}

/// The guests of a call that are on its node, and those that it names.
fn guests(call: &Call<'_>) -> (Vec<u32>, Vec<u32>) {
    let on_node = |vmid: &u32| call.state.guests.get(vmid).is_some_and(|guest| guest.node == call.node());
    let named: Vec<u32> = match (call.get("vmid"), call.get("pool")) {
        (Some(list), _) => split_list(list).filter_map(|vmid| vmid.parse().ok()).collect(),
        (None, Some(pool)) => {
            let pool = call.state.pools.iter().find(|known| known.id == pool);
            pool.map(|pool| pool.vms.clone()).unwrap_or_default()
        }
        (None, None) => {
            let excluded: Vec<u32> = call
                .get("exclude")
                .into_iter()
                .flat_map(split_list)
                .filter_map(|vmid| vmid.parse().ok())
                .collect();
            call.state
                .guests
                .keys()
                .copied()
                .filter(|vmid| on_node(vmid) && !excluded.contains(vmid))
                .collect()
        }
    };
    // A guest that nobody has is the node's to fail on.
    let here =
        named.iter().copied().filter(|vmid| on_node(vmid) || !call.state.guests.contains_key(vmid)).collect();
    (here, named)
}

pub(crate) fn vzdump(call: &Call<'_>) -> Result<Answer, Refusal> {
    if call.get("vmid").is_none() && call.get("pool").is_none() && !call.flag("all") {
        return Err(Refusal::parameter("vmid", "property is missing"));
    }
    for key in ["tmpdir", "dumpdir", "script"] {
        if call.get(key).is_some() {
            return Err(Refusal::parameter(key, "Only root may set this option."));
        }
    }
    let (here, named) = guests(call);
    for vmid in &named {
        require(call.state, call.token, &format!("/vms/{vmid}"), &["VM.Backup"], false)?;
    }
    let target = call.get("storage").unwrap_or("local").to_owned();
    require(call.state, call.token, &format!("/storage/{target}"), &["Datastore.AllocateSpace"], false)?;
    if here.is_empty() && call.get("vmid").is_some() {
        // Not a UPID: there is nothing to do on this node.
        return Ok(Answer::Data(json!("OK")));
    }
    let job = Job {
        storage: target,
        mode: call.get("mode").unwrap_or("snapshot").to_owned(),
        compression: match call.get("compress") {
            Some("zstd") => ".zst",
            Some("gzip" | "1") => ".gz",
            Some("lzo") => ".lzo",
            _ => "",
        },
        notes: call.get("notes-template").map(str::to_owned),
        protected: call.flag("protected"),
        keep: call
            .get("prune-backups")
            .filter(|_| call.get("remove") != Some("0"))
            .and_then(|text| text.split(',').find_map(|part| part.strip_prefix("keep-last=")?.parse().ok())),
    };
    let single = <[u32; 1]>::try_from(here.as_slice()).ok().map(|[vmid]| vmid);
    let by_name = call.get("vmid").is_some();
    let node = call.node().to_owned();
    let place = node.clone();
    let locked =
        single.filter(|vmid| call.state.guests.get(vmid).is_some_and(|guest| guest.lock().is_none()));
    Ok(Answer::Worker(Spawn {
        node,
        kind: "vzdump".to_owned(),
        id: single.filter(|_| by_name).map(|vmid| vmid.to_string()).unwrap_or_default(),
        who: call.token.to_owned(),
        lock: locked.map(|vmid| (vmid, "backup")),
        work: Box::new(move |state| run(state, &place, &here, &job)),
    }))
}

fn run(state: &mut State, node: &str, vmids: &[u32], job: &Job) -> Result<Done, String> {
    let Some(storage) = state.storages.iter().find(|known| known.id == job.storage) else {
        let what = &job.storage;
        return Err(format!(
            "could not get storage information for '{what}': storage '{what}' does not exist"
        ));
    };
    if !storage.content.iter().any(|content| content == "backup") {
        let what = &job.storage;
        return Err(format!(
            "could not get storage information for '{what}': can't use storage for backups - wrong content type"
        ));
    }
    let list: Vec<String> = vmids.iter().map(u32::to_string).collect();
    let mut log = vec![format!(
        "INFO: starting new backup job: vzdump {} --mode {} --node {node} --storage {}",
        list.join(" "),
        job.mode,
        job.storage
    )];
    let mut failed = false;
    for vmid in vmids {
        match one(state, node, *vmid, job) {
            Ok(lines) => log.extend(lines),
            Err(text) => {
                failed = true;
                log.push(format!("ERROR: Backup of VM {vmid} failed - {text}"));
            }
        }
    }
    if failed {
        return Err("job errors".to_owned());
    }
    log.push("INFO: Backup job finished successfully".to_owned());
    Ok(Done { log, then: None })
}

fn one(state: &mut State, node: &str, vmid: u32, job: &Job) -> Result<Vec<String>, String> {
    let missing = || format!("unable to find VM '{vmid}'");
    let guest = state.guests.get(&vmid).filter(|guest| guest.node == node).ok_or_else(missing)?.clone();
    if let Some(error) = guest.lock_error() {
        return Err(error);
    }
    let at = now();
    let kind = guest.kind.as_str();
    let archive = if guest.kind == GuestKind::Qemu { "vma" } else { "tar" };
    let format = format!("{archive}{}", job.compression);
    let name = format!("vzdump-{kind}-{vmid}-{}.{format}", time::in_name(at));
    let notes = job.notes.as_ref().map(|template| {
        template
            .replace("{{guestname}}", &guest.name())
            .replace("{{vmid}}", &vmid.to_string())
            .replace("{{node}}", node)
            .replace("{{cluster}}", &state.cluster)
    });
    let volid = format!("{}:backup/{name}", job.storage);
    let mut config = guest.config.clone();
    config.remove("lock");
    let volume = VolumeConfig {
        volid: volid.clone(),
        content: "backup".to_owned(),
        format,
        size: guest.maxdisk() / 10,
        ctime: at,
        vmid: Some(vmid),
        subtype: Some(kind.to_owned()),
        notes,
        protected: job.protected,
        node: Some(node.to_owned()),
        config: Some(config),
    };
    let stamp = time::in_log(at);
    let title = if guest.kind == GuestKind::Qemu { "VM" } else { "CT" };
    let status = if guest.running { "running" } else { "stopped" };
    let mode = if guest.running { job.mode.as_str() } else { "stop" };
    let mut log = vec![
        format!("INFO: Starting Backup of VM {vmid} ({kind})"),
        format!("INFO: Backup started at {stamp}"),
        format!("INFO: status = {status}"),
        format!("INFO: backup mode: {mode}"),
        "INFO: ionice priority: 7".to_owned(),
        format!("INFO: {title} Name: {}", guest.name()),
    ];
    for (key, id, size) in guest.disks() {
        log.push(format!("INFO: include disk '{key}' '{id}' {}", disks::written(size)));
    }
    let Some(storage) = state.storages.iter_mut().find(|known| known.id == job.storage) else {
        return Err(format!("storage '{}' does not exist", job.storage));
    };
    log.push(format!("INFO: creating vzdump archive '{}'", storage::path_of(storage, &volume)));
    // Two backups in one second are one file, of which the later wins.
    storage.volumes.retain(|known| known.volid != volid || known.node != volume.node);
    storage.volumes.push(volume);
    if let Some(keep) = job.keep {
        let mut own: Vec<(i64, String)> = storage
            .volumes
            .iter()
            .filter(|known| known.content == "backup" && known.vmid == Some(vmid) && !known.protected)
            .map(|known| (known.ctime, known.volid.clone()))
            .collect();
        own.sort();
        let surplus = own.len().saturating_sub(keep);
        for (_, old) in own.into_iter().take(surplus) {
            log.push(format!("INFO: removing backup '{old}'"));
            storage.volumes.retain(|known| known.volid != old);
        }
    }
    log.push(format!("INFO: Finished Backup of VM {vmid} (00:00:00)"));
    log.push(format!("INFO: Backup finished at {stamp}"));
    Ok(log)
}

/// The config file inside a backup.
pub(crate) fn extract_config(call: &Call<'_>) -> Result<Answer, Refusal> {
    let volid = call.get("volume").unwrap_or_default();
    let storage = volid.split(':').next().unwrap_or_default();
    let known = call.state.storages.iter().find(|known| known.id == storage);
    let volume = known.and_then(|known| known.volumes.iter().find(|volume| volume.volid == volid));
    let Some(volume) = volume else {
        return Err(Refusal::die(format!("unable to parse volume ID '{volid}'")));
    };
    let path = format!("/storage/{storage}");
    if !call.may(&path, "Datastore.Allocate") {
        require(call.state, call.token, &path, &["Datastore.AllocateSpace"], false)?;
        let owner = format!("/vms/{}", volume.vmid.unwrap_or_default());
        require(call.state, call.token, &owner, &["VM.Backup"], false)?;
    }
    let config = volume.config.clone().unwrap_or_default();
    let lines: Vec<String> = config.iter().map(|(key, value)| format!("{key}: {value}\n")).collect();
    Ok(Answer::Data(json!(lines.concat())))
}
