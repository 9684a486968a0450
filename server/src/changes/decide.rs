//! Whether a set may be applied now: authorization, protection and facts, all fresh, under the configuration in force now.

use std::sync::Arc;

use authz::{GuestFacts, Principal, Tier, ToolRule};
use changeset::{Actor, ChangeSet, Event};
use jiff::Timestamp;

use super::runner::vmid_of;
use super::{fingerprint, op, place};
use crate::app::App;
use crate::config::{Cluster, Snapshot};
use crate::resolve::{Freshness, ResolveError};

/// The scope and the waiver's word of a set.
fn subject(set: &ChangeSet) -> Option<(&'static ToolRule, &str)> {
    let step = op::subject(set.plan().steps())?;
    let kind = step.params.get("kind").map(String::as_str).unwrap_or_default();
    Some((op::scope(&step.op, kind)?, &step.op))
}

pub(super) async fn decide(app: &App, set: &ChangeSet, applier: &Actor) -> Event {
    let snapshot = app.live.load();
    let now = app.clock.now();
    let plan = set.plan();
    let denied = |why: &str| Event::Denied(why.to_owned());
    let Some(principal) = snapshot.tokens.principal(&applier.token) else {
        return denied("the applying token is gone");
    };
    let Some(cluster) = snapshot.cluster(Some(&plan.target().cluster)) else {
        return denied("the cluster of this change set is no longer configured");
    };
    let Some((rule, op)) = subject(set) else {
        return denied("the change set holds an operation this server does not know");
    };
    let admitted = match authz::admit(&principal, rule, Some(&cluster.name), now) {
        Ok(admitted) => admitted,
        Err(denial) => return Event::Denied(denial.public_message().to_owned()),
    };
    let Some(vmid) = vmid_of(set) else {
        if let Err(denial) = authz::permit_cluster_write(admitted, now) {
            return Event::Denied(denial.public_message().to_owned());
        }
        return decide_place(app, &snapshot, cluster, set, (rule, &principal), now).await;
    };
    let guest = match app.resolver.guest(cluster, vmid.get(), Freshness::Now, &principal).await {
        Ok(guest) => guest,
        Err(ResolveError::Absent) => {
            return Event::Denied(authz::Denial::guest_unknown().public_message().to_owned());
        }
        Err(ResolveError::Ambiguous) => {
            return Event::Unavailable("the cluster contradicts itself about where the guest is".to_owned());
        }
        Err(ResolveError::Cluster(error)) => return Event::Unavailable(error.to_string()),
    };
    let overrides = authz::Overrides { waivers: &snapshot.waivers, lab_mode: snapshot.lab_mode };
    let decided =
        authz::decide(admitted, &guest.facts, op, principal.name(), &cluster.protection, &overrides, now);
    let permit = match decided {
        Ok(permit) => permit,
        Err(denial) => return Event::Denied(denial.public_message().to_owned()),
    };
    // The preview said whether the guest is protected, and who approves depends on it.
    if permit.lift().is_some() != plan.target_protected() {
        return denied("the guest's protection is not what it was when this was planned; plan again");
    }
    if let Err(why) = new_number(set, &principal, rule, cluster, now) {
        return Event::Denied(why);
    }
    let Some(config) = guest.config.clone() else {
        return Event::Unavailable("the guest's configuration is unreadable".to_owned());
    };
    if config.digest.is_none() {
        return Event::Unavailable("the cluster gave the guest's configuration without a digest".to_owned());
    }
    let mut fingerprint =
        match fingerprint::for_steps(&app.resolver, cluster, &guest, &config, plan.steps()).await {
            Ok(fingerprint) => fingerprint,
            Err(error) => return Event::Unavailable(error.to_string()),
        };
    match super::wall::of_guest(cluster, &guest, plan.steps()).await {
        Ok(walls) => fingerprint.fields.extend(walls),
        Err(why) => return Event::Unavailable(why),
    }
    Event::Decided {
        fingerprint,
        planner_valid: planner_valid(&snapshot, set, (rule, op), cluster, &guest.facts, now),
        approver_valid: approver_valid(&snapshot, set, |approver| {
            authz::decide_approval(approver, &approval_facts(set, &guest.facts), now).is_ok()
        }),
    }
}

