//! Time-boxed waivers: an operator's word that one guest's protection does not count for some operations.
//!
//! A waiver lifts protection and nothing else. It never stands in for the second person.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::facts::Vmid;
use crate::json::{At, Document, FileProblem, Findings, Warning};
use crate::names::{escape_untrusted, is_scope_word, name_fault};
use crate::time::parse_rfc3339;

/// The longest reason or ticket accepted, in characters.
const MAX_REASON: usize = 500;
/// A waiver that runs longer than this is loaded with a warning.
const LONG: SignedDuration = SignedDuration::from_hours(90 * 24);

/// One waiver.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiver {
    until: Timestamp,
    reason: String,
    ticket: Option<String>,
    ops: BTreeSet<String>,
    principal: Option<String>,
    cluster: String,
    vmid: Vmid,
}

impl Waiver {
    /// The guest's cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The guest.
    pub fn vmid(&self) -> Vmid {
        self.vmid
    }

    /// The instant from which the waiver no longer counts.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// Why it was written. Escaped when it was loaded: safe to show on a terminal or in a preview.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The ticket it belongs to, escaped like the reason.
    pub fn ticket(&self) -> Option<&str> {
        self.ticket.as_deref()
    }

    /// The operations it covers.
    pub fn ops(&self) -> impl Iterator<Item = &str> {
        self.ops.iter().map(String::as_str)
    }

    /// The one token that may plan under it; `None` for any.
    pub fn principal(&self) -> Option<&str> {
        self.principal.as_deref()
    }

    /// Whether it covers this operation, planned by this token, at this instant; or why not.
    fn covers(&self, op: &str, planner: &str, now: Timestamp) -> Result<(), &'static str> {
        if now >= self.until {
            Err("it has expired")
        } else if !self.ops.contains(op) {
            Err("it does not name this operation")
        } else if self.principal.as_deref().is_some_and(|principal| principal != planner) {
            Err("it is bound to another token")
        } else {
            Ok(())
        }
    }
}

/// All loaded waivers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WaiverSet {
    // Per guest the one that runs longest first, so that which of two is used never depends on file order.
    // Shared, so that a permit can keep the one that was used.
    by_cluster: BTreeMap<String, BTreeMap<Vmid, Vec<Arc<Waiver>>>>,
}

impl WaiverSet {
    /// No waivers: what a server without a waiver file has.
    pub fn empty() -> WaiverSet {
        WaiverSet::default()
    }

    /// Reads a waiver file, version 1.
    ///
    /// `is_known_op` tells the operation words of the embedding server; `now` is only used to warn. A
    /// misspelled operation, a waiver that has expired and one that runs longer than 90 days load with a
    /// warning.
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn parse(
        bytes: &[u8],
        is_known_op: impl Fn(&str) -> bool,
        now: Timestamp,
    ) -> Result<(WaiverSet, Vec<Warning>), Vec<FileProblem>> {
        let document = Document::parse(bytes).map_err(|problem| vec![problem])?;
        let mut findings = document.findings();
        let set = read_file(&document, &mut findings, &is_known_op, now);
        findings.into_result(set)
    }

