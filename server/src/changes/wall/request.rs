//! One change of a firewall, from what a planner says to the request that is sent.

use std::collections::{BTreeMap, BTreeSet};

use changeset::Step;
use proxmox_api::{
    AliasName, Cidr, FirewallOption, FirewallOptionsUpdate, IpSetMember, IpSetName, LogLevel, NewRule,
    Policy, RuleAction, SecurityGroup,
};

use super::{Listed, texts};

/// What is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Object {
    /// A rule, by position.
    Rule,
    /// The options.
    Options,
    /// An alias.
    Alias,
    /// A set of addresses.
    IpSet,
    /// A member of a set.
    Entry,
    /// A security group.
    Group,
}

/// How it is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Made.
    Create,
    /// Changed.
    Update,
    /// Removed.
    Delete,
    /// Put before another position.
    Move,
}

/// A change, as its planner says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WallChange {
    /// What.
    pub object: Object,
    /// How.
    pub verb: Verb,
    /// A rule's position.
    pub pos: Option<u32>,
    /// The position that a moved rule is put before.
    pub before: Option<u32>,
    /// The name of an alias, a set or a group.
    pub name: Option<String>,
    /// The address of an alias, or a set's member.
    pub cidr: Option<String>,
    /// Fields to set, by PVE's names.
    pub set: BTreeMap<String, String>,
    /// Fields to unset.
    pub delete: BTreeSet<String>,
}

/// A change with everything that is there taken into account.
#[derive(Debug, Clone, Default)]
pub(super) struct Resolved {
    pub params: Vec<(String, String)>,
    pub before: Option<BTreeMap<String, String>>,
    pub after: Option<BTreeMap<String, String>>,
}

const RULE_FIELDS: &[&str] = &[
    "action",
    "comment",
    "dest",
    "dport",
    "enable",
    "icmp-type",
    "iface",
    "log",
    "macro",
    "proto",
    "source",
    "sport",
    "type",
];

