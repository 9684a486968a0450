//! A decision with its whole reasoning: who asked, for what, and what each check said. For the operator
//! and for the audit: it holds what a caller must not learn.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use crate::decide::{
    Overrides, ProtectionQuestion, admit, decide, decide_new_guest, permit_cluster_write, permit_unaddressed,
    permit_whole_read, require_cluster, require_every_guest, require_free_vmid, require_guest,
    require_new_vmid, require_no_guest, require_plain_read, require_tier, require_unprotected,
};
use crate::denial::{Denial, DenialKind};
use crate::describe::PrincipalView;
use crate::facts::{GuestFacts, Vmid};
use crate::permit::{Lift, Permit, Reason};
use crate::principal::Principal;
use crate::protection::Protection;
use crate::scope::{Tier, ToolRule};

/// Everything one decision depends on.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Who asks.
    pub principal: &'a Arc<Principal>,
    /// For what.
    pub rule: &'a ToolRule,
    /// The cluster, if the call names one.
    pub cluster: Option<&'a str>,
    /// Whether the configuration holds a cluster of that name.
    pub cluster_known: bool,
    /// What is addressed.
    pub subject: Asked<'a>,
    /// The word a waiver must name.
    pub op: &'a str,
    /// The token that planned the operation; the caller itself where nothing was planned.
    pub planner: &'a str,
    /// The cluster's protection policy.
    pub protection: &'a Protection,
    /// What may lift it.
    pub overrides: Overrides<'a>,
    /// When.
    pub now: Timestamp,
}

/// What a call addresses.
#[derive(Debug, Clone, Copy)]
pub enum Asked<'a> {
    /// A guest, as the cluster describes it.
    Guest(&'a GuestFacts),
    /// A guest the cluster does not have.
    AbsentGuest(Vmid),
    /// A guest to be created under this number, in the question's cluster.
    NewGuest(Vmid),
    /// A cluster, a node or a storage as a whole, which shows what every guest does.
    EveryGuest,
    /// No guest: a cluster, a node, a storage, a task, a change set.
    Nothing,
}

/// One of the checks, in the order they are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Check {
    /// The token has not expired.
    Token,
    /// The token reaches the tool.
    Tool,
    /// The token reaches the cluster.
    Cluster,
    /// The tool may go without a guest.
    Addressing,
    /// The guest, or the number of the new one, is in the token's grant.
    Guest,
    /// The grant holds the tool's tier.
    Tier,
    /// Protection does not stand in the way, or was lifted.
    Protection,
}

impl Check {
    /// The word used in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Check::Token => "token",
            Check::Tool => "tool",
            Check::Cluster => "cluster",
            Check::Addressing => "addressing",
            Check::Guest => "guest",
            Check::Tier => "tier",
            Check::Protection => "protection",
        }
    }
}

/// What one check said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckResult {
    /// It lets the call pass.
    Passed,
    /// It refuses the call.
    Failed,
    /// It could not be made: what it looks at is not there.
    Skipped,
}

/// One check with its result and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Which.
    pub check: Check,
    /// What it said.
    pub result: CheckResult,
    /// Why, in words.
    pub why: String,
}

/// A tool's rule as output shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuleView {
    /// Its name, which is the scope a token must hold.
    pub name: &'static str,
    /// Its tier.
    pub tier: Tier,
    /// Whether it takes a running guest down.
    pub interrupts: bool,
    /// Whether it writes into the guest.
    pub writes_guest: bool,
    /// Whether `tools: ["*"]` reaches it.
    pub wildcard_reaches: bool,
}

/// A decision with its whole reasoning.
///
/// Every check is listed, also those after the first that failed: it is the first that decides, and the
/// others tell what would stand in the way next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// Whether it was allowed.
    pub allowed: bool,
    /// The kind of refusal.
    pub denied: Option<DenialKind>,
    /// The code of the refusal.
    pub code: Option<&'static str>,
    /// What the caller is told.
    pub message: Option<String>,
    /// Who asked.
    pub principal: PrincipalView,
    /// For what.
    pub tool: RuleView,
    /// The cluster the call named.
    pub cluster: Option<String>,
    /// The guest's number, if it addressed one.
    pub vmid: Option<Vmid>,
    /// The word a waiver must name.
    pub op: String,
    /// The token that planned.
    pub planner: String,
    /// RFC 3339.
    pub at: String,
    /// Every check.
    pub checks: Vec<CheckReport>,
    /// What lifted the guest's protection.
    pub lift: Option<String>,
}

