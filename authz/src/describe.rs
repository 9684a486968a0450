//! Serialisable descriptions of principals and policies.

use serde::Serialize;

use crate::facts::GuestFacts;
use crate::principal::{ActorKind, Channel, Principal, Provenance};
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
    /// Where the token comes from; absent when its entry says nothing.
    #[serde(skip_serializing_if = "Provenance::is_empty")]
    pub provenance: Provenance,
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
            provenance: self.provenance.clone(),
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
