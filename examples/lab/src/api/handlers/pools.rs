//! Changes of pools.

use crate::api::format::split_list;
use crate::api::handlers::Call;
use crate::api::permission::require;
use crate::api::reply::{Answer, Refusal};
use crate::config::PoolConfig;

fn id_of(call: &Call<'_>) -> String {
    call.get("poolid").unwrap_or_default().to_owned()
}

pub(crate) fn create(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let id = id_of(call);
    let failed = |text: String| Err(Refusal::die(format!("create pool failed: {text}")));
    if call.state.pools.iter().any(|pool| pool.id == id) {
        return failed(format!("pool '{id}' already exists"));
    }
    if let Some((parent, _)) = id.rsplit_once('/')
        && !call.state.pools.iter().any(|pool| pool.id == parent)
    {
        return failed(format!("parent pool '{parent}' does not exist"));
    }
    let comment = call.get("comment").filter(|comment| !comment.is_empty()).map(str::to_owned);
    call.state.pools.push(PoolConfig { id, comment, vms: Vec::new(), storage: Vec::new() });
    Ok(Answer::Changed)
}

pub(crate) fn update(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let id = id_of(call);
    let failed = |text: String| Refusal::die(format!("update pools failed: {text}"));
    let (delete, move_over) = (call.flag("delete"), call.flag("allow-move"));
    let vms: Vec<u32> =
        call.get("vms").into_iter().flat_map(split_list).filter_map(|vmid| vmid.parse().ok()).collect();
    let storages: Vec<String> =
        call.get("storage").into_iter().flat_map(split_list).map(str::to_owned).collect();
    for vmid in &vms {
        let wanted = ["Permissions.Modify", "VM.Allocate"];
        require(call.state, call.token, &format!("/vms/{vmid}"), &wanted, true)?;
    }
    for storage in &storages {
        let wanted = ["Permissions.Modify", "Datastore.Allocate"];
        require(call.state, call.token, &format!("/storage/{storage}"), &wanted, true)?;
    }
    let comment = call.get("comment").map(str::to_owned);
    let mut pools = call.state.pools.clone();
    let Some(at) = pools.iter().position(|pool| pool.id == id) else {
        return Err(failed(format!("pool '{id}' does not exist")));
    };
    for vmid in vms {
        let owner = pools.iter().position(|pool| pool.vms.contains(&vmid));
        match owner {
            Some(owner) if delete && owner == at => pools[at].vms.retain(|member| *member != vmid),
            _ if delete => return Err(failed(format!("VM {vmid} is not a pool member"))),
            Some(owner) if owner == at => return Err(failed(format!("VM {vmid} is already a pool member"))),
            Some(owner) if !move_over => {
                let text = format!(
                    "VM {vmid} belongs already to pool '{}' and 'allow-move' is not set",
                    pools[owner].id
                );
                return Err(failed(text));
            }
            owner => {
                if let Some(owner) = owner {
                    pools[owner].vms.retain(|member| *member != vmid);
                }
                pools[at].vms.push(vmid);
            }
        }
    }
    for storage in storages {
        let is_member = pools[at].storage.contains(&storage);
        match (delete, is_member) {
            (true, true) => pools[at].storage.retain(|member| *member != storage),
            (true, false) => return Err(failed(format!("Storage '{storage}' is not a pool member"))),
            (false, true) => return Err(failed(format!("Storage '{storage}' is already a pool member"))),
            (false, false) => pools[at].storage.push(storage),
        }
    }
    if let Some(comment) = comment {
        pools[at].comment = Some(comment).filter(|comment| !comment.is_empty());
    }
    call.state.pools = pools;
    Ok(Answer::Changed)
}

pub(crate) fn delete(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let id = id_of(call);
    let failed = |text: String| Err(Refusal::die(format!("delete pool failed: {text}")));
    let Some(pool) = call.state.pools.iter().find(|pool| pool.id == id) else {
        return failed(format!("pool '{id}' does not exist"));
    };
    let child = call.state.pools.iter().find(|other| other.id.starts_with(&format!("{id}/")));
    let content = match (pool.vms.first(), pool.storage.first(), child) {
        (Some(vmid), _, _) => format!("contains VM {vmid}"),
        (None, Some(storage), _) => format!("contains storage '{storage}'"),
        (None, None, Some(child)) => format!("contains pool '{}'", child.id),
        (None, None, None) => {
            call.state.pools.retain(|pool| pool.id != id);
            return Ok(Answer::Changed);
        }
    };
    failed(format!("pool '{id}' is not empty ({content})"))
}
