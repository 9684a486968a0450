//! HA resources.

use serde_json::{Value, json};

use crate::api::format::split_list;
use crate::api::handlers::Call;
use crate::api::handlers::ha::{resources_digest, unchanged};
use crate::api::reply::{Answer, Refusal};
use crate::config::HaConfig;
use crate::state::sid;

/// What a resource has besides its id and state.
const OPTIONS: &[&str] = &["comment", "max_restart", "max_relocate", "failback"];

fn row(call: &Call<'_>, resource: &HaConfig) -> Value {
    let kind = resource.sid.split(':').next();
    let mut row = json!({
        "sid": resource.sid, "state": resource.state, "type": kind, "digest": resources_digest(call),
    });
    for (key, value) in &resource.options {
        row[key] = match value.parse::<i64>() {
            Ok(number) if key != "comment" => json!(number),
            _ => json!(value),
        };
    }
    row
}

pub(crate) fn list(call: &Call<'_>) -> Result<Answer, Refusal> {
    let wanted = call.get("type").map(|kind| format!("{kind}:"));
    let resources = call.state.ha.iter();
    let rows = resources
        .filter(|resource| wanted.as_ref().is_none_or(|prefix| resource.sid.starts_with(prefix.as_str())))
        .map(|resource| row(call, resource));
    Ok(Answer::Data(rows.collect()))
}

/// The id of the resource of a call; a bare number is the guest with that number.
fn sid_of(call: &Call<'_>) -> Result<String, Refusal> {
    let given = call.get("sid").unwrap_or_default();
    let Ok(vmid) = given.parse::<u32>() else { return Ok(given.to_owned()) };
    match call.state.guests.get(&vmid) {
        Some(guest) => Ok(sid(guest.kind, vmid)),
        None => Err(Refusal::die(format!("unable to find VM/CT with ID {vmid}"))),
    }
}

/// Whether the guest of a resource exists.
fn has_guest(call: &Call<'_>, sid_text: &str) -> bool {
    let guest =
        sid_text.split_once(':').and_then(|(_, vmid)| call.state.guests.get(&vmid.parse::<u32>().ok()?));
    guest.is_some_and(|guest| sid(guest.kind, guest.vmid) == sid_text)
}

fn find<'a>(call: &'a Call<'_>, sid: &str) -> Result<&'a HaConfig, Refusal> {
    let found = call.state.ha.iter().find(|resource| resource.sid == sid);
    found.ok_or_else(|| Refusal::die(format!("no such resource '{sid}'")))
}

pub(crate) fn one(call: &Call<'_>) -> Result<Answer, Refusal> {
    let sid = sid_of(call)?;
    Ok(Answer::Data(row(call, find(call, &sid)?)))
}

fn refuse_group(call: &Call<'_>) -> Result<(), Refusal> {
    match call.get("group") {
        Some(_) => Err(Refusal::die("invalid parameter 'group': ha groups have been migrated to rules")),
        None => Ok(()),
    }
}

/// `enabled` is another word for `started`.
fn state_of(call: &Call<'_>) -> Option<String> {
    call.get("state").map(|state| if state == "enabled" { "started" } else { state }.to_owned())
}

fn set_options(call: &Call<'_>, resource: &mut HaConfig) {
    for key in OPTIONS {
        if let Some(value) = call.get(key) {
            resource.options.insert((*key).to_owned(), value.to_owned());
        }
    }
}

pub(crate) fn create(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    refuse_group(call)?;
    let sid = sid_of(call)?;
    if !has_guest(call, &sid) {
        return Err(Refusal::die(format!("resource '{sid}' does not exist in cluster")));
    }
    if call.state.ha.iter().any(|resource| resource.sid == sid) {
        return Err(Refusal::die(format!("create resource failed: resource ID '{sid}' already defined")));
    }
    let mut resource = HaConfig::new(&sid, &state_of(call).unwrap_or_else(|| "started".to_owned()));
    set_options(call, &mut resource);
    call.state.ha.push(resource);
    Ok(Answer::Changed)
}

pub(crate) fn update(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    refuse_group(call)?;
    let sid = sid_of(call)?;
    unchanged(call, &resources_digest(call))?;
    let mut resource = find(call, &sid)?.clone();
    for key in call.get("delete").into_iter().flat_map(split_list) {
        match key {
            "state" => "started".clone_into(&mut resource.state),
            _ if OPTIONS.contains(&key) => {
                resource.options.remove(key);
            }
            _ => return Err(Refusal::die(format!("update resource failed: unknown option '{key}'"))),
        }
    }
    if let Some(state) = state_of(call) {
        resource.state = state;
    }
    set_options(call, &mut resource);
    for known in call.state.ha.iter_mut().filter(|known| known.sid == sid) {
        known.clone_from(&resource);
    }
    Ok(Answer::Changed)
}

/// Takes a resource out of HA, and out of the rules unless told not to.
pub(crate) fn delete(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let sid = sid_of(call)?;
    if !call.state.ha.iter().any(|resource| resource.sid == sid) {
        return Err(Refusal::die(format!("delete resource failed: resource '{sid}' does not exist")));
    }
    call.state.ha.retain(|resource| resource.sid != sid);
    if call.get("purge") != Some("0") {
        for rule in &mut call.state.ha_rules {
            if let Some(list) = rule.options.get_mut("resources") {
                let left: Vec<&str> = split_list(list).filter(|member| *member != sid).collect();
                *list = left.join(",");
            }
        }
        call.state.ha_rules.retain(|rule| rule.options.get("resources").is_none_or(|list| !list.is_empty()));
    }
    Ok(Answer::Changed)
}

/// The request to move a resource: HA's manager does it, and takes the guests along that a rule keeps with it.
pub(crate) fn relocate(call: &mut Call<'_>) -> Result<Answer, Refusal> {
    let sid_text = sid_of(call)?;
    let target = call.get("node").unwrap_or_default().to_owned();
    if !call.state.ha.iter().any(|resource| resource.sid == sid_text) {
        return Err(Refusal::die(format!("no such resource '{sid_text}'")));
    }
    if !call.state.is_online(&target) {
        return Err(Refusal::parameter("node", format!("node '{target}' is not online")));
    }
    let together: Vec<String> = call
        .state
        .ha_rules
        .iter()
        .filter(|rule| rule.options.get("affinity").is_some_and(|affinity| affinity == "positive"))
        .filter_map(|rule| rule.options.get("resources"))
        .filter(|list| split_list(list).any(|member| member == sid_text))
        .flat_map(|list| split_list(list).filter(|member| *member != sid_text))
        .map(str::to_owned)
        .collect();
    for member in together.iter().chain([&sid_text]) {
        let vmid = member.split_once(':').and_then(|(_, vmid)| vmid.parse::<u32>().ok());
        if let Some(guest) = vmid.and_then(|vmid| call.state.guests.get_mut(&vmid)) {
            guest.node.clone_from(&target);
        }
    }
    let mut answer = json!({ "sid": sid_text, "requested-node": target });
    if !together.is_empty() {
        answer["comigrated-resources"] = json!(together);
    }
    Ok(Answer::ChangedTo(answer))
}