impl WallChange {
    /// The operation's name: what waivers name.
    pub fn op(&self) -> &'static str {
        use {Object as O, Verb as V};
        match (self.object, self.verb) {
            (O::Rule, V::Create) => "firewall_rule_create",
            (O::Rule, V::Update) => "firewall_rule_update",
            (O::Rule, V::Delete) => "firewall_rule_delete",
            (O::Rule, V::Move) => "firewall_rule_move",
            (O::Options, _) => "firewall_options_update",
            (O::Alias, V::Create) => "firewall_alias_create",
            (O::Alias, V::Delete) => "firewall_alias_delete",
            (O::Alias, _) => "firewall_alias_update",
            (O::IpSet, V::Create) => "firewall_ipset_create",
            (O::IpSet, _) => "firewall_ipset_delete",
            (O::Entry, V::Create) => "firewall_ipset_entry_create",
            (O::Entry, V::Delete) => "firewall_ipset_entry_delete",
            (O::Entry, _) => "firewall_ipset_entry_update",
            (O::Group, V::Create) => "firewall_group_create",
            (O::Group, _) => "firewall_group_delete",
        }
    }

    /// Whether the object knows the verb.
    pub fn makes_sense(&self) -> bool {
        use {Object as O, Verb as V};
        match self.object {
            O::Rule => true,
            O::Options => self.verb == V::Update,
            O::Alias | O::Entry => self.verb != V::Move,
            O::IpSet | O::Group => matches!(self.verb, V::Create | V::Delete),
        }
    }

    /// In words.
    pub(super) fn in_words(&self) -> String {
        let verb = match self.verb {
            Verb::Create => "create",
            Verb::Update => "change",
            Verb::Delete => "delete",
            Verb::Move => "move",
        };
        let name = self.name.as_deref().unwrap_or_default();
        let what = match self.object {
            Object::Rule => match (self.pos, self.before) {
                (Some(pos), Some(before)) => format!("rule {pos} before rule {before}"),
                (Some(pos), None) => format!("rule {pos}"),
                _ => "a rule at the top".to_owned(),
            },
            Object::Options => "the options".to_owned(),
            Object::Alias => format!("alias {name}"),
            Object::IpSet => format!("IP set {name}"),
            Object::Entry => format!("{} in IP set {name}", self.cidr.as_deref().unwrap_or_default()),
            Object::Group => format!("security group {name}"),
        };
        format!("{verb} {what} in the firewall")
    }

    /// The parameters that name what is changed, before anything was looked at.
    pub(super) fn naming(&self) -> Vec<(&'static str, String)> {
        self.name.iter().map(|name| ("name", name.clone())).collect()
    }

    /// The change as a step holds it.
    ///
    /// # Errors
    /// In words, what keeps it from working.
    pub(super) fn resolved(&self, now: &Listed) -> Result<Resolved, String> {
        match self.object {
            Object::Rule => self.rule(now),
            Object::Options => self.options(now),
            _ => self.named(now),
        }
    }

    fn rule(&self, now: &Listed) -> Result<Resolved, String> {
        if let Some(key) =
            self.set.keys().chain(&self.delete).find(|key| !RULE_FIELDS.contains(&key.as_str()))
        {
            return Err(format!(
                "`{}` is no field of a rule; expected one of {}",
                key.escape_debug(),
                RULE_FIELDS.join(", ")
            ));
        }
        let at = |pos: Option<u32>| -> Result<BTreeMap<String, String>, String> {
            let pos = pos.ok_or_else(|| "`pos` is missing: which rule, counted from 0".to_owned())?;
            let row = usize::try_from(pos).ok().and_then(|pos| now.rows.get(pos));
            row.map(texts).ok_or_else(|| format!("there is no rule {pos}; there are {}", now.rows.len()))
        };
        let params = |more: Vec<(&str, Option<u32>)>, fields: &BTreeMap<String, String>| {
            let numbers = more.into_iter().filter_map(|(key, n)| Some((key.to_owned(), n?.to_string())));
            numbers.chain(fields.iter().map(|(k, v)| (format!("field.{k}"), v.clone()))).collect()
        };
        let none = BTreeMap::new();
        Ok(match self.verb {
            Verb::Create => {
                let mut fields = self.set.clone();
                // PVE's own default is a rule that does nothing.
                fields.entry("enable".to_owned()).or_insert_with(|| "1".to_owned());
                Resolved { params: params(vec![], &fields), before: None, after: Some(fields) }
            }
            Verb::Update => {
                let before = at(self.pos)?;
                let mut after = before.clone();
                after.extend(self.set.clone());
                after.retain(|key, _| !self.delete.contains(key));
                if after == before {
                    return Err("the rule says all of this already".to_owned());
                }
                after.retain(|key, _| RULE_FIELDS.contains(&key.as_str()));
                Resolved {
                    params: params(vec![("pos", self.pos)], &after),
                    before: Some(before),
                    after: Some(after),
                }
            }
            Verb::Delete => Resolved {
                before: Some(at(self.pos)?),
                params: params(vec![("pos", self.pos)], &none),
                after: None,
            },
            Verb::Move => {
                let rule = at(self.pos)?;
                let before =
                    self.before.ok_or_else(|| "`before` is missing: which position to move to".to_owned())?;
                if usize::try_from(before).map_or(true, |before| before > now.rows.len()) {
                    return Err(format!("there is no position {before}; there are {} rules", now.rows.len()));
                }
                let params = params(vec![("pos", self.pos), ("before", self.before)], &none);
                Resolved { params, before: Some(rule), after: None }
            }
        })
    }

    fn options(&self, now: &Listed) -> Result<Resolved, String> {
        if self.set.is_empty() && self.delete.is_empty() {
            return Err("name an option in `set` or `delete`".to_owned());
        }
        let before = now.rows.first().map(texts).unwrap_or_default();
        let mut after = before.clone();
        after.extend(self.set.clone());
        after.retain(|key, _| !self.delete.contains(key));
        if after == before {
            return Err("the options say all of this already".to_owned());
        }
        let set = self.set.iter().map(|(k, v)| (format!("field.{k}"), v.clone()));
        let unset = self.delete.iter().map(|key| (format!("unset.{key}"), "1".to_owned()));
        Ok(Resolved { params: set.chain(unset).collect(), before: Some(before), after: Some(after) })
    }

    fn named(&self, now: &Listed) -> Result<Resolved, String> {
        let name = self.name.clone().ok_or_else(|| "`name` is missing".to_owned())?;
        let (key, wanted) = match self.object {
            Object::Entry => {
                ("cidr", self.cidr.clone().ok_or_else(|| "`cidr` is missing: which member".to_owned())?)
            }
            Object::Group => ("group", name.clone()),
            _ => ("name", name.clone()),
        };
        if let Some(key) = self.set.keys().find(|key| !["comment", "nomatch"].contains(&key.as_str())) {
            return Err(format!(
                "`{}` is no field here; expected comment or, of a set's member, nomatch",
                key.escape_debug()
            ));
        }
        let there = now.rows.iter().map(texts).find(|row| row.get(key) == Some(&wanted));
        match (self.verb, &there) {
            (Verb::Create, Some(_)) => return Err(format!("{wanted} is there already")),
            (Verb::Update | Verb::Delete, None) => return Err(format!("there is no {wanted}")),
            _ => {}
        }
        let mut params = vec![("name".to_owned(), name)];
        let mut after = BTreeMap::from([(key.to_owned(), wanted)]);
        if self.object == Object::Alias && self.verb != Verb::Delete {
            let kept = there.as_ref().and_then(|row| row.get("cidr")).cloned();
            let cidr =
                self.cidr.clone().or(kept).ok_or_else(|| "`cidr` is missing: the address".to_owned())?;
            after.insert("cidr".to_owned(), cidr);
        }
        let fields = self.set.iter().map(|(k, v)| (k.clone(), v.clone()));
        let kept =
            there.iter().flatten().filter(|(key, _)| self.verb == Verb::Update && key.as_str() == "comment");
        let mut all: BTreeMap<String, String> = kept.map(|(k, v)| (k.clone(), v.clone())).collect();
        all.extend(fields);
        all.retain(|key, _| !self.delete.contains(key));
        after.extend(all);
        if self.verb == Verb::Delete {
            params.extend(after.get("cidr").map(|cidr| ("cidr".to_owned(), cidr.clone())));
            return Ok(Resolved { params, before: there, after: None });
        }
        params.extend(
            after
                .iter()
                .filter(|(key, _)| !["name", "group"].contains(&key.as_str()))
                .map(|(k, v)| (k.clone(), v.clone())),
        );
        Ok(Resolved { params, before: there, after: Some(after) })
    }
}

