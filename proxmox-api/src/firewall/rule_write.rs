use std::fmt;

use super::{FirewallScope, rules::rule};
use crate::{
    client::Client,
    error::Error,
    ids::{Digest, SecurityGroup},
    wire::Form,
};

/// What happens to traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// It passes.
    Accept,
    /// It vanishes.
    Drop,
    /// It is turned down with an answer.
    Reject,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "ACCEPT",
            Self::Drop => "DROP",
            Self::Reject => "REJECT",
        })
    }
}

/// What a rule is for, and what it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleAction {
    /// Traffic coming in.
    In(Policy),
    /// Traffic going out.
    Out(Policy),
    /// Traffic passing through; clusters and nodes, PVE 8.3 and later.
    Forward(Policy),
    /// The rules of a security group. PVE does not check that there is one of the name.
    Group(SecurityGroup),
}

/// How much of a rule's traffic is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogLevel {
    /// `emerg`
    Emerg,
    /// `alert`
    Alert,
    /// `crit`
    Crit,
    /// `err`
    Err,
    /// `warning`
    Warning,
    /// `notice`
    Notice,
    /// `info`
    Info,
    /// `debug`
    Debug,
    /// `nolog`: nothing
    Nolog,
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Emerg => "emerg",
            Self::Alert => "alert",
            Self::Crit => "crit",
            Self::Err => "err",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Nolog => "nolog",
        })
    }
}

/// A rule to be written. What is `None` is not restricted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRule {
    /// What it is for, and what it does.
    pub action: RuleAction,
    /// Whether it is in force. Always sent: PVE's default is no.
    pub enable: bool,
    /// A ready-made combination of protocol and ports, `SSH`.
    pub macro_name: Option<String>,
    /// The protocol.
    pub proto: Option<String>,
    /// Addresses it comes from: addresses, networks and ranges of one family separated by commas, `+ipset`, or an
    /// alias as [`Client::firewall_refs`] spells it.
    pub source: Option<String>,
    /// Addresses it goes to.
    pub dest: Option<String>,
    /// Ports it comes from.
    pub sport: Option<String>,
    /// Ports it goes to, `80,443,8000:8100`.
    pub dport: Option<String>,
    /// The type of ICMP message.
    pub icmp_type: Option<String>,
    /// The interface; of a guest `net0`.
    pub iface: Option<String>,
    /// The log level.
    pub log: Option<LogLevel>,
    /// What it is for.
    pub comment: Option<String>,
}

impl NewRule {
    /// A rule that is in force and does this to all traffic.
    #[must_use]
    pub fn new(action: RuleAction) -> Self {
        Self {
            action,
            enable: true,
            macro_name: None,
            proto: None,
            source: None,
            dest: None,
            sport: None,
            dport: None,
            icmp_type: None,
            iface: None,
            log: None,
            comment: None,
        }
    }

