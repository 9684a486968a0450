//! Why something was refused: one text for the caller, one for the audit.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::facts::{GuestFacts, Vmid};
use crate::names::escape_untrusted;
use crate::principal::{ActorKind, Channel, Principal};
use crate::protection::ProtectionCause;
use crate::scope::{Tier, ToolRule};

/// The whole answer about a guest that is not there or not the caller's. Nothing may be added to it: a
/// difference would tell the two apart.
pub const GUEST_REFUSED: &str = "authorization failed";

/// What stood in the way. Exhaustive on purpose: a new kind must be handled by everyone who matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DenialKind {
    /// The token has run out.
    TokenExpired,
    /// The token's `tools` do not reach the tool or scope.
    ToolOutOfScope,
    /// The cluster does not exist or is not in the token's `devices`.
    ClusterOutOfScope,
    /// The guest does not exist or is not in the token's grant.
    GuestOutOfScope,
    /// The guest is in scope, but not for this tier; or the token holds the tier for nothing at all.
    TierNotGranted,
    /// The guest is protected and nothing lifts it.
    Protected,
    /// The tool shows a cluster, a node or a storage as a whole, and the token may not read every guest.
    GuestsRestricted,
    /// The token may not create a guest under this number.
    NewVmidOutOfScope,
    /// The number for a new guest is protected.
    NewVmidProtected,
    /// A mutating tool asked for a permit without naming a guest. A fault of the program, not of the caller.
    GuestRequired,
    /// Only a person can approve.
    ApproverNotHuman,
    /// The approver planned the change.
    ApproverIsPlanner,
}

/// A refusal.
///
/// [`Denial::public_message`] may go to the caller as it is; [`Denial::audit_detail`] names what the
/// caller must not learn and belongs in the audit only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    kind: DenialKind,
    public: Cow<'static, str>,
    audit: String,
}

impl Denial {
    /// The refusal for a guest number that resolves to nothing: to the caller the same bytes as for a
    /// guest outside the token's grant.
    pub fn guest_unknown() -> Denial {
        Denial::guest("no such guest".to_owned())
    }

    /// The refusal for a cluster name the configuration does not hold: to the caller the same bytes as
    /// for a cluster outside the token's scope.
    pub fn cluster_unknown(principal: &Principal, cluster: &str) -> Denial {
        Denial::cluster(principal, cluster, "no such cluster")
    }

    /// What stood in the way.
    pub fn kind(&self) -> DenialKind {
        self.kind
    }

