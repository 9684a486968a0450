//! The decision itself. Stage 1 ([`admit`]) needs no network; stage 2 ([`decide`] and its siblings)
//! needs the guest's facts. Each stage consumes the result of the one before.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::denial::Denial;
use crate::facts::{GuestFacts, Vmid};
use crate::names::same_person;
use crate::principal::{ActorKind, Channel, Principal};
use crate::protection::{Protection, ProtectionCause};
use crate::scope::{Tier, ToolRule};
use crate::waiver::{Waiver, WaiverSet};

/// What may lift a guest's protection. Comes from the operator's configuration alone, never from a call.
#[derive(Debug, Clone, Copy)]
pub struct Overrides<'a> {
    /// The loaded waivers.
    pub waivers: &'a WaiverSet,
    /// Whether the whole server runs with protection lifted.
    pub lab_mode: bool,
}

/// What lifted a guest's protection for one decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lift {
    /// This waiver. Preferred over lab mode when both would do, because it says why.
    Waiver(WaiverUse),
    /// The server runs in lab mode.
    LabMode,
}

impl fmt::Display for Lift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lift::Waiver(waiver) => {
                write!(f, "waiver until {}: {}", waiver.until, waiver.reason)?;
                waiver.ticket.as_ref().map_or(Ok(()), |ticket| write!(f, " [{ticket}]"))
            }
            Lift::LabMode => f.write_str("lab mode"),
        }
    }
}

/// The words of the waiver that was used; safe to show as they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaiverUse {
    /// Why the operator wrote it.
    pub reason: String,
    /// The ticket it belongs to, if any.
    pub ticket: Option<String>,
    /// The instant from which it no longer counts.
    pub until: Timestamp,
}

impl From<&Waiver> for WaiverUse {
    fn from(waiver: &Waiver) -> Self {
        WaiverUse {
            reason: waiver.reason().to_owned(),
            ticket: waiver.ticket().map(str::to_owned),
            until: waiver.until(),
        }
    }
}

/// One step of the way to a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The token names the tool.
    ToolNamed,
    /// The token's tool wildcard reaches this read.
    ToolWildcard,
    /// The cluster is in the token's scope.
    Cluster(String),
    /// This selector of the grant matches the guest.
    Selector(String),
    /// The grant holds this tier.
    Tier(Tier),
    /// The guest is not protected.
    NotProtected,
    /// The guest is protected, but not against this tool.
    ProtectionAllows(Vec<ProtectionCause>),
    /// The guest is protected against this tool, and the permit's lift takes that away.
    ProtectionLifted(Vec<ProtectionCause>),
    /// The tool reads and addresses no guest.
    ReadsNoGuest,
    /// The tool changes something that is no guest.
    ChangesNoGuest,
    /// The number of the guest to be created is admitted and not protected.
    NewGuest(Vmid),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |causes: &[ProtectionCause]| {
            causes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        match self {
            Reason::ToolNamed => f.write_str("the token names the tool"),
            Reason::ToolWildcard => f.write_str("the token's `*` reaches this read"),
            Reason::Cluster(cluster) => write!(f, "cluster `{cluster}` is in the token's scope"),
            Reason::Selector(selector) => write!(f, "selector `{selector}` matches the guest"),
            Reason::Tier(tier) => write!(f, "the grant holds `{tier}`"),
            Reason::NotProtected => f.write_str("the guest is not protected"),
            Reason::ProtectionAllows(causes) => {
                write!(f, "the guest is protected ({}), which does not refuse this tool", list(causes))
            }
            Reason::ProtectionLifted(causes) => {
                write!(f, "the guest is protected ({}), and that is lifted", list(causes))
            }
            Reason::ReadsNoGuest => f.write_str("the tool reads and addresses no guest"),
            Reason::ChangesNoGuest => f.write_str("the tool changes something that is no guest"),
            Reason::NewGuest(vmid) => write!(f, "number {vmid} is admitted and not protected"),
        }
    }
}

