//! Aliases and IP sets.

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::handlers::firewall::{digest, unchanged, version_of};
use crate::api::reply::{Answer, Refusal};
use crate::config::{AliasConfig, IpSetConfig, IpSetEntry};
use crate::state::firewall::Scope;

fn name_of(call: &Call<'_>) -> String {
    call.get("name").unwrap_or_default().to_owned()
}

fn comment_of(call: &Call<'_>) -> Option<String> {
    call.get("comment").map(str::to_owned)
}

fn with_comment(mut row: Value, comment: Option<&String>) -> Value {
    if let Some(comment) = comment {
        row["comment"] = json!(comment);
    }
    row
}

fn alias_row(alias: &AliasConfig, digest: &str) -> Value {
    let row = json!({
        "name": alias.name, "cidr": alias.cidr, "ipversion": version_of(&alias.cidr), "digest": digest,
    });
    with_comment(row, alias.comment.as_ref())
}

pub(crate) fn aliases(call: &Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let aliases = &call.state.firewalls.of(scope).aliases;
    let digest = digest(aliases);
    Ok(Answer::Data(aliases.iter().map(|alias| alias_row(alias, &digest)).collect()))
}

/// Where an alias is in its scope; PVE does not tell the case of aliases apart.
fn alias_at(call: &Call<'_>, scope: &Scope, name: &str) -> Option<usize> {
    let aliases = &call.state.firewalls.of(scope).aliases;
    aliases.iter().position(|alias| alias.name.eq_ignore_ascii_case(name))
}

fn no_alias(name: &str) -> Refusal {
    Refusal::parameter("name", format!("no such alias '{name}'"))
}

pub(crate) fn alias(call: &Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let at = alias_at(call, scope, &name_of(call)).ok_or_else(|| no_alias(&name_of(call)))?;
    let aliases = &call.state.firewalls.of(scope).aliases;
    Ok(Answer::Data(alias_row(&aliases[at], &digest(aliases))))
}

pub(crate) fn create_alias(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let name = name_of(call);
    if alias_at(call, scope, &name).is_some() {
        return Err(Refusal::parameter("name", format!("alias '{name}' already exists")));
    }
    let cidr = normal(call.get("cidr").unwrap_or_default());
    let comment = comment_of(call);
    call.state.firewalls.of_mut(scope).aliases.push(AliasConfig { name, cidr, comment });
    Ok(Answer::Changed)
}

pub(crate) fn update_alias(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let name = name_of(call);
    unchanged(call, &digest(&call.state.firewalls.of(scope).aliases))?;
    let at = alias_at(call, scope, &name).ok_or_else(|| no_alias(&name))?;
    let renamed = call.get("rename").map_or_else(|| name.clone(), str::to_owned);
    if !renamed.eq_ignore_ascii_case(&name) && alias_at(call, scope, &renamed).is_some() {
        return Err(Refusal::parameter("name", format!("alias '{renamed}' already exists")));
    }
    let cidr = normal(call.get("cidr").unwrap_or_default());
    let comment = comment_of(call);
    call.state.firewalls.of_mut(scope).aliases[at] = AliasConfig { name: renamed, cidr, comment };
    Ok(Answer::Changed)
}

/// What still refers to the alias is not looked at, as by PVE.
pub(crate) fn delete_alias(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let name = name_of(call);
    unchanged(call, &digest(&call.state.firewalls.of(scope).aliases))?;
    call.state.firewalls.of_mut(scope).aliases.retain(|alias| !alias.name.eq_ignore_ascii_case(&name));
    Ok(Answer::Changed)
}

pub(crate) fn ipsets(call: &Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let sets = &call.state.firewalls.of(scope).ipsets;
    let digest = digest(sets);
    let rows = sets
        .iter()
        .map(|set| with_comment(json!({ "name": set.name, "digest": digest }), set.comment.as_ref()));
    Ok(Answer::Data(rows.collect()))
}

/// Creates a set, or renames or comments one (`rename` names the set that there is).
pub(crate) fn create_ipset(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let (name, comment) = (name_of(call), comment_of(call));
    let firewall = call.state.firewalls.of(scope);
    let taken = firewall.set(&name).is_some();
    let exists = || Refusal::parameter("name", format!("IPSet '{name}' already exists"));
    let Some(old) = call.get("rename").map(str::to_owned) else {
        if taken {
            return Err(exists());
        }
        let set = IpSetConfig { name, comment, entries: Vec::new() };
        call.state.firewalls.of_mut(scope).ipsets.push(set);
        return Ok(Answer::Changed);
    };
    unchanged(call, &digest(&firewall.ipsets))?;
    if firewall.set(&old).is_none() {
        return Err(Refusal::parameter("rename", format!("IPSet '{old}' does not exist")));
    }
    if old != name && taken {
        return Err(exists());
    }
    for set in call.state.firewalls.of_mut(scope).ipsets.iter_mut().filter(|set| set.name == old) {
        set.name.clone_from(&name);
        if comment.is_some() {
            set.comment.clone_from(&comment);
        }
    }
    Ok(Answer::Changed)
}

