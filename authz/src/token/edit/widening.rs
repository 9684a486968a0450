//! Whether a change gives an entry rights it did not have.

use std::fmt;

use crate::facts::Vmid;
use crate::grant::{Grant, Selector};
use crate::principal::Principal;
use crate::scope::{Scope, Tier};

/// One right that a change adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Widening {
    /// A tool or scope; `*` for the wildcard.
    Tool(String),
    /// A cluster; `*` for all.
    Device(String),
    /// Guests that no selector held before.
    Guests(Selector),
    /// A tier.
    Action(Tier),
}

impl fmt::Display for Widening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Widening::Tool(name) => write!(f, "tool `{name}`"),
            Widening::Device(name) => write!(f, "cluster `{name}`"),
            Widening::Guests(selector) => write!(f, "guests `{selector}`"),
            Widening::Action(tier) => write!(f, "action `{tier}`"),
        }
    }
}

/// What `after` may that `before` may not; empty when the change only narrows.
///
/// `wildcard_reaches` tells the names that a tool wildcard reaches. Tags and pools are compared as words:
/// which guests carry them is not known here, so one that was not named before counts as wider, unless `*`
/// was.
pub fn widenings(
    before: &Principal,
    after: &Principal,
    wildcard_reaches: impl Fn(&str) -> bool,
) -> Vec<Widening> {
    let mut found = Vec::new();
    let (had, has) = (&before.tools, &after.tools);
    let reached = |name: &str| had.names(name) || (had.is_any() && wildcard_reaches(name));
    found.extend(added(had, has, reached).map(Widening::Tool));
    let (had, has) = (&before.clusters, &after.clusters);
    found.extend(added(had, has, |name| had.holds(name)).map(Widening::Device));
    found.extend(wider_grant(before.grant.as_ref(), after.grant.as_ref()));
    found
}

fn added(had: &Scope, has: &Scope, held: impl Fn(&str) -> bool) -> impl Iterator<Item = String> {
    let any = has.is_any() && !had.is_any();
    has.to_list().into_iter().filter(move |name| if name == "*" { any } else { !held(name) })
}

fn wider_grant(before: Option<&Grant>, after: Option<&Grant>) -> Vec<Widening> {
    // A grant without guests or without actions allows nothing, so nothing in it is a right.
    let full = |grant: &&Grant| !grant.guests().is_empty() && !grant.actions().is_empty();
    let Some(after) = after.filter(full) else { return Vec::new() };
    let before = before.filter(full);
    let had = before.map(Grant::guests).unwrap_or_default();
    let guests = after.guests().iter().filter(|selector| !covered(had, selector));
    let actions = after.actions().iter().filter(|tier| !before.is_some_and(|had| had.actions().holds(*tier)));
    guests.cloned().map(Widening::Guests).chain(actions.map(Widening::Action)).collect()
}

/// Whether `had` holds every guest that `selector` can match.
fn covered(had: &[Selector], selector: &Selector) -> bool {
    if had.contains(&Selector::Any) || had.contains(selector) {
        return true;
    }
    let Selector::Vmids { first, last } = selector else { return false };
    let mut ranges: Vec<(Vmid, Vmid)> = had
        .iter()
        .filter_map(|selector| match selector {
            Selector::Vmids { first, last } => Some((*first, *last)),
            _ => None,
        })
        .collect();
    ranges.sort_unstable();
    // The lowest number that no range so far holds.
    let mut next = first.value();
    for (start, end) in ranges {
        if start.value() > next {
            break;
        }
        next = next.max(end.value().saturating_add(1));
    }
    next > last.value()
}