    /// The fields that may be unset, by PVE's name.
    fn fields(&self) -> [(&'static str, Option<String>); 10] {
        [
            ("comment", self.comment.clone()),
            ("dest", self.dest.clone()),
            ("dport", self.dport.clone()),
            ("icmp-type", self.icmp_type.clone()),
            ("iface", self.iface.clone()),
            ("log", self.log.map(|level| level.to_string())),
            ("macro", self.macro_name.clone()),
            ("proto", self.proto.clone()),
            ("source", self.source.clone()),
            ("sport", self.sport.clone()),
        ]
    }

    fn form(&self) -> Result<Form, Error> {
        let ports = self.sport.is_some() || self.dport.is_some();
        if ports && self.proto.is_none() && self.macro_name.is_none() {
            return Err(Error::argument("proto", "ports without a protocol; set `tcp` or `udp`"));
        }
        let lengths = [("source", 1, 512), ("dest", 1, 512), ("iface", 2, 20), ("macro", 1, 128)];
        let (kind, action) = match &self.action {
            RuleAction::In(policy) => ("in", policy.to_string()),
            RuleAction::Out(policy) => ("out", policy.to_string()),
            RuleAction::Forward(policy) => ("forward", policy.to_string()),
            RuleAction::Group(group) => ("group", group.to_string()),
        };
        let mut form = Form::new().put("type", kind).put("action", action).put_flag("enable", self.enable);
        for (key, value) in self.fields() {
            let Some(value) = value else { continue };
            if value.is_empty() || value.chars().any(char::is_control) {
                return Err(Error::argument(key, "empty, or with control characters"));
            }
            let length = value.chars().count();
            if let Some((_, least, most)) = lengths.iter().find(|(name, _, _)| *name == key)
                && !(*least..=*most).contains(&length)
            {
                return Err(Error::argument(
                    key,
                    format!("{length} characters; PVE takes {least} to {most}"),
                ));
            }
            form = form.put(key, value);
        }
        Ok(form)
    }
}

impl Client {
    /// Puts a rule in front of the scope's others (`POST …/firewall/rules`, `POST /cluster/firewall/groups/{group}`;
    /// privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is answered. Positions of the others shift by one. The
    /// digest is that of the rules it was made for.
    ///
    /// # Errors
    /// See [`Error`]; [`Parameter`](crate::ErrorKind::Parameter) names an unknown alias, IP set or macro. Ports without
    /// a protocol are refused before anything is sent.
    pub async fn add_firewall_rule(
        &self,
        scope: &FirewallScope,
        new: &NewRule,
        digest: Option<&Digest>,
    ) -> Result<(), Error> {
        let form = new.form()?.put_some("digest", digest);
        self.post(scope.rules(), form).await?.done()
    }

    /// Makes the rule at a position exactly this one: what is not set is unset (`PUT …/firewall/rules/{pos}`;
    /// privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is answered. Positions shift, so the digest of the rules
    /// it was looked up in is required.
    ///
    /// # Errors
    /// See [`Error`]; [`Changed`](crate::ErrorKind::Changed) when the rules are others now.
    pub async fn replace_firewall_rule(
        &self,
        scope: &FirewallScope,
        pos: u32,
        new: &NewRule,
        digest: &Digest,
    ) -> Result<(), Error> {
        let fields = new.fields();
        let unset = fields.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| *key);
        let form = new.form()?.put_list("delete", unset).put("digest", digest);
        self.put(rule(scope, pos), form).await?.done()
    }

    /// Switches a rule on or off and leaves the rest of it (as [`Client::replace_firewall_rule`]).
    ///
    /// # Errors
    /// As for [`Client::replace_firewall_rule`].
    pub async fn enable_firewall_rule(
        &self,
        scope: &FirewallScope,
        pos: u32,
        enable: bool,
        digest: &Digest,
    ) -> Result<(), Error> {
        let form = Form::new().put_flag("enable", enable).put("digest", digest);
        self.put(rule(scope, pos), form).await?.done()
    }

    /// Moves a rule in front of the one that is at position `before` now, or to the end when that is the number of
    /// rules (as [`Client::replace_firewall_rule`]).
    ///
    /// # Errors
    /// As for [`Client::replace_firewall_rule`].
    pub async fn move_firewall_rule(
        &self,
        scope: &FirewallScope,
        pos: u32,
        before: u32,
        digest: &Digest,
    ) -> Result<(), Error> {
        let form = Form::new().put("moveto", before).put("digest", digest);
        self.put(rule(scope, pos), form).await?.done()
    }

    /// Deletes a rule (`DELETE …/firewall/rules/{pos}`; privileges: [`FirewallScope`]; PVE 7 to 9). Done when it is
    /// answered. Positions shift, so the digest of the rules it was looked up in is required.
    ///
    /// # Errors
    /// See [`Error`]; [`Changed`](crate::ErrorKind::Changed) when the rules are others now.
    pub async fn delete_firewall_rule(
        &self,
        scope: &FirewallScope,
        pos: u32,
        digest: &Digest,
    ) -> Result<(), Error> {
        self.delete(rule(scope, pos), Form::new().put("digest", digest)).await?.done()
    }
}