pub(crate) fn delete_ipset(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let name = name_of(call);
    let full = call.state.firewalls.of(scope).set(&name).is_some_and(|set| !set.entries.is_empty());
    if full && !call.flag("force") {
        return Err(Refusal::die(format!("IPSet '{name}' is not empty")));
    }
    call.state.firewalls.of_mut(scope).ipsets.retain(|set| set.name != name);
    Ok(Answer::Changed)
}

/// The entries of the set of a call; a set that does not exist has none.
fn entries_of<'a>(call: &'a Call<'_>, scope: &Scope) -> &'a [IpSetEntry] {
    call.state.firewalls.of(scope).set(&name_of(call)).map_or(&[], |set| set.entries.as_slice())
}

fn entry_row(entry: &IpSetEntry, digest: &str) -> Value {
    let mut row = json!({ "cidr": entry.cidr, "digest": digest });
    if entry.nomatch {
        row["nomatch"] = json!(1);
    }
    with_comment(row, entry.comment.as_ref())
}

pub(crate) fn entries(call: &Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let entries = entries_of(call, scope);
    let digest = digest(&entries);
    Ok(Answer::Data(entries.iter().map(|entry| entry_row(entry, &digest)).collect()))
}

fn cidr_of(call: &Call<'_>) -> String {
    normal(call.get("cidr").unwrap_or_default())
}

pub(crate) fn entry(call: &Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let entries = entries_of(call, scope);
    let cidr = cidr_of(call);
    match entries.iter().find(|entry| entry.cidr == cidr) {
        Some(entry) => Ok(Answer::Data(entry_row(entry, &digest(&entries)))),
        None => Err(Refusal::parameter("cidr", "no such IP/Network")),
    }
}

pub(crate) fn create_entry(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let (name, cidr) = (name_of(call), cidr_of(call));
    let is_address = version_of(&cidr).is_some();
    if !is_address && call.state.firewalls.alias(scope, &cidr).is_none() {
        return Err(Refusal::parameter("cidr", format!("no such alias '{cidr}'")));
    }
    if cidr.ends_with("/0") && is_address {
        return Err(Refusal::die("0 prefix length not allowed in IPSet"));
    }
    if entries_of(call, scope).iter().any(|entry| entry.cidr == cidr) {
        return Err(Refusal::parameter("cidr", "address already exists"));
    }
    let entry = IpSetEntry { cidr, nomatch: call.flag("nomatch"), comment: comment_of(call) };
    let firewall = call.state.firewalls.of_mut(scope);
    match firewall.ipsets.iter_mut().find(|set| set.name == name) {
        Some(set) => set.entries.insert(0, entry),
        None => firewall.ipsets.push(IpSetConfig { name, comment: None, entries: vec![entry] }),
    }
    Ok(Answer::Changed)
}

/// The entry of a call, to be changed.
fn entry_mut<'a>(call: &'a mut Call<'_>, scope: &Scope) -> Result<(&'a mut Vec<IpSetEntry>, usize), Refusal> {
    let (name, cidr) = (name_of(call), cidr_of(call));
    unchanged(call, &digest(&entries_of(call, scope)))?;
    let firewall = call.state.firewalls.of_mut(scope);
    let missing = || Refusal::parameter("cidr", "no such IP/Network");
    let set = firewall.ipsets.iter_mut().find(|set| set.name == name).ok_or_else(missing)?;
    let at = set.entries.iter().position(|entry| entry.cidr == cidr).ok_or_else(missing)?;
    Ok((&mut set.entries, at))
}

pub(crate) fn update_entry(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let (nomatch, comment) = (call.flag("nomatch"), comment_of(call));
    let (entries, at) = entry_mut(call, scope)?;
    entries[at].nomatch = nomatch;
    entries[at].comment = comment;
    Ok(Answer::Changed)
}

pub(crate) fn delete_entry(call: &mut Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let cidr = cidr_of(call);
    unchanged(call, &digest(&entries_of(call, scope)))?;
    let name = name_of(call);
    for set in call.state.firewalls.of_mut(scope).ipsets.iter_mut().filter(|set| set.name == name) {
        set.entries.retain(|entry| entry.cidr != cidr);
    }
    Ok(Answer::Changed)
}

/// A network as PVE stores it: a single address without its prefix length.
fn normal(cidr: &str) -> String {
    match cidr.rsplit_once('/') {
        Some((address, "32")) if address.parse::<std::net::Ipv4Addr>().is_ok() => address.to_owned(),
        Some((address, "128")) if address.parse::<std::net::Ipv6Addr>().is_ok() => address.to_owned(),
        _ => cidr.to_owned(),
    }
}
