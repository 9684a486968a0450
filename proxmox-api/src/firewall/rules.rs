use std::collections::BTreeMap;

use super::FirewallScope;
use crate::{
    client::Client,
    error::Error,
    ids::Digest,
    wire::{Field, Form, JsonMap, Listing, Path, Record},
};

/// A rule. What is not set is `None`; a rule with an odd field stays in the list, so that it is seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirewallRule {
    /// Its position, from 0; positions shift when a rule is added, moved or deleted.
    pub pos: Option<u32>,
    /// `in`, `out`, `forward`, or `group`, which puts a security group here.
    pub kind: Option<String>,
    /// `ACCEPT`, `DROP`, `REJECT`, or the name of the security group.
    pub action: Option<String>,
    /// Whether it is in force; a rule without the field is not.
    pub enable: Field<bool>,
    /// A ready-made combination of protocol and ports, `SSH`.
    pub macro_name: Option<String>,
    /// The protocol.
    pub proto: Option<String>,
    /// Addresses it comes from.
    pub source: Option<String>,
    /// Addresses it goes to.
    pub dest: Option<String>,
    /// Ports it comes from.
    pub sport: Option<String>,
    /// Ports it goes to.
    pub dport: Option<String>,
    /// The type of ICMP message.
    pub icmp_type: Option<String>,
    /// The interface.
    pub iface: Option<String>,
    /// The log level.
    pub log: Option<String>,
    /// What its maker wrote about it.
    pub comment: Option<String>,
    /// The digest of the whole list of rules, the same in each.
    pub digest: Option<Digest>,
    /// What PVE finds wrong with the rule, by field, such as an alias that is gone. Such a rule has no effect.
    pub errors: BTreeMap<String, String>,
    /// The whole entry as PVE sent it.
    pub json: JsonMap,
}

impl FirewallRule {
    fn read(row: &Record<'_>) -> Self {
        let errors = row.record("errors").map(|errors| {
            let text =
                |key: &str| errors.text(key).value().cloned().unwrap_or_else(|| "not valid".to_owned());
            errors.keys().map(|key| (key.to_owned(), text(key))).collect()
        });
        Self {
            pos: row.integer("pos").and_then(|pos| pos.try_into().ok()),
            kind: row.filled("type"),
            action: row.filled("action"),
            enable: row.flag("enable"),
            macro_name: row.filled("macro"),
            proto: row.filled("proto"),
            source: row.filled("source"),
            dest: row.filled("dest"),
            sport: row.filled("sport"),
            dport: row.filled("dport"),
            icmp_type: row.filled("icmp-type"),
            iface: row.filled("iface"),
            log: row.filled("log"),
            comment: row.filled("comment"),
            digest: row.id("digest"),
            errors: errors.unwrap_or_default(),
            json: row.json(),
        }
    }
}

/// `…/rules/{pos}`, or `…/groups/{group}/{pos}`.
pub(super) fn rule(scope: &FirewallScope, pos: u32) -> Path {
    scope.rules().number(pos)
}

impl Client {
    /// The rules of a scope in their order (`GET …/firewall/rules`, `GET /cluster/firewall/groups/{group}`;
    /// privileges: [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn firewall_rules(&self, scope: &FirewallScope) -> Result<Listing<FirewallRule>, Error> {
        self.read(scope.rules(), Form::new()).await?.list(|row| Some(FirewallRule::read(row)))
    }

    /// One rule (`GET …/firewall/rules/{pos}`; privileges: [`FirewallScope`]; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; [`NotFound`](crate::ErrorKind::NotFound) when there is no rule at the position.
    pub async fn firewall_rule(&self, scope: &FirewallScope, pos: u32) -> Result<FirewallRule, Error> {
        self.read(rule(scope, pos), Form::new()).await?.record(|row| Ok(FirewallRule::read(row)))
    }
}