/// The request to send.
#[derive(Debug)]
pub(super) enum Request {
    AddRule(NewRule),
    ReplaceRule(u32, NewRule),
    MoveRule(u32, u32),
    DeleteRule(u32),
    Options(FirewallOptionsUpdate),
    CreateAlias(AliasName, Cidr, Option<String>),
    UpdateAlias(AliasName, Cidr, Option<String>),
    DeleteAlias(AliasName),
    CreateIpSet(IpSetName, Option<String>),
    DeleteIpSet(IpSetName),
    AddEntry(IpSetName, IpSetMember, bool, Option<String>),
    UpdateEntry(IpSetName, IpSetMember, bool, Option<String>),
    DeleteEntry(IpSetName, IpSetMember),
    CreateGroup(SecurityGroup, Option<String>),
    DeleteGroup(SecurityGroup),
}

impl Request {
    /// Whether the request can go without PVE's digest.
    pub(super) fn needs_no_digest(&self) -> bool {
        !matches!(
            self,
            Self::ReplaceRule(..) | Self::MoveRule(..) | Self::DeleteRule(_) | Self::UpdateAlias(..)
        )
    }
}

/// The request that a step stands for.
pub(super) fn request_of(step: &Step) -> Result<Request, String> {
    let text = |name: &str| step.params.get(name).cloned().ok_or_else(|| format!("`{name}` is missing"));
    let comment = step.params.get("comment").cloned();
    let nomatch = step.params.get("nomatch").is_some_and(|value| value == "1");
    let number = |name: &str| parsed::<u32>(name, &text(name)?);
    let group = || parsed("name", &text("name")?);
    let alias = || parsed("name", &text("name")?);
    let set = || parsed("name", &text("name")?);
    Ok(match step.op.as_str() {
        "firewall_rule_create" => Request::AddRule(rule_of(step)?),
        "firewall_rule_update" => Request::ReplaceRule(number("pos")?, rule_of(step)?),
        "firewall_rule_move" => Request::MoveRule(number("pos")?, number("before")?),
        "firewall_rule_delete" => Request::DeleteRule(number("pos")?),
        "firewall_options_update" => Request::Options(options_of(step)?),
        "firewall_alias_create" => Request::CreateAlias(alias()?, parsed("cidr", &text("cidr")?)?, comment),
        "firewall_alias_update" => Request::UpdateAlias(alias()?, parsed("cidr", &text("cidr")?)?, comment),
        "firewall_alias_delete" => Request::DeleteAlias(alias()?),
        "firewall_ipset_create" => Request::CreateIpSet(set()?, comment),
        "firewall_ipset_delete" => Request::DeleteIpSet(set()?),
        "firewall_ipset_entry_create" => {
            Request::AddEntry(set()?, parsed("cidr", &text("cidr")?)?, nomatch, comment)
        }
        "firewall_ipset_entry_update" => {
            Request::UpdateEntry(set()?, parsed("cidr", &text("cidr")?)?, nomatch, comment)
        }
        "firewall_ipset_entry_delete" => Request::DeleteEntry(set()?, parsed("cidr", &text("cidr")?)?),
        "firewall_group_create" => Request::CreateGroup(group()?, comment),
        "firewall_group_delete" => Request::DeleteGroup(group()?),
        op => return Err(format!("this server cannot do {op}")),
    })
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("`{name}`: {error}"))
}

