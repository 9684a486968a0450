//! Growing disks.

use crate::api::handlers::power::at_work;
use crate::api::handlers::{Call, disks, worker};
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;
use crate::state::guest::Guest;

fn size_now(guest: &Guest, disk: &str) -> Option<u64> {
    guest.disks().iter().find(|(key, _, _)| *key == disk).map(|(_, _, size)| *size)
}

/// A VM's worker finds what is wrong; for a container it is found before there is one.
pub(crate) fn resize(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    if call.flag("skiplock") {
        return Err(Refusal::parameter("skiplock", "Only root may use this option."));
    }
    super::config::same_digest(call, guest)?;
    let disk = call.get("disk").unwrap_or_default().to_owned();
    let text = call.get("size").unwrap_or_default().to_owned();
    let check = {
        let (disk, text) = (disk.clone(), text);
        move |guest: &Guest| -> Result<u64, String> {
            if let Some(error) = guest.lock_error() {
                return Err(error);
            }
            let now = size_now(guest, &disk).ok_or_else(|| format!("disk '{disk}' does not exist"))?;
            let wanted = disks::requested(&text, now).ok_or("unable to parse the size")?;
            match kind {
                GuestKind::Qemu if wanted < now => Err("shrinking disks is not supported".to_owned()),
                GuestKind::Lxc if wanted < now => Err("unable to shrink disk size".to_owned()),
                GuestKind::Lxc if wanted == now => Err("disk is already at specified size".to_owned()),
                _ => Ok(wanted),
            }
        }
    };
    if kind == GuestKind::Lxc {
        check(guest).map_err(Refusal::die)?;
    }
    Ok(worker::for_guest(call, kind, "resize", None, move |state, node, vmid| {
        let guest = at_work(state, node, kind, vmid)?;
        let wanted = check(guest)?;
        let value = guest.option(&disk).map(|value| disks::with_size(value, wanted)).unwrap_or_default();
        guest.set(&disk, &value);
        Ok(Vec::new())
    }))
}