/// Stage 1 was passed: token, tool scope, cluster scope. Not a permission to do anything.
#[derive(Debug)]
pub struct Admitted {
    principal: Arc<Principal>,
    rule: ToolRule,
    cluster: Option<String>,
}

impl Admitted {
    /// Who asked.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// What they asked for.
    pub fn rule(&self) -> &ToolRule {
        &self.rule
    }

    /// The cluster that was admitted, if the call named one.
    pub fn cluster(&self) -> Option<&str> {
        self.cluster.as_deref()
    }

    fn reasons(&self) -> Vec<Reason> {
        let tool = match self.principal.tools.names(self.rule.name) {
            true => Reason::ToolNamed,
            false => Reason::ToolWildcard,
        };
        std::iter::once(tool).chain(self.cluster.clone().map(Reason::Cluster)).collect()
    }
}

/// Permission for one call. Only this crate can make one; it cannot be copied or read from data, so a
/// handler that takes it cannot be reached past the decision.
#[derive(Debug)]
pub struct Permit {
    principal: Arc<Principal>,
    rule: ToolRule,
    facts: Option<GuestFacts>,
    new_guest: Option<Vmid>,
    lift: Option<Lift>,
    reasons: Vec<Reason>,
}

impl Permit {
    /// Who may.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// What they may do.
    pub fn rule(&self) -> &ToolRule {
        &self.rule
    }

    /// The guest it was decided for; `None` for tools that address none, and for guests yet to be created.
    pub fn facts(&self) -> Option<&GuestFacts> {
        self.facts.as_ref()
    }

    /// The number of the guest that may be created, when that is what was decided.
    pub fn new_guest(&self) -> Option<Vmid> {
        self.new_guest
    }

    /// What lifted the guest's protection, when it had to be lifted.
    pub fn lift(&self) -> Option<&Lift> {
        self.lift.as_ref()
    }

    /// Every step of the way here, in order.
    pub fn reasons(&self) -> &[Reason] {
        &self.reasons
    }
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
    if let Some(cluster) = cluster
        && !principal.may_see_cluster(cluster)
    {
        return Err(Denial::cluster_out_of_scope(principal, cluster));
    }
    Ok(Admitted { principal: Arc::clone(principal), rule: *rule, cluster: cluster.map(str::to_owned) })
}

/// Stage 2 for a tool that addresses a guest: grant, tier, protection.
///
/// `op` is the word a waiver must name, and `planner` the token that planned the operation (the caller
/// itself, where nothing was planned).
///
/// # Errors
/// [`DenialKind::GuestOutOfScope`](crate::DenialKind::GuestOutOfScope) reads exactly like a guest that
/// does not exist; the others explain themselves.
pub fn decide(
    admitted: Admitted,
    facts: &GuestFacts,
    op: &str,
    planner: &str,
    protection: &Protection,
    overrides: &Overrides<'_>,
    now: Timestamp,
) -> Result<Permit, Denial> {
    let principal = &admitted.principal;
    principal.require_valid(now)?;
    let selector = in_scope(principal, admitted.cluster.as_deref(), facts)?;
    require_tier(principal, admitted.rule.tier)?;

    let causes = protection.causes(facts);
    let (lift, verdict) = if causes.is_empty() {
        (None, Reason::NotProtected)
    } else if !admitted.rule.protection_refuses() {
        (None, Reason::ProtectionAllows(causes))
    } else if let Some(waiver) = overrides.waivers.find(&facts.cluster, facts.vmid, op, planner, now) {
        (Some(Lift::Waiver(waiver.into())), Reason::ProtectionLifted(causes))
    } else if overrides.lab_mode {
        (Some(Lift::LabMode), Reason::ProtectionLifted(causes))
    } else {
        let near_miss = overrides.waivers.near_miss(&facts.cluster, facts.vmid, op, planner, now);
        return Err(Denial::protected(principal, facts, op, &causes, near_miss));
    };

    let mut reasons = admitted.reasons();
    reasons.extend([Reason::Selector(selector), Reason::Tier(admitted.rule.tier), verdict]);
    let facts = Some(facts.clone());
    Ok(Permit { principal: admitted.principal, rule: admitted.rule, facts, new_guest: None, lift, reasons })
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
    if admitted.cluster.as_deref().is_some_and(|c| c != cluster) || !principal.may_see_cluster(cluster) {
        return Err(Denial::cluster_out_of_scope(principal, cluster));
    }
    let Some(selector) = principal.grant.as_ref().and_then(|grant| grant.selects_new(vmid)) else {
        return Err(Denial::new_vmid_out_of_scope(principal, cluster, vmid));
    };
    let selector = Reason::Selector(selector.to_string());
    require_tier(principal, admitted.rule.tier)?;
    if protection.reserves(vmid) {
        return Err(Denial::new_vmid_protected(principal, cluster, vmid));
    }
    let mut reasons = admitted.reasons();
    reasons.extend([selector, Reason::Tier(admitted.rule.tier), Reason::NewGuest(vmid)]);
    Ok(Permit {
        principal: admitted.principal,
        rule: admitted.rule,
        facts: None,
        new_guest: Some(vmid),
        lift: None,
        reasons,
    })
}

