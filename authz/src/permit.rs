//! What an allowed call carries: permits, and what they were granted for.

use std::fmt;
use std::sync::Arc;

use crate::facts::{GuestFacts, Vmid};
use crate::names::ShortText;
use crate::principal::Principal;
use crate::protection::{Hits, ProtectionCause};
use crate::scope::{Tier, ToolRule};
use crate::waiver::Waiver;

/// What lifted a guest's protection for one decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lift {
    /// This waiver. Preferred over lab mode when both would do, because it says why.
    Waiver(Arc<Waiver>),
    /// The server runs in lab mode.
    LabMode,
}

impl fmt::Display for Lift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lift::Waiver(waiver) => {
                write!(f, "waiver until {}: {}", waiver.until(), waiver.reason())?;
                waiver.ticket().map_or(Ok(()), |ticket| write!(f, " [{ticket}]"))
            }
            Lift::LabMode => f.write_str("lab mode"),
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
    pub(crate) principal: Arc<Principal>,
    pub(crate) rule: ToolRule,
    pub(crate) cluster: Option<ShortText>,
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
        self.cluster.as_ref().map(ShortText::as_str)
    }

    /// The permit for `subject`, and nothing else.
    pub(crate) fn permit(self, subject: Subject) -> Permit {
        Permit { principal: self.principal, rule: self.rule, cluster: self.cluster, subject }
    }
}

/// What a permit is for, and what was found on the way to it. Places instead of words: a decision that
/// allows asks for no memory.
#[derive(Debug)]
pub(crate) enum Subject {
    /// A guest: which selector of the grant matched, what protects it, what lifted that.
    Guest { facts: Arc<GuestFacts>, selector: usize, hits: Hits, lift: Option<Lift> },
    /// A guest to be created: which selector holds its number.
    NewGuest { vmid: Vmid, selector: usize },
    /// No guest, and nothing is changed.
    Read,
    /// No guest, and something else is changed.
    Write,
}

/// Permission for one call. Only this crate can make one; it cannot be copied or read from data, so a
/// handler that takes it cannot be reached past the decision.
#[derive(Debug)]
pub struct Permit {
    principal: Arc<Principal>,
    rule: ToolRule,
    cluster: Option<ShortText>,
    subject: Subject,
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
        match &self.subject {
            Subject::Guest { facts, .. } => Some(facts),
            _ => None,
        }
    }

    /// The number of the guest that may be created, when that is what was decided.
    pub fn new_guest(&self) -> Option<Vmid> {
        match self.subject {
            Subject::NewGuest { vmid, .. } => Some(vmid),
            _ => None,
        }
    }

    /// What lifted the guest's protection, when it had to be lifted.
    pub fn lift(&self) -> Option<&Lift> {
        match &self.subject {
            Subject::Guest { lift, .. } => lift.as_ref(),
            _ => None,
        }
    }

    /// Every step of the way here, in order. Made when asked for: the decision itself keeps no words.
    pub fn reasons(&self) -> Vec<Reason> {
        let tool = match self.principal.tools.names(self.rule.name) {
            true => Reason::ToolNamed,
            false => Reason::ToolWildcard,
        };
        let cluster = self.cluster.as_ref().map(|cluster| Reason::Cluster(cluster.as_str().to_owned()));
        let mut reasons: Vec<Reason> = std::iter::once(tool).chain(cluster).collect();
        match &self.subject {
            Subject::Guest { facts, selector, hits, lift } => {
                let causes = hits.words(facts);
                let verdict = match lift {
                    Some(_) => Reason::ProtectionLifted(causes),
                    None if causes.is_empty() => Reason::NotProtected,
                    None => Reason::ProtectionAllows(causes),
                };
                reasons.extend([self.selector(*selector), Reason::Tier(self.rule.tier), verdict]);
            }
            Subject::NewGuest { vmid, selector } => {
                let (selector, tier) = (self.selector(*selector), Reason::Tier(self.rule.tier));
                reasons.extend([selector, tier, Reason::NewGuest(*vmid)]);
            }
            Subject::Read => reasons.push(Reason::ReadsNoGuest),
            Subject::Write => reasons.extend([Reason::Tier(self.rule.tier), Reason::ChangesNoGuest]),
        }
        reasons
    }

    fn selector(&self, place: usize) -> Reason {
        let selector = self.principal.grant.as_ref().and_then(|grant| grant.guests().get(place));
        Reason::Selector(selector.map(ToString::to_string).unwrap_or_default())
    }
}
