//! Start, stop, shutdown and destroy.
//!
//! What PVE checks before it starts a worker is a 500 here; what the worker checks is the exit status of the
//! task. The two kinds of guests differ in which is which.

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};
use crate::cluster::{Done, Spawn, Work};
use crate::config::GuestKind;
use crate::state::guest::Guest;
use crate::state::{State, sid};

/// Parameters that only the real root may use, which no token is.
const ROOT_ONLY: &[&str] = &[
    "skiplock",
    "stateuri",
    "migratedfrom",
    "migration_type",
    "migration_network",
    "targetstorage",
    "keepActive",
    "with-conntrack-state",
    "nets-host-mtu",
];

fn root_only(call: &Call<'_>) -> Result<(), Refusal> {
    let forbidden = ROOT_ONLY.iter().find(|name| call.get(name).is_some_and(|value| value != "0"));
    forbidden.map_or(Ok(()), |name| Err(Refusal::parameter(name, "Only root may use this option.")))
}

fn not_running(kind: GuestKind, vmid: u32) -> String {
    format!("{} {vmid} not running", kind.word())
}

/// The worker's own look at the guest.
pub(crate) fn at_work<'a>(
    state: &'a mut State,
    node: &str,
    kind: GuestKind,
    vmid: u32,
) -> Result<&'a mut Guest, String> {
    if state.guest_at(node, kind, vmid).is_none() {
        return Err(format!("unable to find configuration file for {} {vmid} on node '{node}'", kind.word()));
    }
    state.guests.get_mut(&vmid).ok_or_else(|| not_running(kind, vmid))
}

/// A worker for a guest, or, when HA manages it, the request to HA with the worker afterwards.
fn worker(
    call: &Call<'_>,
    kind: GuestKind,
    verb: &'static str,
    work: impl FnOnce(&mut State, &str, u32) -> Result<Vec<String>, String> + Send + 'static,
) -> Answer {
    let (node, vmid) = (call.node().to_owned(), call.vmid());
    let place = node.clone();
    let own: Work =
        Box::new(move |state: &mut State| work(state, &place, vmid).map(|log| Done { log, then: None }));
    let spawn = |kind: String, who: &str, work: Work| Spawn {
        node: node.clone(),
        kind,
        id: vmid.to_string(),
        who: who.to_owned(),
        lock: None,
        work,
    };
    let ha_verb = match verb {
        "start" => Some(("hastart", "started")),
        "stop" | "shutdown" => Some(("hastop", "stopped")),
        _ => None,
    };
    match ha_verb.filter(|_| call.state.ha_of(kind, vmid).is_some()) {
        Some((ha_kind, ha_state)) => {
            // HA's own daemon, root@pam, does the work once the request is queued.
            let then = spawn(format!("{}{verb}", kind.worker()), "root@pam", own);
            let request: Work = Box::new(move |state: &mut State| {
                let sid = sid(kind, vmid);
                for resource in state.ha.iter_mut().filter(|resource| resource.sid == sid) {
                    ha_state.clone_into(&mut resource.state);
                }
                let log = vec![format!("Requesting HA {} for {} {vmid}", &ha_kind[2..], kind.word())];
                Ok(Done { log, then: Some(then) })
            });
            Answer::Worker(spawn(ha_kind.to_owned(), call.token, request))
        }
        None => Answer::Worker(spawn(format!("{}{verb}", kind.worker()), call.token, own)),
    }
}

pub(crate) fn start(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    root_only(call)?;
    let guest = call.guest(kind)?;
    if kind == GuestKind::Lxc && guest.running {
        return Err(Refusal::die(format!("CT {} already running", guest.vmid)));
    }
    Ok(worker(call, kind, "start", move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        // A suspended VM resumes.
        if let Some(error) = guest.lock_error().filter(|_| guest.lock() != Some("suspended")) {
            return Err(error);
        }
        if guest.is_template() {
            return Err(match kind {
                GuestKind::Qemu => "you can't start a vm if it's a template".to_owned(),
                GuestKind::Lxc => "you can't start a CT if it's a template".to_owned(),
            });
        }
        if guest.running {
            return Err(format!("{} {vmid} already running", kind.word()));
        }
        let suspended = guest.lock() == Some("suspended");
        if suspended {
            guest.config.remove("lock");
        }
        let volume = suspended.then(|| format!("vm-{vmid}-state-suspend"));
        guest.start();
        Ok(volume
            .map(|volume| format!("  Logical volume \"{volume}\" successfully removed."))
            .into_iter()
            .collect())
    }))
}

pub(crate) fn stop(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    root_only(call)?;
    let guest = call.guest(kind)?;
    if kind == GuestKind::Lxc && !guest.running {
        return Err(Refusal::die(not_running(kind, guest.vmid)));
    }
    if call.flag("overrule-shutdown") && call.state.ha_of(kind, guest.vmid).is_some() {
        return Err(Refusal::parameter("overrule-shutdown", "Not applicable for HA resources."));
    }
    Ok(worker(call, kind, "stop", move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        if let Some(error) = guest.lock_error() {
            return Err(error);
        }
        guest.running = false;
        Ok(Vec::new())
    }))
}

