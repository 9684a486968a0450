//! The decision itself. Stage 1 ([`admit`]) needs no network; stage 2 ([`decide`] and its siblings)
//! needs the guest's facts. Each stage consumes the result of the one before.
//!
//! Every check is a function of its own here, and [`crate::Decision`] reports what the same functions say.

use std::sync::Arc;

use jiff::Timestamp;

use crate::denial::Denial;
use crate::facts::{FactsSource, GuestFacts, Vmid};
use crate::names::{ShortText, same_person};
use crate::permit::{Admitted, Lift, Permit, Subject};
use crate::principal::{ActorKind, Channel, Principal};
use crate::protection::{Hits, Protection};
use crate::scope::{Tier, ToolRule};
use crate::waiver::WaiverSet;

/// What may lift a guest's protection. Comes from the operator's configuration alone, never from a call.
#[derive(Debug, Clone, Copy)]
pub struct Overrides<'a> {
    /// The loaded waivers.
    pub waivers: &'a WaiverSet,
    /// Whether the whole server runs with protection lifted.
    pub lab_mode: bool,
}

/// Stage 1: is the token still valid, does it reach the tool, does it reach the cluster.
///
/// `cluster` is the name the call gave, or the only configured one. For a name the configuration does
/// not hold answer [`Denial::cluster_unknown`].
///
/// # Errors
/// The first of the three that fails.
pub fn admit(
    principal: &Arc<Principal>,
    rule: &ToolRule,
    cluster: Option<&str>,
    now: Timestamp,
) -> Result<Admitted, Denial> {
    principal.may_use(rule, now)?;
    if let Some(cluster) = cluster {
        require_cluster(principal, cluster)?;
    }
    Ok(Admitted { principal: Arc::clone(principal), rule: *rule, cluster: cluster.map(ShortText::new) })
}

/// Stage 2 for a tool that addresses a guest: grant, tier, protection.
///
/// `op` is the word a waiver must name, and `planner` the token that planned the operation (the caller
/// itself, where nothing was planned). With shared facts (`&Arc<GuestFacts>`) a decision that allows
/// allocates nothing; borrowed ones are copied into the permit.
///
/// # Errors
/// [`DenialKind::GuestOutOfScope`](crate::DenialKind::GuestOutOfScope) reads exactly like a guest that
/// does not exist; the others explain themselves.
pub fn decide(
    admitted: Admitted,
    facts: impl FactsSource,
    op: &str,
    planner: &str,
    protection: &Protection,
    overrides: &Overrides<'_>,
    now: Timestamp,
) -> Result<Permit, Denial> {
    let principal = &admitted.principal;
    principal.require_valid(now)?;
    let selector = require_guest(principal, admitted.cluster(), facts.facts())?;
    require_tier(principal, admitted.rule.tier)?;
    let question = ProtectionQuestion { facts: facts.facts(), op, planner, protection, overrides, now };
    let (hits, lift) = require_unprotected(principal, &admitted.rule, &question)?;
    Ok(admitted.permit(Subject::Guest { facts: facts.share(), selector, hits, lift }))
}

/// Stage 2 for a guest that does not exist yet: creating, cloning to a new number, restoring to one.
///
/// Needs `*` or a `vmid:` selector that holds the number. No waiver and no mode lifts the protection of
/// a number. Whether the number is free is for the caller to find out, *after* this decision.
///
/// # Errors
/// None of them depends on what exists, so all of them explain themselves.
pub fn decide_new_guest(
    admitted: Admitted,
    cluster: &str,
    vmid: Vmid,
    protection: &Protection,
    now: Timestamp,
) -> Result<Permit, Denial> {
    let principal = &admitted.principal;
    principal.require_valid(now)?;
    if admitted.cluster().is_some_and(|admitted| admitted != cluster) {
        return Err(Denial::cluster_out_of_scope(principal, cluster));
    }
    require_cluster(principal, cluster)?;
    let selector = require_new_vmid(principal, cluster, vmid)?;
    require_tier(principal, admitted.rule.tier)?;
    require_free_vmid(principal, cluster, vmid, protection)?;
    Ok(admitted.permit(Subject::NewGuest { vmid, selector }))
}