    /// The stable word for it, as results and audit records carry it.
    pub fn code(&self) -> &'static str {
        match self.kind {
            DenialKind::TokenExpired => "expired",
            DenialKind::ToolOutOfScope | DenialKind::TierNotGranted | DenialKind::GuestsRestricted => {
                "insufficient_scope"
            }
            DenialKind::ClusterOutOfScope => "cluster_unavailable",
            DenialKind::GuestOutOfScope => "authorization_failed",
            DenialKind::Protected | DenialKind::NewVmidProtected => "protected",
            DenialKind::NewVmidOutOfScope => "vmid_out_of_scope",
            DenialKind::GuestRequired => "guest_required",
            DenialKind::ApproverNotHuman => "approver_not_human",
            DenialKind::ApproverIsPlanner => "approver_is_planner",
        }
    }

    /// What the caller may read: cause, remedy and who can unblock it.
    pub fn public_message(&self) -> &str {
        &self.public
    }

    /// What the audit records: the token and the rule that decided.
    pub fn audit_detail(&self) -> &str {
        &self.audit
    }

    pub(crate) fn token_expired(principal: &Principal, expires: Timestamp) -> Denial {
        let name = &principal.name;
        Denial {
            kind: DenialKind::TokenExpired,
            public: format!(
                "token `{name}` expired at {expires}: the operator of this server can rotate it or move its `expires`"
            )
            .into(),
            audit: format!("token `{name}` expired at {expires}"),
        }
    }

    pub(crate) fn tool_out_of_scope(principal: &Principal, rule: &ToolRule) -> Denial {
        let (token, tool) = (&principal.name, rule.name);
        let wildcard = match principal.tools.is_any() {
            true => " (`*` never reaches what changes something or only authorizes)",
            false => "",
        };
        let remedy = match principal.channel {
            Channel::Bearer => format!("the operator of this server can add `{tool}` to the token's `tools`"),
            Channel::Stdio => {
                "the operator can start the server with `--stdio-principal` and a token that names it"
                    .to_owned()
            }
            Channel::Anonymous => {
                "call with a token that names it; without one only reads are served".to_owned()
            }
        };
        Denial {
            kind: DenialKind::ToolOutOfScope,
            public: format!("token `{token}` lacks the scope `{tool}`{wildcard}: {remedy}").into(),
            audit: format!("token `{token}` lacks the scope `{tool}`"),
        }
    }

    pub(crate) fn cluster_out_of_scope(principal: &Principal, cluster: &str) -> Denial {
        Denial::cluster(principal, cluster, "not in the token's `devices`")
    }

    fn cluster(principal: &Principal, cluster: &str, detail: &str) -> Denial {
        let (token, cluster) = (&principal.name, escape_untrusted(cluster, 64));
        Denial {
            kind: DenialKind::ClusterOutOfScope,
            public: format!(
                "cluster `{cluster}` is not available to token `{token}`: use a cluster the token names, or ask the \
                 operator of this server to add it to the token's `devices`"
            )
            .into(),
            audit: format!("token `{token}`, cluster `{cluster}`: {detail}"),
        }
    }

    pub(crate) fn guest_out_of_scope(principal: &Principal, facts: &GuestFacts, detail: &str) -> Denial {
        let (token, cluster, vmid) = (&principal.name, escape_untrusted(&facts.cluster, 64), facts.vmid);
        Denial::guest(format!("token `{token}`, guest {vmid} on `{cluster}`: {detail}"))
    }

    fn guest(audit: String) -> Denial {
        Denial { kind: DenialKind::GuestOutOfScope, public: Cow::Borrowed(GUEST_REFUSED), audit }
    }

    pub(crate) fn tier_not_granted(principal: &Principal, tier: Tier) -> Denial {
        let token = &principal.name;
        Denial {
            kind: DenialKind::TierNotGranted,
            public: format!(
                "token `{token}` lacks the action `{tier}`: no other action implies it; the operator of this server can \
                 add `{tier}` to the `actions` of the token's grant"
            )
            .into(),
            audit: format!("token `{token}` lacks the action `{tier}`"),
        }
    }

    pub(crate) fn guests_restricted(principal: &Principal, rule: &ToolRule) -> Denial {
        let (token, tool) = (&principal.name, rule.name);
        Denial {
            kind: DenialKind::GuestsRestricted,
            public: format!(
                "`{tool}` shows more than single guests, and token `{token}` may not read every guest: it needs the                  guest scope `*` with the action `read`, which the operator of this server can put into the token's grant"
            )
            .into(),
            audit: format!("token `{token}`, `{tool}`: the grant does not hold every guest for `read`"),
        }
    }

    pub(crate) fn protected(
        principal: &Principal,
        facts: &GuestFacts,
        op: &str,
        causes: &[ProtectionCause],
        near_miss: Option<&'static str>,
    ) -> Denial {
        let (cluster, vmid, op) =
            (escape_untrusted(&facts.cluster, 64), facts.vmid, escape_untrusted(op, 64));
        let why = causes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let miss = near_miss
            .map(|miss| format!(" (a waiver for this guest exists, but {miss})"))
            .unwrap_or_default();
        Denial {
            kind: DenialKind::Protected,
            public: format!(
                "guest {vmid} on `{cluster}` is protected ({why}): `{op}` is refused{miss}. No argument overrides this; \
                 the operator of this server can add a time-boxed waiver for op `{op}`, or whoever owns the guest can \
                 end its protection"
            )
            .into(),
            audit: format!(
                "token `{}`, guest {vmid} on `{cluster}`, op `{op}`: protected ({why}){miss}",
                principal.name
            ),
        }
    }

    pub(crate) fn new_vmid_out_of_scope(principal: &Principal, cluster: &str, vmid: Vmid) -> Denial {
        let (token, cluster) = (&principal.name, escape_untrusted(cluster, 64));
        Denial {
            kind: DenialKind::NewVmidOutOfScope,
            public: format!(
                "token `{token}` may not create guest {vmid}: a new guest needs a `vmid:` selector that holds its \
                 number, or `*` (a tag or a pool cannot admit a guest that does not exist yet); choose another number \
                 or ask the operator of this server"
            )
            .into(),
            audit: format!("token `{token}`, new guest {vmid} on `{cluster}`: no selector admits the number"),
        }
    }

    pub(crate) fn new_vmid_protected(principal: &Principal, cluster: &str, vmid: Vmid) -> Denial {
        let (token, cluster) = (&principal.name, escape_untrusted(cluster, 64));
        Denial {
            kind: DenialKind::NewVmidProtected,
            public: format!(
                "number {vmid} is in the `protected_vmids` of `{cluster}` and cannot be given to a new guest: choose \
                 another number, or ask the operator of this server to take it off the list"
            )
            .into(),
            audit: format!("token `{token}`, new guest {vmid} on `{cluster}`: the number is protected"),
        }
    }

    pub(crate) fn guest_required(principal: &Principal, rule: &ToolRule) -> Denial {
        let (token, tool) = (&principal.name, rule.name);
        Denial {
            kind: DenialKind::GuestRequired,
            public: format!(
                "`{tool}` changes something and was not decided for what it changes: it is refused; this is a fault \
                 of the server, report it"
            )
            .into(),
            audit: format!("token `{token}`, `{tool}`: asked for a permit without the facts it needs"),
        }
    }

    pub(crate) fn approver_not_human(approver: &Principal) -> Denial {
        let token = &approver.name;
        let is = match (approver.channel, approver.actor) {
            (Channel::Stdio, _) => "a local process, which nobody has authenticated",
            (Channel::Anonymous, _) => "nobody's",
            (Channel::Bearer, Some(ActorKind::Agent)) => "an agent's",
            (Channel::Bearer, _) => "unattributed",
        };
        Denial {
            kind: DenialKind::ApproverNotHuman,
            public: format!(
                "only a person can approve, and token `{token}` is {is}: ask a person who holds a token with \
                 `actor_type: human`"
            )
            .into(),
            audit: format!("approver token `{token}` is {is}"),
        }
    }

    pub(crate) fn approver_is_planner(approver: &Principal, planner: &str) -> Denial {
        let (token, person) = (&approver.name, &approver.person);
        let planner = escape_untrusted(planner, 128);
        Denial {
            kind: DenialKind::ApproverIsPlanner,
            public: format!(
                "the person behind token `{token}` planned this change: a different person has to approve it"
            )
            .into(),
            audit: format!("approver token `{token}` (person `{person}`) is the planner, token `{planner}`"),
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.public)
    }
}

impl std::error::Error for Denial {}