pub(crate) fn shutdown(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    root_only(call)?;
    let guest = call.guest(kind)?;
    if kind == GuestKind::Lxc && !guest.running {
        return Err(Refusal::die(not_running(kind, guest.vmid)));
    }
    if guest.paused && kind == GuestKind::Qemu {
        return Err(Refusal::die("VM is paused - cannot shutdown"));
    }
    let force = call.flag("forceStop");
    Ok(worker(call, kind, "shutdown", move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        if let Some(error) = guest.lock_error() {
            return Err(error);
        }
        if guest.running && guest.ignores_shutdown && !force {
            return Err(no_reaction(kind));
        }
        guest.running = false;
        Ok(Vec::new())
    }))
}

pub(crate) fn destroy(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    root_only(call)?;
    let guest = call.guest(kind)?;
    let (vmid, word) = (guest.vmid, kind.word());
    if guest.is_protected() {
        return Err(Refusal::die(format!("can't remove {word} {vmid} - protection mode enabled")));
    }
    let (purge, force) = (call.flag("purge"), call.flag("force"));
    if !purge && call.state.ha_of(kind, vmid).is_some() {
        let text =
            format!("unable to remove {word} {vmid} - used in HA resources and purge parameter not set.");
        return Err(Refusal::die(text));
    }
    match kind {
        GuestKind::Qemu if guest.running => {
            return Err(Refusal::die(format!("VM {vmid} is running - destroy failed")));
        }
        GuestKind::Lxc => {
            if let Some(error) = guest.lock_error() {
                return Err(Refusal::die(error));
            }
            if guest.running && !force {
                return Err(Refusal::die(format!("unable to destroy CT {vmid} - container is running")));
            }
        }
        GuestKind::Qemu => {}
    }
    Ok(worker(call, kind, "destroy", move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        if let Some(error) = guest.lock_error() {
            return Err(error);
        }
        if guest.is_protected() {
            return Err(format!("can't remove {word} {vmid} - protection mode enabled"));
        }
        let mut log = Vec::new();
        if guest.running {
            if kind == GuestKind::Qemu || !force {
                return Err(format!("{word} {vmid} is running - destroy failed"));
            }
            log.push(format!("forced to stop CT {vmid} before destroying!"));
        }
        for (_, volid, _) in guest.disks() {
            let volume = volid.rsplit(':').next().unwrap_or(volid);
            log.push(format!("  Logical volume \"{volume}\" successfully removed."));
        }
        if purge {
            log.push(format!("purging {word} {vmid} from related configurations.."));
        }
        state.forget_guest(vmid, purge);
        Ok(log)
    }))
}

/// Shutdown and start; the new start takes what is pending.
pub(crate) fn reboot(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    if !guest.running {
        // PVE says VM for a container too.
        return Err(Refusal::die(format!("VM {} not running", guest.vmid)));
    }
    Ok(worker(call, kind, "reboot", move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        if let Some(error) = guest.lock_error() {
            return Err(error);
        }
        if guest.ignores_shutdown {
            return Err(no_reaction(kind));
        }
        guest.start();
        Ok(Vec::new())
    }))
}

/// What a guest that does not react to a shutdown makes of the task.
fn no_reaction(kind: GuestKind) -> String {
    match kind {
        GuestKind::Qemu => "VM quit/powerdown failed - got timeout".to_owned(),
        GuestKind::Lxc => "container did not stop".to_owned(),
    }
}

/// To RAM, or with `todisk` to a volume: then the VM is stopped and locked until it is started again.
pub(crate) fn suspend(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    root_only(call)?;
    let guest = call.guest(kind)?;
    if !guest.running {
        return Err(Refusal::die(not_running(kind, guest.vmid)));
    }
    let to_disk = call.flag("todisk");
    if to_disk {
        let path = format!("/vms/{}", guest.vmid);
        crate::api::permission::require(call.state, call.token, &path, &["VM.Config.Disk"], false)?;
    }
    Ok(worker(call, kind, "suspend", move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        if let Some(error) = guest.lock_error() {
            return Err(error);
        }
        if !to_disk {
            guest.paused = true;
            return Ok(Vec::new());
        }
        guest.running = false;
        guest.config.insert("lock".to_owned(), "suspended".to_owned());
        let day = super::time::in_log(crate::state::now());
        let day = day.split(' ').next().unwrap_or_default();
        let volume = format!("vm-{vmid}-state-suspend-{day}");
        Ok(vec![format!("  Logical volume \"{volume}\" created."), "State saved, quitting".to_owned()])
    }))
}

pub(crate) fn resume(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    root_only(call)?;
    let guest = call.guest(kind)?;
    let on_disk = guest.lock() == Some("suspended");
    if !guest.running && !on_disk {
        return Err(Refusal::die(not_running(kind, guest.vmid)));
    }
    Ok(worker(call, kind, "resume", move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        guest.paused = false;
        if on_disk {
            guest.config.remove("lock");
            guest.start();
        }
        Ok(Vec::new())
    }))
}

/// The reset button of a VM.
pub(crate) fn reset(call: &Call<'_>) -> Result<Answer, Refusal> {
    root_only(call)?;
    let guest = call.guest(GuestKind::Qemu)?;
    if !guest.running {
        return Err(Refusal::die(not_running(GuestKind::Qemu, guest.vmid)));
    }
    Ok(worker(call, GuestKind::Qemu, "reset", move |state, node, vmid| {
        let guest = at_work(state, node, GuestKind::Qemu, vmid)?;
        match guest.lock_error() {
            Some(error) => Err(error),
            None => Ok(Vec::new()),
        }
    }))
}
