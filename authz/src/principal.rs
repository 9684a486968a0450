//! Who is calling: one token's rights, or one of the two principals that need no token.

use jiff::Timestamp;
use serde::Serialize;

use crate::denial::Denial;
use crate::facts::GuestFacts;
use crate::grant::{Grant, Selector, TierSet};
use crate::scope::{Scope, Tier, ToolRule};

/// Whether a token was minted for a person or for a program. A claim of the operator who minted it, not
/// a proof. A token that says neither is unattributed and stands as `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// A person.
    Human,
    /// A program acting for one.
    Agent,
}

impl ActorKind {
    /// The word used in files and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            ActorKind::Human => "human",
            ActorKind::Agent => "agent",
        }
    }
}

/// How the caller came to be this principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// It presented the token.
    Bearer,
    /// Configuration set it for a local process. Such a principal can never approve.
    Stdio,
    /// Nobody: authentication was switched off.
    Anonymous,
}

/// Where a token comes from, in the words of whoever wrote the entry. Grants nothing; it is for the audit,
/// which may tell it apart from what a client claims about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Provenance {
    /// Who runs the model behind the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What kind of provider that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_tier: Option<String>,
    /// For whom the holder acts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
}

impl Provenance {
    /// What an entry says that says nothing.
    pub const NONE: Provenance = Provenance { provider: None, provider_tier: None, on_behalf_of: None };

    /// Whether the entry says nothing.
    pub fn is_empty(&self) -> bool {
        *self == Provenance::default()
    }
}

/// One caller's rights, as the token file gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub(crate) name: String,
    pub(crate) person: String,
    pub(crate) actor: Option<ActorKind>,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) grant: Option<Grant>,
    pub(crate) clusters: Scope,
    pub(crate) tools: Scope,
    pub(crate) channel: Channel,
    pub(crate) provenance: Provenance,
}

impl Principal {
    /// The principal of a local process for which no token was named: every read tool, every cluster,
    /// every guest, tier read. Not a person, so it can never approve.
    pub fn local_reader(name: &str) -> Principal {
        Principal::reader(name, Channel::Stdio)
    }

    /// The principal of every caller when authentication is switched off: reads only, under the name
    /// `anonymous`.
    pub fn anonymous_reader() -> Principal {
        Principal::reader("anonymous", Channel::Anonymous)
    }

    fn reader(name: &str, channel: Channel) -> Principal {
        Principal {
            name: name.to_owned(),
            person: name.to_owned(),
            actor: None,
            expires: None,
            grant: Some(Grant::new([Selector::Any], TierSet::EMPTY.with(Tier::Read))),
            clusters: Scope::any(),
            tools: Scope::any(),
            channel,
            provenance: Provenance::default(),
        }
    }

    /// The same rights for a local process that was given this token's name by configuration. The result
    /// is unattributed and can never approve: whoever started the process was not authenticated.
    #[must_use]
    pub fn over_stdio(&self) -> Principal {
        Principal { actor: None, channel: Channel::Stdio, ..self.clone() }
    }

    /// The token's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The person behind the token; the token's own name when the file names none.
    pub fn person(&self) -> &str {
        &self.person
    }

    /// Human, agent, or `None` when the token says neither.
    pub fn actor(&self) -> Option<ActorKind> {
        self.actor
    }

    /// When the token stops working, if ever.
    pub fn expires(&self) -> Option<Timestamp> {
        self.expires
    }

    /// The guests and tiers; `None` allows no guest.
    pub fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// The clusters.
    pub fn clusters(&self) -> &Scope {
        &self.clusters
    }

    /// The tools and authorization-only scopes.
    pub fn tools(&self) -> &Scope {
        &self.tools
    }

    /// How the caller came to be this principal.
    pub fn channel(&self) -> Channel {
        self.channel
    }

    /// Where the token comes from, as far as its entry says.
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// Whether the token has run out: true from the very instant of its expiry on.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether this principal may use the tool, or holds the scope, that `rule` describes. Decides what
    /// `tools/list` shows; says nothing about clusters or guests.
    ///
    /// # Errors
    /// [`DenialKind::TokenExpired`](crate::DenialKind::TokenExpired) or
    /// [`DenialKind::ToolOutOfScope`](crate::DenialKind::ToolOutOfScope).
    pub fn may_use(&self, rule: &ToolRule, now: Timestamp) -> Result<(), Denial> {
        self.require_valid(now)?;
        self.require_tool(rule)
    }

    /// Whether the cluster is in the token's scope. Compared byte for byte.
    pub fn may_see_cluster(&self, cluster: &str) -> bool {
        self.clusters.holds(cluster)
    }

    /// Whether a list may show this guest: its cluster and the guest itself are in scope, for reading.
    pub fn visible(&self, facts: &GuestFacts) -> bool {
        self.may_see_cluster(&facts.cluster)
            && self
                .grant
                .as_ref()
                .is_some_and(|grant| grant.actions().holds(Tier::Read) && grant.selects(facts).is_some())
    }

    /// Whether the guest is in the token's scope at all, whatever its tiers: its cluster and a selector hold it. A grant
    /// without actions holds no guest. Only inside the scope may a refusal explain itself.
    pub fn holds(&self, facts: &GuestFacts) -> bool {
        self.may_see_cluster(&facts.cluster)
            && self
                .grant
                .as_ref()
                .is_some_and(|grant| !grant.actions().is_empty() && grant.selects(facts).is_some())
    }

    /// Whether the token may read every guest, so that cluster-wide answers need no filter: its grant
    /// holds `*` and the tier read.
    pub fn unrestricted_guests(&self) -> bool {
        self.grant.as_ref().is_some_and(|grant| grant.is_unrestricted() && grant.actions().holds(Tier::Read))
    }

    pub(crate) fn require_tool(&self, rule: &ToolRule) -> Result<(), Denial> {
        if self.tools.reaches(rule) { Ok(()) } else { Err(Denial::tool_out_of_scope(self, rule)) }
    }

    pub(crate) fn require_valid(&self, now: Timestamp) -> Result<(), Denial> {
        match self.expires {
            Some(expires) if expires <= now => Err(Denial::token_expired(self, expires)),
            _ => Ok(()),
        }
    }
}