    /// Every waiver, by cluster, guest and end.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Waiver>> {
        self.by_cluster.values().flat_map(BTreeMap::values).flatten()
    }

    /// The waiver that covers this operation on this guest, planned by this token, at this instant.
    pub fn find(
        &self,
        cluster: &str,
        vmid: Vmid,
        op: &str,
        planner: &str,
        now: Timestamp,
    ) -> Option<&Arc<Waiver>> {
        self.for_guest(cluster, vmid).iter().find(|waiver| waiver.covers(op, planner, now).is_ok())
    }

    /// Why the guest's waivers do not cover the operation, if it has any.
    pub(crate) fn near_miss(
        &self,
        cluster: &str,
        vmid: Vmid,
        op: &str,
        planner: &str,
        now: Timestamp,
    ) -> Option<&'static str> {
        self.for_guest(cluster, vmid).iter().find_map(|waiver| waiver.covers(op, planner, now).err())
    }

    fn for_guest(&self, cluster: &str, vmid: Vmid) -> &[Arc<Waiver>] {
        self.by_cluster
            .get(cluster)
            .and_then(|guests| guests.get(&vmid))
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

impl FromIterator<Waiver> for WaiverSet {
    fn from_iter<I: IntoIterator<Item = Waiver>>(waivers: I) -> Self {
        let mut set = WaiverSet::default();
        for waiver in waivers {
            let guests = set.by_cluster.entry(waiver.cluster.clone()).or_default();
            guests.entry(waiver.vmid).or_default().push(Arc::new(waiver));
        }
        for waivers in set.by_cluster.values_mut().flat_map(BTreeMap::values_mut) {
            waivers.sort_by(|a, b| b.cmp(a));
        }
        set
    }
}

fn read_file(
    document: &Document<'_>,
    findings: &mut Findings<'_>,
    is_known_op: &dyn Fn(&str) -> bool,
    now: Timestamp,
) -> Option<WaiverSet> {
    let mut fields = document.root().fields(findings)?;
    crate::json::require_version_1(&mut fields, findings);
    let waivers = fields.required("waivers", findings);
    fields.finish(findings);
    let waivers = waivers?.items(findings)?;
    Some(waivers.iter().filter_map(|at| read_waiver(at, findings, is_known_op, now)).collect())
}

fn read_waiver(
    at: &At<'_>,
    findings: &mut Findings<'_>,
    is_known_op: &dyn Fn(&str) -> bool,
    now: Timestamp,
) -> Option<Waiver> {
    let mut fields = at.fields(findings)?;
    let cluster = fields.required("cluster", findings);
    let vmid = fields.required("vmid", findings);
    let until = fields.required("until", findings);
    let reason = fields.required("reason", findings);
    let ticket = fields.optional("ticket");
    let ops = fields.required("ops", findings);
    let principal = fields.optional("principal");
    fields.finish(findings);

    // Read every field before giving up on one, so that all their problems are reported.
    let cluster = cluster.and_then(|at| read_cluster(&at, findings));
    let vmid = vmid.and_then(|at| read_vmid(&at, findings));
    let until = until.and_then(|at| read_until(&at, findings, now));
    let reason = reason.and_then(|at| read_prose(&at, findings));
    let ticket = ticket.map(|at| read_prose(&at, findings));
    let ops = ops.and_then(|at| read_ops(&at, findings, is_known_op));
    let principal = principal.map(|at| read_principal(&at, findings));
    Some(Waiver {
        cluster: cluster?,
        vmid: vmid?,
        until: until?,
        reason: reason?,
        // A field that is there and wrong drops the waiver; it must not become one without the field.
        ticket: ticket.map_or(Some(None), |ticket| ticket.map(Some))?,
        ops: ops?,
        principal: principal.map_or(Some(None), |principal| principal.map(Some))?,
    })
}

fn read_cluster(at: &At<'_>, findings: &mut Findings<'_>) -> Option<String> {
    let text = at.text(findings)?;
    if !is_scope_word(text) {
        findings.problem(at, "expected one cluster's name (letters, digits, `_`, `-`, `.`)");
        return None;
    }
    Some(text.to_owned())
}

fn read_vmid(at: &At<'_>, findings: &mut Findings<'_>) -> Option<Vmid> {
    let number = at.number(findings)?;
    let vmid = u32::try_from(number).ok().and_then(Vmid::new);
    if vmid.is_none() {
        findings.problem(at, "expected a guest number from 100 to 999999999");
    }
    vmid
}

fn read_until(at: &At<'_>, findings: &mut Findings<'_>, now: Timestamp) -> Option<Timestamp> {
    match parse_rfc3339(at.text(findings)?) {
        Ok(until) => {
            if until <= now {
                findings.warn(at, "this waiver has expired and lifts nothing; take it out");
            } else if until.duration_since(now) > LONG {
                findings
                    .warn(at, "this waiver runs for more than 90 days; shorten it and renew it when needed");
            }
            Some(until)
        }
        Err(message) => {
            findings.problem(at, message);
            None
        }
    }
}

fn read_prose(at: &At<'_>, findings: &mut Findings<'_>) -> Option<String> {
    let text = at.text(findings)?;
    if text.trim().is_empty() {
        findings.problem(at, "must not be empty: whoever approves reads it");
        return None;
    }
    if text.chars().count() > MAX_REASON {
        findings.problem(at, format!("must not be longer than {MAX_REASON} characters"));
        return None;
    }
    Some(escape_untrusted(text, MAX_REASON))
}

fn read_ops(
    at: &At<'_>,
    findings: &mut Findings<'_>,
    is_known_op: &dyn Fn(&str) -> bool,
) -> Option<BTreeSet<String>> {
    let items = at.items(findings)?;
    if items.is_empty() {
        findings.problem(at, "must name at least one operation: a waiver that covers none is a mistake");
        return None;
    }
    let mut ops = BTreeSet::new();
    for item in &items {
        let Some(op) = item.text(findings) else { continue };
        if !is_known_op(op) {
            let op = escape_untrusted(op, 64);
            findings.warn(item, format!("`{op}` is no operation of this server: it matches nothing"));
        }
        ops.insert(op.to_owned());
    }
    Some(ops)
}

fn read_principal(at: &At<'_>, findings: &mut Findings<'_>) -> Option<String> {
    let text = at.text(findings)?;
    match name_fault(text) {
        None => Some(text.to_owned()),
        Some(fault) => {
            findings.problem(at, format!("a token's name {fault}"));
            None
        }
    }
}
