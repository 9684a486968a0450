//! Change sets on what is no guest: a volume that belongs to nobody. They need a grant that holds every guest, for nobody can say
//! whom they touch.

use std::collections::BTreeMap;
use std::sync::Arc;

use authz::{ActorKind, Principal};
use changeset::{ChangeSet, Fingerprint, Preview, Step, Target};
use jiff::Timestamp;
use proxmox_api::{FirewallScope, Volid};

use super::decide::tier;
use super::ha_rule::{self, HaChange};
use super::plan::{Draft, PlanRefusal, Planner, fresh_id, impossible};
use super::preview::{self, Lines};
use super::wall::{self, WallChange};
use super::{Changes, facts, fingerprint, op};
use crate::app::App;
use crate::config::{Cluster, Snapshot};
use crate::resolve::{Freshness, guest_of};

/// What a token with a narrower grant is told.
pub(crate) const NEEDS_ALL_GUESTS: &str =
    "this may touch any guest, so it needs a token whose grant holds all of them (`guests: [\"*\"]`)";

/// Whether `approver` may approve a set that is about no guest: a person other than the planner's, over a channel that proves who
/// they are, whose grant holds every guest and the set's tier.
pub(crate) fn may_approve(set: &ChangeSet, approver: &Principal, now: Timestamp) -> bool {
    let planner = set.plan().planner();
    let as_actor =
        changeset::Actor::new(approver.name(), approver.person(), Some(changeset::ActorKind::Human));
    !approver.is_expired(now)
        && approver.channel() == authz::Channel::Bearer
        && approver.actor() == Some(ActorKind::Human)
        && approver.may_see_cluster(&set.plan().target().cluster)
        && approver.unrestricted_guests()
        && approver.grant().is_some_and(|grant| grant.actions().holds(tier(set)))
        && !as_actor.is_same_person(planner)
}

/// What must not have moved.
pub(super) async fn fingerprint(
    app: &App,
    cluster: &Arc<Cluster>,
    steps: &[Step],
) -> Result<Fingerprint, String> {
    let step = op::subject(steps).ok_or_else(|| "the change set has no steps".to_owned())?;
    let param = |name: &str| step.params.get(name).map(String::as_str).unwrap_or_default();
    let mut fields = vec![("cluster".to_owned(), cluster.name.clone())];
    match step.op.as_str() {
        op::DELETE_ISO => {
            let node = param("node").parse().map_err(|_| "the plan's node is unusable".to_owned())?;
            let volume = fingerprint::volume_now(cluster, &node, param("volid"))
                .await
                .map_err(|error| error.to_string())?;
            let volid: Volid =
                param("volid").parse().map_err(|_| "the plan's volume is unusable".to_owned())?;
            let users = facts::users_of(&app.resolver, cluster, &volid).await;
            fields.push(("volume".to_owned(), volume));
            fields.push(("users".to_owned(), users.in_words()));
        }
        op if wall::is_firewall(op) => {
            fields.extend(wall::fingerprint(cluster, step, param("node")).await?);
        }
        op if ha_rule::is_ha(op) => {
            fields.extend(ha_rule::fingerprint(cluster).await?);
            let protected = protected_of(app, cluster, step).await?;
            fields.push(("protected".to_owned(), protected));
        }
        other => return Err(format!("this server cannot do {other} without a guest")),
    }
    Ok(Fingerprint::new(fields))
}

/// Guests that an HA rule's step names and that are protected now, as text.
async fn protected_of(app: &App, cluster: &Arc<Cluster>, step: &Step) -> Result<String, String> {
    let named = step.params.get("guests").map(String::as_str).unwrap_or_default();
    let inventory =
        app.resolver.inventory(cluster, Freshness::Now).await.map_err(|error| error.to_string())?;
    let mut protected = Vec::new();
    for vmid in named.split(',').filter(|vmid| !vmid.is_empty()) {
        let number = vmid.parse::<proxmox_api::Vmid>().ok();
        let guest = number
            .and_then(|number| inventory.numbered(number).find_map(|entry| guest_of(&cluster.name, entry)));
        let Some(guest) = guest else { return Err(format!("guest {vmid} is no longer listed")) };
        let mut facts = authz::GuestFacts::clone(&guest.facts);
        let config = cluster.client.guest_config(&guest.at).await.map_err(|error| error.to_string())?;
        facts.protection =
            config.protection().or_default(false).map_or(authz::Known::Unreadable, authz::Known::Known);
        if !cluster.protection.causes(&facts).is_empty() {
            protected.push(vmid.to_owned());
        }
    }
    Ok(protected.join(","))
}

impl Changes {
    /// Plans a change of the cluster's or a node's firewall, or of a security group's rules.
    ///
    /// # Errors
    /// See [`PlanRefusal`]; nothing was stored.
    pub async fn plan_firewall_at(
        &self,
        app: &Arc<App>,
        snapshot: &Snapshot,
        cluster: &Arc<Cluster>,
        scope: &FirewallScope,
        change: &WallChange,
        planner: Planner,
    ) -> Result<ChangeSet, PlanRefusal> {
        let (place, key, whose) = match scope {
            FirewallScope::Node(node) => {
                let place = vec![("scope", "node".to_owned()), ("node", node.to_string())];
                (place, format!("firewall/node/{node}"), format!("node {node}"))
            }
            FirewallScope::Group(group) => {
                let place = vec![("scope", "group".to_owned()), ("group", group.to_string())];
                (place, "firewall/cluster".to_owned(), format!("security group {group}"))
            }
            FirewallScope::Cluster => (
                vec![("scope", "cluster".to_owned())],
                "firewall/cluster".to_owned(),
                "the cluster".to_owned(),
            ),
            FirewallScope::Guest(_) => {
                return Err(impossible("a guest's firewall is planned with its guest"));
            }
        };
        let looked = wall::look(cluster, change, scope, place, &whose).await.map_err(impossible)?;
        let steps = vec![looked.step];
        let fingerprint = fingerprint(app, cluster, &steps).await.map_err(impossible)?;
        let mut lines = Lines::default();
        lines.say("operation", "Operation", looked.operation);
        lines.say("cluster", "Cluster", cluster.name.clone());
        for (name, label, value) in looked.lines {
            lines.say(name, label, value);
        }
        preview::lab(&mut lines, snapshot.lab_mode);
        let draft = Draft {
            target: Target::new(&*cluster.name, key, whose),
            destructive: false,
            protected: false,
            steps,
            fingerprint,
            preview: lines.finish(BTreeMap::new()),
        };
        self.store_plan(app, snapshot, fresh_id()?, draft, planner).await
    }