/// Stage 2 for reads that address no guest: clusters, nodes, storages, tasks, change sets.
///
/// The caller still filters what it answers, by [`Principal::visible`], unless
/// [`Principal::unrestricted_guests`].
///
/// # Errors
/// [`DenialKind::GuestRequired`](crate::DenialKind::GuestRequired) for anything but a read.
pub fn permit_unaddressed(admitted: Admitted) -> Result<Permit, Denial> {
    require_plain_read(&admitted.principal, &admitted.rule)?;
    Ok(admitted.permit(Subject::Read))
}

/// Stage 2 for reads of a cluster, a node or a storage as a whole, which show or sum up what every guest does.
///
/// # Errors
/// [`DenialKind::GuestsRestricted`](crate::DenialKind::GuestsRestricted) unless the token may read every guest;
/// [`DenialKind::GuestRequired`](crate::DenialKind::GuestRequired) for anything but a read.
pub fn permit_whole_read(admitted: Admitted, now: Timestamp) -> Result<Permit, Denial> {
    admitted.principal.require_valid(now)?;
    require_every_guest(&admitted.principal, &admitted.rule)?;
    permit_unaddressed(admitted)
}

/// The token may read every guest, so that it may see what no filter by guest can narrow.
pub(crate) fn require_every_guest(principal: &Principal, rule: &ToolRule) -> Result<(), Denial> {
    if principal.unrestricted_guests() { Ok(()) } else { Err(Denial::guests_restricted(principal, rule)) }
}

/// Stage 2 for tools that change something which is no guest: a storage's contents, the bookkeeping of
/// change sets. The grant must hold the tool's tier; its `guests` do not matter.
///
/// # Errors
/// [`DenialKind::TierNotGranted`](crate::DenialKind::TierNotGranted), and
/// [`DenialKind::GuestRequired`](crate::DenialKind::GuestRequired) for a rule that interrupts or writes
/// into a guest.
pub fn permit_cluster_write(admitted: Admitted, now: Timestamp) -> Result<Permit, Denial> {
    let principal = &admitted.principal;
    principal.require_valid(now)?;
    require_no_guest(principal, &admitted.rule)?;
    require_tier(principal, admitted.rule.tier)?;
    Ok(admitted.permit(Subject::Write))
}

/// What an approver's rights are held against.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalFacts<'a> {
    /// The token that planned the change.
    pub planner_name: &'a str,
    /// The person behind it.
    pub planner_person: &'a str,
    /// The tier of the planned operation.
    pub tier: Tier,
    /// The guest it is about.
    pub facts: &'a GuestFacts,
}

/// Permission to approve one change. Says nothing about whether the change is still what was planned.
#[derive(Debug)]
pub struct ApprovalPermit {
    approver: Arc<Principal>,
}

impl ApprovalPermit {
    /// Who approves.
    pub fn approver(&self) -> &Arc<Principal> {
        &self.approver
    }
}

/// Whether `approver` may approve: a valid token, the guest and the tier in its grant, a person, and not
/// the person who planned. It needs no scope for the operation. Waivers and lab mode are deliberately no
/// arguments: nothing changes who may approve.
///
/// # Errors
/// A guest outside the approver's grant reads like one that does not exist, and is looked at first.
pub fn decide_approval(
    approver: &Arc<Principal>,
    plan: &ApprovalFacts<'_>,
    now: Timestamp,
) -> Result<ApprovalPermit, Denial> {
    approver.require_valid(now)?;
    require_guest(approver, None, plan.facts)?;
    require_tier(approver, plan.tier)?;
    if approver.channel != Channel::Bearer || approver.actor != Some(ActorKind::Human) {
        return Err(Denial::approver_not_human(approver));
    }
    if same_person(&approver.person, plan.planner_person) || same_person(&approver.name, plan.planner_name) {
        return Err(Denial::approver_is_planner(approver, plan.planner_name));
    }
    Ok(ApprovalPermit { approver: Arc::clone(approver) })
}

/// The cluster is in the token's scope.
pub(crate) fn require_cluster(principal: &Principal, cluster: &str) -> Result<(), Denial> {
    match principal.may_see_cluster(cluster) {
        true => Ok(()),
        false => Err(Denial::cluster_out_of_scope(principal, cluster)),
    }
}