/// The `field.` parameters of a step.
fn fields(step: &Step) -> BTreeMap<&str, &str> {
    step.params
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("field.")?, value.as_str())))
        .collect()
}

fn flag(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "1" => Ok(true),
        "0" => Ok(false),
        _ => Err(format!("`{name}`: expected 0 or 1")),
    }
}

fn policy(name: &str, text: &str) -> Result<Policy, String> {
    match text {
        "ACCEPT" => Ok(Policy::Accept),
        "DROP" => Ok(Policy::Drop),
        "REJECT" => Ok(Policy::Reject),
        _ => Err(format!("`{name}`: expected ACCEPT, DROP or REJECT")),
    }
}

fn level(name: &str, text: &str) -> Result<LogLevel, String> {
    use LogLevel as L;
    [L::Emerg, L::Alert, L::Crit, L::Err, L::Warning, L::Notice, L::Info, L::Debug, L::Nolog]
        .into_iter()
        .find(|level| level.to_string() == text)
        .ok_or_else(|| format!("`{name}`: expected a log level such as info or nolog"))
}

fn rule_of(step: &Step) -> Result<NewRule, String> {
    let fields = fields(step);
    let action =
        *fields.get("action").ok_or("`action` is missing: ACCEPT, DROP, REJECT or a security group")?;
    let action = match *fields.get("type").ok_or("`type` is missing: in, out, forward or group")? {
        "in" => RuleAction::In(policy("action", action)?),
        "out" => RuleAction::Out(policy("action", action)?),
        "forward" => RuleAction::Forward(policy("action", action)?),
        "group" => RuleAction::Group(parsed("action", action)?),
        _ => return Err("`type`: expected in, out, forward or group".to_owned()),
    };
    let text = |name: &str| fields.get(name).map(|text| (*text).to_owned());
    let rule = NewRule {
        enable: fields.get("enable").map_or(Ok(false), |text| flag("enable", text))?,
        macro_name: text("macro"),
        proto: text("proto"),
        source: text("source"),
        dest: text("dest"),
        sport: text("sport"),
        dport: text("dport"),
        icmp_type: text("icmp-type"),
        iface: text("iface"),
        log: fields.get("log").map(|text| level("log", text)).transpose()?,
        comment: text("comment"),
        ..NewRule::new(action)
    };
    if (rule.sport.is_some() || rule.dport.is_some()) && rule.proto.is_none() && rule.macro_name.is_none() {
        return Err("`proto` is missing: ports need tcp or udp".to_owned());
    }
    Ok(rule)
}