    /// Plans a change of an HA rule.
    ///
    /// # Errors
    /// See [`PlanRefusal`]; nothing was stored.
    pub async fn plan_ha_rule(
        &self,
        app: &Arc<App>,
        (snapshot, caller): (&Snapshot, &Arc<Principal>),
        cluster: &Arc<Cluster>,
        change: &HaChange,
        planner: Planner,
    ) -> Result<ChangeSet, PlanRefusal> {
        let looked = ha_rule::look(cluster, change).await.map_err(impossible)?;
        let mut step = looked.step;
        let guests: Vec<String> = looked.guests.iter().map(ToString::to_string).collect();
        step.params.insert("guests".to_owned(), guests.join(","));
        let protected = protected_of(app, cluster, &step).await.map_err(impossible)?;
        for vmid in protected.split(',').filter_map(|vmid| vmid.parse().ok()) {
            let waived = snapshot
                .waivers
                .find(&cluster.name, vmid, change.op, caller.name(), app.clock.now())
                .is_some();
            if !waived && !snapshot.lab_mode {
                return Err(impossible(format!(
                    "guest {vmid} is protected; an operator's waiver for {} would be needed",
                    change.op
                )));
            }
        }
        let steps = vec![step];
        let fingerprint = fingerprint(app, cluster, &steps).await.map_err(impossible)?;
        let mut lines = Lines::default();
        let summary = steps.first().map(|step| step.summary.clone()).unwrap_or_default();
        lines.say("operation", "Operation", summary);
        lines.say("cluster", "Cluster", cluster.name.clone());
        lines.say("before", "Before", looked.before.unwrap_or_else(|| "(no such rule)".to_owned()));
        lines.say("after", "After", looked.after.unwrap_or_else(|| "(no such rule)".to_owned()));
        lines.say("guests", "Guests", guests.join(", "));
        if !protected.is_empty() {
            lines.say("protection", "Protection", format!("PROTECTED and waived: {protected}"));
        }
        lines.say(
            "takes_effect",
            "Takes effect",
            "at once: HA may move or stop these guests to keep the rule",
        );
        preview::lab(&mut lines, snapshot.lab_mode);
        let draft = Draft {
            target: Target::new(&*cluster.name, format!("ha/rule/{}", change.rule), change.rule.clone()),
            destructive: false,
            protected: !protected.is_empty(),
            steps,
            fingerprint,
            preview: lines.finish(BTreeMap::new()),
        };
        self.store_plan(app, snapshot, fresh_id()?, draft, planner).await
    }

    /// Plans deleting one ISO image.
    ///
    /// # Errors
    /// See [`PlanRefusal`]; nothing was stored.
    pub async fn plan_delete_iso(
        &self,
        app: &Arc<App>,
        snapshot: &Snapshot,
        cluster: &Arc<Cluster>,
        volid: &Volid,
        planner: Planner,
    ) -> Result<ChangeSet, PlanRefusal> {
        let found = facts::volume(&app.resolver, cluster, None, volid).await?;
        let (node, item) = found.ok_or_else(|| {
            impossible(format!("no storage in reach lists {}", Preview::quote(&volid.to_string())))
        })?;
        if item.content.as_deref() != Some("iso") {
            return Err(impossible("that volume is no ISO image"));
        }
        if facts::is_protected(&item) {
            return Err(impossible("the volume is protected in PVE, or PVE does not say that it is not"));
        }
        let users = facts::users_of(&app.resolver, cluster, volid).await;
        let step = Step::new(
            op::DELETE_ISO,
            [("node", node.to_string()), ("volid", volid.to_string())],
            format!("delete ISO image {volid}"),
        );
        let steps = vec![step];
        let fingerprint = fingerprint(app, cluster, &steps).await.map_err(impossible)?;
        let mut lines = Lines::default();
        lines.say("operation", "Operation", "delete an ISO image; this cannot be undone");
        lines.say("cluster", "Cluster", cluster.name.clone());
        lines.say("volume", "Volume", Preview::quote(&volid.to_string()));
        lines.say("node", "Node", node.to_string());
        lines.say(
            "size",
            "Size",
            item.size.map_or_else(|| "unknown".to_owned(), |bytes| format!("{bytes} bytes")),
        );
        let made = item.ctime.map_or_else(|| "unknown".to_owned(), |at| facts::taken(at, app.clock.now()));
        lines.say("made", "Made", made);
        lines.say("users", "In drives of guests", users.in_words());
        preview::lab(&mut lines, snapshot.lab_mode);
        let draft = Draft {
            target: Target::new(&*cluster.name, format!("volume/{volid}"), volid.to_string()),
            destructive: true,
            protected: false,
            steps,
            fingerprint,
            preview: lines.finish(BTreeMap::new()),
        };
        self.store_plan(app, snapshot, fresh_id()?, draft, planner).await
    }
}