/// The place of the selector that puts the guest in scope. A grant without actions holds no guest at all:
/// it must not even tell which ones exist.
pub(crate) fn require_guest(
    principal: &Principal,
    admitted: Option<&str>,
    facts: &GuestFacts,
) -> Result<usize, Denial> {
    let refuse = |detail| Err(Denial::guest_out_of_scope(principal, facts, detail));
    if admitted.is_some_and(|cluster| cluster != facts.cluster) {
        return refuse("the facts are of another cluster than the one admitted");
    }
    if !principal.may_see_cluster(&facts.cluster) {
        return refuse("its cluster is not in the token's `devices`");
    }
    let Some(grant) = principal.grant.as_ref() else {
        return refuse("the token has no grant");
    };
    if grant.actions().is_empty() {
        return refuse("the token's grant has no actions");
    }
    match grant.selects(facts) {
        Some(selector) => Ok(selector),
        None => refuse("no selector of the token's grant matches"),
    }
}

/// The place of the selector that holds a number no guest has yet.
pub(crate) fn require_new_vmid(principal: &Principal, cluster: &str, vmid: Vmid) -> Result<usize, Denial> {
    let selector = principal.grant.as_ref().and_then(|grant| grant.selects_new(vmid));
    selector.ok_or_else(|| Denial::new_vmid_out_of_scope(principal, cluster, vmid))
}

/// Nobody protects the number.
pub(crate) fn require_free_vmid(
    principal: &Principal,
    cluster: &str,
    vmid: Vmid,
    protection: &Protection,
) -> Result<(), Denial> {
    match protection.reserves(vmid) {
        true => Err(Denial::new_vmid_protected(principal, cluster, vmid)),
        false => Ok(()),
    }
}

/// The grant holds the tier itself.
pub(crate) fn require_tier(principal: &Principal, tier: Tier) -> Result<(), Denial> {
    match &principal.grant {
        Some(grant) if grant.actions().holds(tier) => Ok(()),
        _ => Err(Denial::tier_not_granted(principal, tier)),
    }
}

/// The rule reads, and nothing else.
pub(crate) fn require_plain_read(principal: &Principal, rule: &ToolRule) -> Result<(), Denial> {
    match rule.tier == Tier::Read && !rule.protection_refuses() {
        true => Ok(()),
        false => Err(Denial::guest_required(principal, rule)),
    }
}

/// The rule changes something, and it is no guest.
pub(crate) fn require_no_guest(principal: &Principal, rule: &ToolRule) -> Result<(), Denial> {
    match rule.tier == Tier::Read || rule.interrupts || rule.writes_guest {
        true => Err(Denial::guest_required(principal, rule)),
        false => Ok(()),
    }
}

/// What decides whether a guest's protection stands in the way.
pub(crate) struct ProtectionQuestion<'a> {
    pub(crate) facts: &'a GuestFacts,
    pub(crate) op: &'a str,
    pub(crate) planner: &'a str,
    pub(crate) protection: &'a Protection,
    pub(crate) overrides: &'a Overrides<'a>,
    pub(crate) now: Timestamp,
}

/// What protects the guest and what lifted that, if it does not stand in the way of the rule.
pub(crate) fn require_unprotected(
    principal: &Principal,
    rule: &ToolRule,
    question: &ProtectionQuestion<'_>,
) -> Result<(Hits, Option<Lift>), Denial> {
    let ProtectionQuestion { facts, op, planner, protection, overrides, now } = *question;
    let hits = protection.hits(facts);
    if hits.is_empty() || !rule.protection_refuses() {
        return Ok((hits, None));
    }
    if let Some(waiver) = overrides.waivers.find(&facts.cluster, facts.vmid, op, planner, now) {
        return Ok((hits, Some(Lift::Waiver(Arc::clone(waiver)))));
    }
    if overrides.lab_mode {
        return Ok((hits, Some(Lift::LabMode)));
    }
    let near_miss = overrides.waivers.near_miss(&facts.cluster, facts.vmid, op, planner, now);
    Err(Denial::protected(principal, facts, op, &hits.words(facts), near_miss))
}