fn options_of(step: &Step) -> Result<FirewallOptionsUpdate, String> {
    use FirewallOption as O;
    let mut update = FirewallOptionsUpdate::default();
    for (name, text) in fields(step) {
        match name {
            "enable" => update.enable = Some(flag(name, text)?),
            "policy_in" => update.policy_in = Some(policy(name, text)?),
            "policy_out" => update.policy_out = Some(policy(name, text)?),
            "policy_forward" => update.policy_forward = Some(policy(name, text)?),
            "log_level_in" => update.log_level_in = Some(level(name, text)?),
            "log_level_out" => update.log_level_out = Some(level(name, text)?),
            "dhcp" => update.dhcp = Some(flag(name, text)?),
            "ndp" => update.ndp = Some(flag(name, text)?),
            "radv" => update.radv = Some(flag(name, text)?),
            "ipfilter" => update.ipfilter = Some(flag(name, text)?),
            "macfilter" => update.macfilter = Some(flag(name, text)?),
            _ => return Err(format!("`{}` is no option that can be changed", name.escape_debug())),
        }
    }
    for name in step.params.keys().filter_map(|key| key.strip_prefix("unset.")) {
        update.unset.push(match name {
            "enable" => O::Enable,
            "policy_in" => O::PolicyIn,
            "policy_out" => O::PolicyOut,
            "policy_forward" => O::PolicyForward,
            "log_level_in" => O::LogLevelIn,
            "log_level_out" => O::LogLevelOut,
            "dhcp" => O::Dhcp,
            "ndp" => O::Ndp,
            "radv" => O::Radv,
            "ipfilter" => O::Ipfilter,
            "macfilter" => O::Macfilter,
            _ => return Err(format!("`{}` is no option that can be unset", name.escape_debug())),
        });
    }
    Ok(update)
}

/// Whether the list is as the step makes it, where that can be told.
pub(super) fn is_done(step: &Step, now: &Listed) -> bool {
    let param = |name: &str| step.params.get(name);
    let row = |key: &str, value: Option<&String>| {
        now.rows.iter().map(texts).find(|row| row.get(key) == value && value.is_some())
    };
    let has_cidr =
        |row: Option<BTreeMap<String, String>>| row.is_some_and(|row| row.get("cidr") == param("cidr"));
    match step.op.as_str() {
        "firewall_options_update" => {
            let now = now.rows.first().map(texts).unwrap_or_default();
            fields(step).iter().all(|(key, value)| now.get(*key).map(String::as_str) == Some(*value))
                && step
                    .params
                    .keys()
                    .filter_map(|key| key.strip_prefix("unset."))
                    .all(|key| !now.contains_key(key))
        }
        "firewall_alias_create" | "firewall_alias_update" => has_cidr(row("name", param("name"))),
        "firewall_alias_delete" | "firewall_ipset_delete" => row("name", param("name")).is_none(),
        "firewall_ipset_create" => row("name", param("name")).is_some(),
        "firewall_ipset_entry_create" => row("cidr", param("cidr")).is_some(),
        "firewall_ipset_entry_delete" => row("cidr", param("cidr")).is_none(),
        "firewall_group_create" => row("group", param("name")).is_some(),
        "firewall_group_delete" => row("group", param("name")).is_none(),
        _ => false,
    }
}