/// The number of a guest that the set would make must be one that this token may make.
fn new_number(
    set: &ChangeSet,
    principal: &Arc<Principal>,
    rule: &ToolRule,
    cluster: &Cluster,
    now: Timestamp,
) -> Result<(), String> {
    let newid = op::subject(set.plan().steps()).and_then(|step| step.params.get("newid"));
    let Some(newid) = newid else { return Ok(()) };
    let newid = newid.parse().map_err(|_| "the plan's new number is unusable".to_owned())?;
    authz::admit(principal, rule, Some(&cluster.name), now)
        .and_then(|admitted| {
            authz::decide_new_guest(admitted, &cluster.name, newid, &cluster.protection, now)
        })
        .map(drop)
        .map_err(|denial| denial.public_message().to_owned())
}

/// The same for what is no guest: there is no protection, but it needs a grant that holds every guest.
async fn decide_place(
    app: &App,
    snapshot: &Snapshot,
    cluster: &Arc<Cluster>,
    set: &ChangeSet,
    (rule, principal): (&ToolRule, &Arc<Principal>),
    now: Timestamp,
) -> Event {
    if !principal.unrestricted_guests() {
        return Event::Denied(place::NEEDS_ALL_GUESTS.to_owned());
    }
    let fingerprint = match place::fingerprint(app, cluster, set.plan().steps()).await {
        Ok(fingerprint) => fingerprint,
        Err(why) => return Event::Unavailable(why),
    };
    let planner = snapshot.tokens.principal(&set.plan().planner().token);
    let planner_valid = planner.is_some_and(|planner| {
        planner.unrestricted_guests()
            && authz::admit(&planner, rule, Some(&cluster.name), now)
                .and_then(|admitted| authz::permit_cluster_write(admitted, now))
                .is_ok()
    });
    Event::Decided {
        fingerprint,
        planner_valid,
        approver_valid: approver_valid(snapshot, set, |approver| place::may_approve(set, approver, now)),
    }
}

/// Whether the planner could plan this now: token, scopes, grant, and a waiver where one is needed. So a waiver must cover the
/// planner and whoever applies.
fn planner_valid(
    snapshot: &Snapshot,
    set: &ChangeSet,
    (rule, op): (&ToolRule, &str),
    cluster: &Cluster,
    facts: &GuestFacts,
    now: Timestamp,
) -> bool {
    let name = &set.plan().planner().token;
    let overrides = authz::Overrides { waivers: &snapshot.waivers, lab_mode: snapshot.lab_mode };
    snapshot.tokens.principal(name).is_some_and(|planner| {
        authz::admit(&planner, rule, Some(&cluster.name), now).is_ok_and(|admitted| {
            authz::decide(admitted, facts, op, name, &cluster.protection, &overrides, now).is_ok()
        }) && new_number(set, &planner, rule, cluster, now).is_ok()
    })
}

fn approver_valid(snapshot: &Snapshot, set: &ChangeSet, may: impl FnOnce(&Arc<Principal>) -> bool) -> bool {
    let Some(approval) = set.approval() else { return false };
    match approval.kind() {
        changeset::ApprovalKind::LabMode => snapshot.lab_mode,
        changeset::ApprovalKind::SecondPerson => {
            snapshot.tokens.principal(&approval.by().token).is_some_and(|approver| may(&approver))
        }
    }
}

/// What authorization needs to know about a set to judge an approver.
pub(crate) fn approval_facts<'a>(set: &'a ChangeSet, facts: &'a GuestFacts) -> authz::ApprovalFacts<'a> {
    let planner = set.plan().planner();
    authz::ApprovalFacts {
        planner_name: &planner.token,
        planner_person: &planner.person,
        tier: tier(set),
        facts,
    }
}

/// The tier a set's approver and applier must hold.
pub(crate) fn tier(set: &ChangeSet) -> Tier {
    if set.plan().tier_destructive() { Tier::Destructive } else { Tier::Low }
}