/// Stage 2 for reads that address no guest: clusters, nodes, storages, tasks, change sets.
///
/// The caller still filters what it answers, by [`Principal::visible`], unless
/// [`Principal::unrestricted_guests`].
///
/// # Errors
/// [`DenialKind::GuestRequired`](crate::DenialKind::GuestRequired) for anything but a read.
pub fn permit_unaddressed(admitted: Admitted) -> Result<Permit, Denial> {
    let rule = &admitted.rule;
    if rule.tier != Tier::Read || rule.protection_refuses() {
        return Err(Denial::guest_required(&admitted.principal, rule));
    }
    Ok(unaddressed(admitted, Reason::ReadsNoGuest))
}

/// Stage 2 for tools that change something which is no guest: a storage's contents, the bookkeeping of
/// change sets. The grant must hold the tool's tier; its `guests` do not matter.
///
/// # Errors
/// [`DenialKind::TierNotGranted`](crate::DenialKind::TierNotGranted), and
/// [`DenialKind::GuestRequired`](crate::DenialKind::GuestRequired) for a rule that interrupts or writes
/// into a guest.
pub fn permit_cluster_write(admitted: Admitted, now: Timestamp) -> Result<Permit, Denial> {
    let (principal, rule) = (&admitted.principal, &admitted.rule);
    principal.require_valid(now)?;
    if rule.tier == Tier::Read || rule.interrupts || rule.writes_guest {
        return Err(Denial::guest_required(principal, rule));
    }
    require_tier(principal, rule.tier)?;
    Ok(unaddressed(admitted, Reason::ChangesNoGuest))
}

fn unaddressed(admitted: Admitted, reason: Reason) -> Permit {
    let mut reasons = admitted.reasons();
    reasons.push(reason);
    Permit {
        principal: admitted.principal,
        rule: admitted.rule,
        facts: None,
        new_guest: None,
        lift: None,
        reasons,
    }
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
    in_scope(approver, None, plan.facts)?;
    require_tier(approver, plan.tier)?;
    if approver.channel != Channel::Bearer || approver.actor != Some(ActorKind::Human) {
        return Err(Denial::approver_not_human(approver));
    }
    if same_person(&approver.person, plan.planner_person) || same_person(&approver.name, plan.planner_name) {
        return Err(Denial::approver_is_planner(approver, plan.planner_name));
    }
    Ok(ApprovalPermit { approver: Arc::clone(approver) })
}

/// The selector that puts the guest in scope. A grant without actions holds no guest at all: it must not
/// even tell which ones exist.
fn in_scope(principal: &Principal, admitted: Option<&str>, facts: &GuestFacts) -> Result<String, Denial> {
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
        Some(selector) => Ok(selector.to_string()),
        None => refuse("no selector of the token's grant matches"),
    }
}

fn require_tier(principal: &Principal, tier: Tier) -> Result<(), Denial> {
    match &principal.grant {
        Some(grant) if grant.actions().holds(tier) => Ok(()),
        _ => Err(Denial::tier_not_granted(principal, tier)),
    }
}
