//! The firewalls: of the cluster, of the nodes, of the guests. None of it looks whether the guest exists.

mod groups;
mod macros;
mod options;
mod rules;
mod sets;

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};
use crate::config::FirewallConfig;
use crate::state::firewall::Scope;

/// Calls the endpoint, if it is one of a firewall.
pub(crate) fn dispatch(method: &str, template: &str, call: &mut Call<'_>) -> Option<Result<Answer, Refusal>> {
    let (scope, rest) = scope(template, call)?;
    Some(match (method, rest) {
        ("GET", "/rules") => rules::list(call, &rules::Place::scope(scope)),
        ("POST", "/rules") => rules::create(call, &rules::Place::scope(scope)),
        ("GET", "/rules/{pos}") => rules::one(call, &rules::Place::scope(scope)),
        ("PUT", "/rules/{pos}") => rules::update(call, &rules::Place::scope(scope)),
        ("DELETE", "/rules/{pos}") => rules::delete(call, &rules::Place::scope(scope)),
        ("GET", "/options") => options::get(call, &scope),
        ("PUT", "/options") => options::put(call, &scope),
        ("GET", "/aliases") => sets::aliases(call, &scope),
        ("POST", "/aliases") => sets::create_alias(call, &scope),
        ("GET", "/aliases/{name}") => sets::alias(call, &scope),
        ("PUT", "/aliases/{name}") => sets::update_alias(call, &scope),
        ("DELETE", "/aliases/{name}") => sets::delete_alias(call, &scope),
        ("GET", "/ipset") => sets::ipsets(call, &scope),
        ("POST", "/ipset") => sets::create_ipset(call, &scope),
        ("GET", "/ipset/{name}") => sets::entries(call, &scope),
        ("POST", "/ipset/{name}") => sets::create_entry(call, &scope),
        ("DELETE", "/ipset/{name}") => sets::delete_ipset(call, &scope),
        ("GET", "/ipset/{name}/{cidr}") => sets::entry(call, &scope),
        ("PUT", "/ipset/{name}/{cidr}") => sets::update_entry(call, &scope),
        ("DELETE", "/ipset/{name}/{cidr}") => sets::delete_entry(call, &scope),
        ("GET", "/refs") => refs(call, &scope),
        ("GET", "/macros") => Ok(Answer::Data(macros::list())),
        ("GET", "/groups") => groups::list(call),
        ("POST", "/groups") => groups::create(call),
        ("DELETE", "/groups/{group}") => groups::delete(call),
        ("GET", "/groups/{group}") => rules::list(call, &rules::Place::group(call)),
        ("POST", "/groups/{group}") => rules::create(call, &rules::Place::group(call)),
        ("GET", "/groups/{group}/{pos}") => rules::one(call, &rules::Place::group(call)),
        ("PUT", "/groups/{group}/{pos}") => rules::update(call, &rules::Place::group(call)),
        ("DELETE", "/groups/{group}/{pos}") => rules::delete(call, &rules::Place::group(call)),
        _ => return None,
    })
}

/// Whose firewall a path is about, and what follows.
fn scope<'a>(template: &'a str, call: &Call<'_>) -> Option<(Scope, &'a str)> {
    let (base, rest) = template.split_once("/firewall")?;
    let scope = match base {
        "/cluster" => Scope::Cluster,
        "/nodes/{node}" => Scope::Node(call.node().to_owned()),
        "/nodes/{node}/qemu/{vmid}" | "/nodes/{node}/lxc/{vmid}" => Scope::Guest(call.vmid()),
        _ => return None,
    };
    Some((scope, rest))
}

/// The digest of a part of a firewall.
fn digest(part: &impl std::fmt::Debug) -> String {
    crate::state::digest(&format!("{part:?}"))
}

/// Refuses a call that was made on an older state.
fn unchanged(call: &Call<'_>, digest: &str) -> Result<(), Refusal> {
    match call.get("digest") {
        Some(given) if !given.is_empty() && given != digest => {
            Err(Refusal::die("detected modified configuration - file changed by other user? Try again."))
        }
        _ => Ok(()),
    }
}

/// `4` or `6`, when a text begins with an address or a network.
fn version_of(text: &str) -> Option<u8> {
    let first = text.split([',', '-', '/']).next().unwrap_or_default();
    match first.parse::<std::net::IpAddr>() {
        Ok(address) if address.is_ipv4() => Some(4),
        Ok(_) => Some(6),
        Err(_) => None,
    }
}

fn refs(call: &Call<'_>, scope: &Scope) -> Result<Answer, Refusal> {
    let mut rows = refs_of(call, call.state.firewalls.cluster(), &Scope::Cluster);
    if *scope != Scope::Cluster {
        rows.extend(refs_of(call, call.state.firewalls.of(scope), scope));
    }
    Ok(Answer::Data(Value::Array(rows)))
}

fn refs_of(call: &Call<'_>, firewall: &FirewallConfig, scope: &Scope) -> Vec<Value> {
    let wanted = call.get("type");
    let row = |kind: &str, name: &str, reference: String, comment: Option<&String>| {
        let mut row = json!({ "type": kind, "name": name, "ref": reference, "scope": scope.word() });
        if let Some(comment) = comment {
            row["comment"] = json!(comment);
        }
        row
    };
    let mut rows = Vec::new();
    if wanted.is_none_or(|wanted| wanted == "ipset") {
        rows.extend(
            firewall
                .ipsets
                .iter()
                .map(|set| row("ipset", &set.name, format!("+{}", set.name), set.comment.as_ref())),
        );
    }
    if wanted.is_none_or(|wanted| wanted == "alias") {
        rows.extend(
            firewall
                .aliases
                .iter()
                .map(|alias| row("alias", &alias.name, alias.name.clone(), alias.comment.as_ref())),
        );
    }
    rows
}
