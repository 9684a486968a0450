//! Serialisable descriptions, for `whoami` and for explaining a decision.

use serde::Serialize;

use crate::decide::{Lift, Permit};
use crate::denial::{Denial, DenialKind};
use crate::facts::GuestFacts;
use crate::principal::{ActorKind, Channel, Principal};
use crate::protection::Protection;

/// What a principal may do, in the words of the token file. Holds no secret and no hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PrincipalView {
    /// The token's name.
    pub token: String,
    /// The person behind it.
    pub person: String,
    /// `human`, `agent`, or null when the token says neither.
    pub actor_type: Option<ActorKind>,
    /// How the caller came to be this principal.
    pub channel: Channel,
    /// RFC 3339, or null when it never expires.
    pub expires: Option<String>,
    /// The tool scope; `*` first.
    pub tools: Vec<String>,
    /// The clusters; `*` first.
    pub devices: Vec<String>,
    /// Guests and tiers, or null: no guest at all.
    pub grant: Option<GrantView>,
    /// Whether it is a person's own token, so that it can approve what someone else planned.
    pub can_approve: bool,
}

/// A grant in the words of the token file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GrantView {
    /// The selectors.
    pub guests: Vec<String>,
    /// The tiers.
    pub actions: Vec<&'static str>,
}

impl Principal {
    /// The principal's rights, to be shown to itself or to an operator.
    pub fn describe(&self) -> PrincipalView {
        PrincipalView {
            token: self.name.clone(),
            person: self.person.clone(),
            actor_type: self.actor,
            channel: self.channel,
            expires: self.expires.map(|expires| expires.to_string()),
            tools: self.tools.to_list(),
            devices: self.clusters.to_list(),
            grant: self.grant.as_ref().map(|grant| GrantView {
                guests: grant.guests().iter().map(ToString::to_string).collect(),
                actions: grant.actions().iter().map(|tier| tier.as_str()).collect(),
            }),
            can_approve: self.channel == Channel::Bearer && self.actor == Some(ActorKind::Human),
        }
    }
}

/// Whether a guest is protected, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProtectionView {
    /// Whether any cause applies.
    pub protected: bool,
    /// The causes, in words.
    pub causes: Vec<String>,
}

impl Protection {
    /// Whether this policy protects the guest, and why.
    pub fn describe(&self, facts: &GuestFacts) -> ProtectionView {
        let causes: Vec<String> = self.causes(facts).iter().map(ToString::to_string).collect();
        ProtectionView { protected: !causes.is_empty(), causes }
    }
}

/// A decision with all its reasons. For the operator: it holds what a caller must not learn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Whether it was allowed.
    pub allowed: bool,
    /// The kind of refusal.
    pub denied: Option<DenialKind>,
    /// The code of the refusal.
    pub code: Option<&'static str>,
    /// What the caller is told.
    pub message: Option<String>,
    /// Every step on the way to the permit, or the one that refused.
    pub reasons: Vec<String>,
    /// What lifted the guest's protection.
    pub lift: Option<String>,
}

impl Explanation {
    /// Explains a decision.
    pub fn of(decision: &Result<Permit, Denial>) -> Explanation {
        match decision {
            Ok(permit) => Explanation {
                allowed: true,
                denied: None,
                code: None,
                message: None,
                reasons: permit.reasons().iter().map(ToString::to_string).collect(),
                lift: permit.lift().map(Lift::to_string),
            },
            Err(denial) => Explanation {
                allowed: false,
                denied: Some(denial.kind()),
                code: Some(denial.code()),
                message: Some(denial.public_message().to_owned()),
                reasons: vec![denial.audit_detail().to_owned()],
                lift: None,
            },
        }
    }
}