impl Question<'_> {
    /// The decision, by the functions that every call goes through.
    ///
    /// # Errors
    /// The refusal.
    pub fn decide(&self) -> Result<Permit, Denial> {
        let admitted = admit(self.principal, self.rule, self.cluster, self.now)?;
        if let Some(cluster) = self.cluster
            && !self.cluster_known
        {
            return Err(Denial::cluster_unknown(self.principal, cluster));
        }
        match self.subject {
            Asked::Guest(facts) => {
                let (protection, overrides) = (self.protection, &self.overrides);
                decide(admitted, facts, self.op, self.planner, protection, overrides, self.now)
            }
            Asked::AbsentGuest(_) => Err(Denial::guest_unknown()),
            Asked::NewGuest(vmid) => {
                let cluster = self.cluster.unwrap_or_default();
                decide_new_guest(admitted, cluster, vmid, self.protection, self.now)
            }
            Asked::EveryGuest => permit_whole_read(admitted, self.now),
            Asked::Nothing if self.rule.tier == Tier::Read => permit_unaddressed(admitted),
            Asked::Nothing => permit_cluster_write(admitted, self.now),
        }
    }

    /// The decision and what each check said.
    pub fn explain(&self) -> Decision {
        let decided = self.decide();
        let denial = decided.as_ref().err();
        Decision {
            allowed: decided.is_ok(),
            denied: denial.map(Denial::kind),
            code: denial.map(Denial::code),
            message: denial.map(|denial| denial.public_message().to_owned()),
            principal: self.principal.describe(),
            tool: RuleView {
                name: self.rule.name,
                tier: self.rule.tier,
                interrupts: self.rule.interrupts,
                writes_guest: self.rule.writes_guest,
                wildcard_reaches: self.rule.wildcard_reaches(),
            },
            cluster: self.cluster.map(str::to_owned),
            vmid: match self.subject {
                Asked::Guest(facts) => Some(facts.vmid),
                Asked::AbsentGuest(vmid) | Asked::NewGuest(vmid) => Some(vmid),
                Asked::EveryGuest | Asked::Nothing => None,
            },
            op: self.op.to_owned(),
            planner: self.planner.to_owned(),
            at: self.now.to_string(),
            checks: self.checks(),
            lift: decided.as_ref().ok().and_then(Permit::lift).map(Lift::to_string),
        }
    }

    fn checks(&self) -> Vec<CheckReport> {
        let mut checks = vec![self.token(), self.tool()];
        checks.extend(self.cluster.map(|cluster| self.cluster(cluster)));
        match self.subject {
            Asked::Guest(facts) => checks.extend([self.guest(facts), self.tier(), self.protection(facts)]),
            Asked::AbsentGuest(vmid) => {
                let denial = Denial::guest_unknown();
                let why = format!("guest {vmid}: {}", denial.audit_detail());
                checks.push(CheckReport { check: Check::Guest, result: CheckResult::Failed, why });
                checks.push(self.tier());
                checks.push(CheckReport {
                    check: Check::Protection,
                    result: CheckResult::Skipped,
                    why: "there is no guest to look at".to_owned(),
                });
            }
            Asked::NewGuest(vmid) => checks.extend([self.number(vmid), self.tier(), self.free(vmid)]),
            Asked::EveryGuest => {
                let every = require_every_guest(self.principal, self.rule);
                checks.push(report(Check::Guest, every, |()| {
                    "the grant holds every guest for `read`".to_owned()
                }));
                checks.extend(self.unaddressed());
            }
            Asked::Nothing => checks.extend(self.unaddressed()),
        }
        checks
    }

    fn token(&self) -> CheckReport {
        report(Check::Token, self.principal.require_valid(self.now), |()| match self.principal.expires {
            Some(expires) => format!("valid until {expires}"),
            None => "valid, without an end".to_owned(),
        })
    }

    fn tool(&self) -> CheckReport {
        let reached = self.principal.require_tool(self.rule);
        report(Check::Tool, reached, |()| match self.principal.tools.names(self.rule.name) {
            true => Reason::ToolNamed.to_string(),
            false => Reason::ToolWildcard.to_string(),
        })
    }

    fn cluster(&self, cluster: &str) -> CheckReport {
        let reached = require_cluster(self.principal, cluster).and_then(|()| match self.cluster_known {
            true => Ok(()),
            false => Err(Denial::cluster_unknown(self.principal, cluster)),
        });
        report(Check::Cluster, reached, |()| Reason::Cluster(cluster.to_owned()).to_string())
    }

    fn guest(&self, facts: &GuestFacts) -> CheckReport {
        let selector = require_guest(self.principal, self.cluster, facts);
        report(Check::Guest, selector, |place| Reason::Selector(self.selector(place)).to_string())
    }

    fn number(&self, vmid: Vmid) -> CheckReport {
        let selector = require_new_vmid(self.principal, self.cluster.unwrap_or_default(), vmid);
        report(Check::Guest, selector, |place| {
            format!("selector `{}` holds number {vmid}", self.selector(place))
        })
    }

    fn selector(&self, place: usize) -> String {
        let grant = self.principal.grant.as_ref();
        grant.and_then(|grant| grant.guests().get(place)).map(ToString::to_string).unwrap_or_default()
    }

    fn tier(&self) -> CheckReport {
        let tier = self.rule.tier;
        report(Check::Tier, require_tier(self.principal, tier), |()| Reason::Tier(tier).to_string())
    }

    fn protection(&self, facts: &GuestFacts) -> CheckReport {
        let question = ProtectionQuestion {
            facts,
            op: self.op,
            planner: self.planner,
            protection: self.protection,
            overrides: &self.overrides,
            now: self.now,
        };
        let verdict = require_unprotected(self.principal, self.rule, &question);
        report(Check::Protection, verdict, |(hits, lift)| match lift {
            Some(lift) => format!("{}: {lift}", Reason::ProtectionLifted(hits.words(facts))),
            None if hits.is_empty() => Reason::NotProtected.to_string(),
            None => Reason::ProtectionAllows(hits.words(facts)).to_string(),
        })
    }

    fn free(&self, vmid: Vmid) -> CheckReport {
        let cluster = self.cluster.unwrap_or_default();
        let free = require_free_vmid(self.principal, cluster, vmid, self.protection);
        report(Check::Protection, free, |()| format!("number {vmid} is not protected"))
    }

    fn unaddressed(&self) -> Vec<CheckReport> {
        if self.rule.tier == Tier::Read {
            let plain = require_plain_read(self.principal, self.rule);
            return vec![report(Check::Addressing, plain, |()| Reason::ReadsNoGuest.to_string())];
        }
        let plain = require_no_guest(self.principal, self.rule);
        vec![report(Check::Addressing, plain, |()| Reason::ChangesNoGuest.to_string()), self.tier()]
    }
}

