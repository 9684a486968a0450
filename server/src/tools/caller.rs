//! What a caller can learn about itself.

use serde_json::{Map, Value, json};

use super::args::NoArgs;
use super::table::{Table, flag, object, objects, text, texts};
use crate::catalog::{self, HandlerResult, Target, missing};
use crate::stack::CallContext;

/// A principal, and what the catalog says it may do.
#[derive(Debug)]
pub struct Who {
    view: authz::PrincipalView,
    via: String,
    clusters: Vec<String>,
    tools: Vec<String>,
    missing: Vec<Value>,
}

/// `whoami`.
pub static WHO: Table<Who> = Table(&[
    text("token", "", |who| Some(who.view.token.clone())),
    text("person", "whose token it is", |who| Some(who.view.person.clone())),
    text("actor_type", "`human` or `agent`", |who| who.view.actor_type.map(|kind| kind.as_str().to_owned())),
    text("channel", "`http`, `stdio` or `host`", |who| Some(who.via.clone())),
    text("expires", "RFC 3339; missing: never", |who| who.view.expires.clone()),
    texts("clusters", "configured ones it may use", |who| who.clusters.clone()),
    texts("devices", "its scope of clusters", |who| who.view.devices.clone()),
    texts("scopes", "its scope of tools", |who| who.view.tools.clone()),
    object("grant", "`guests` and `actions`; missing: no guest at all", |who| {
        let grant = who.view.grant.as_ref()?;
        let mut out = Map::new();
        out.insert("guests".to_owned(), grant.guests.clone().into());
        out.insert("actions".to_owned(), grant.actions.clone().into());
        Some(out)
    }),
    flag("can_approve", "what somebody else planned", |who| Some(who.view.can_approve)),
    texts("tools", "tools it can call", |who| who.tools.clone()),
    objects("missing", "for each other tool and scope: `name`, and what is missing for it", |who| {
        who.missing.clone()
    }),
]);

/// `whoami`.
pub async fn who(ctx: &CallContext, _target: &Target, _args: NoArgs) -> HandlerResult {
    let (caller, principal) = (&ctx.caller, &ctx.caller.principal);
    let (mut tools, mut lacking) = (Vec::new(), Vec::new());
    for spec in catalog::all() {
        let missing = ctx.app.catalog.missing_for(spec, caller, ctx.now());
        if missing.is_empty() {
            tools.push(spec.name().to_owned());
        } else {
            lacking.push(json!({"name": spec.name(), "missing": missing}));
        }
    }
    for scope in catalog::SCOPES {
        let missing = missing::of_rule(principal, scope, ctx.now());
        if !missing.is_empty() {
            lacking.push(json!({"name": scope.name, "missing": missing}));
        }
    }
    let clusters = caller.snapshot.clusters.keys().filter(|name| principal.may_see_cluster(name));
    let who = Who {
        view: principal.describe(),
        via: match caller.via {
            crate::stack::Via::Http(_) => "http".to_owned(),
            crate::stack::Via::Stdio => "stdio".to_owned(),
            crate::stack::Via::Host => "host".to_owned(),
        },
        clusters: clusters.cloned().collect(),
        tools,
        missing: lacking,
    };
    Ok(Value::Object(WHO.record(&who)))
}