fn report<T>(check: Check, result: Result<T, Denial>, why: impl FnOnce(T) -> String) -> CheckReport {
    match result {
        Ok(found) => CheckReport { check, result: CheckResult::Passed, why: why(found) },
        Err(denial) => {
            CheckReport { check, result: CheckResult::Failed, why: denial.audit_detail().to_owned() }
        }
    }
}

impl Decision {
    /// The check that decided: the first that failed, if one did.
    pub fn failed(&self) -> Option<&CheckReport> {
        self.checks.iter().find(|check| check.result == CheckResult::Failed)
    }
}

/// Several lines for a terminal; what others chose is escaped in them.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PrincipalView { token, person, .. } = &self.principal;
        let verdict = if self.allowed { "ALLOW" } else { "DENY" };
        write!(
            f,
            "{verdict}: token `{token}` (person `{person}`), `{}` ({})",
            self.tool.name, self.tool.tier
        )?;
        if let Some(vmid) = self.vmid {
            write!(f, ", guest {vmid}")?;
        }
        if let Some(cluster) = &self.cluster {
            write!(f, ", cluster `{}`", crate::names::escape_untrusted(cluster, 64))?;
        }
        writeln!(f, ", at {}", self.at)?;
        for CheckReport { check, result, why } in &self.checks {
            let mark = match result {
                CheckResult::Passed => "pass",
                CheckResult::Failed => "FAIL",
                CheckResult::Skipped => "skip",
            };
            writeln!(f, "  {mark}  {:<10}  {why}", check.as_str())?;
        }
        if let (Some(code), Some(message)) = (self.code, &self.message) {
            writeln!(f, "The caller is told ({code}): {message}")?;
        }
        Ok(())
    }
}
