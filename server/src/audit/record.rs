//! What one audit record says.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Longest text kept in one field, in bytes; the rest is cut and the cut is recorded.
const MAX_TEXT: usize = 4096;
/// Most entries kept in one map or list.
const MAX_ENTRIES: usize = 64;
/// Deepest nesting kept below `details`.
const MAX_DEPTH: usize = 6;
/// Most texts of a record that may be [`MAX_TEXT`] long; keeps a line below about 256 KiB.
const MAX_TOTAL: usize = 32 * 1024;

/// Declares the events and their names in one place.
macro_rules! events {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// The kind of event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Event {
            /// Every event, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name in the `event` member.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

events! {
    /// First record of a chain; `details.chain` is its random id.
    Genesis = "genesis",
    /// First record of a further file of the same chain.
    Continue = "continue",
    /// The process opened an existing file again.
    Restart = "restart",
    /// A torn last line was cut off; `details` say how much.
    Repair = "repair",
    /// A poisoned trail was opened again.
    Recovered = "audit.recovered",
    /// The server began to serve.
    Start = "start",
    /// The server stopped in order.
    Stop = "stop",
    /// Configuration was read again; `details` hold what changed, or why nothing did.
    ConfigReload = "config.reload",
    /// A call that changes nothing, or one that was refused.
    ToolCall = "tool.call",
    /// A mutation is about to be sent; durable before it is.
    ToolAttempt = "tool.attempt",
    /// How that mutation ended, as far as known.
    ToolOutcome = "tool.outcome",
    /// A bearer was missing, malformed, unknown, wrong or expired.
    AuthFailure = "auth.failure",
    /// Bearer failures that were counted instead of written one by one.
    AuthFailureSummary = "auth.failure_summary",
    /// An upload link was minted.
    TransferMint = "transfer.mint",
    /// An upload link was presented and won; the bytes are about to move.
    TransferAttempt = "transfer.attempt",
    /// How an upload ended.
    TransferUpload = "transfer.upload",
    /// How a download from a guest ended.
    TransferDownload = "transfer.download",
    /// How a fetch by the server into a guest ended.
    TransferFetch = "transfer.fetch",
    /// A spent link was presented again: an alert.
    TransferLinkReuse = "transfer.link_reuse",
    /// A link was voided: its minter or its guest is no longer what it was.
    TransferLinkVoid = "transfer.link_void",
    /// A node's SSH host key is unknown, changed or revoked.
    HostKeyMismatch = "ssh.hostkey_mismatch",
    /// A change set was planned.
    ChangePlan = "change.plan",
    /// A change set was approved.
    ChangeApprove = "change.approve",
    /// A change set was rejected.
    ChangeReject = "change.reject",
    /// A change set was cancelled by its planner.
    ChangeCancel = "change.cancel",
    /// A change set ran out of time.
    ChangeExpire = "change.expire",
    /// A step of a change set is about to be sent; durable before it is.
    ChangeAttempt = "change.attempt",
    /// How a step, or the whole set, ended.
    ChangeOutcome = "change.outcome",
    /// A set that was being applied when the server stopped was looked up.
    ChangeRecover = "change.recover",
    /// A person settled a set whose outcome was unknown.
    ChangeResolve = "change.resolve",
    /// A stored preview is not the one that was approved.
    ChangePreviewMismatch = "change.preview_mismatch",
    /// A waiver or lab mode lifted a guest's protection.
    ProtectionLifted = "protection.lifted",
    /// The change-set store was found to be older than this trail.
    StateRollback = "state.rollback",
    /// A person accepted a store that was restored from an older copy.
    StateRollbackAcknowledged = "state.rollback_acknowledged",
    /// The change-set store refuses writes.
    StorePoisoned = "store.poisoned",
}

/// Whether the event went ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Decision {
    /// It was allowed.
    Allow,
    /// It was refused.
    Deny,
}

/// Named values. Most names are the program's own.
type Named = BTreeMap<Cow<'static, str>, Value>;

/// One event, as facts; sequence, times and hashes are added by the writer.
///
/// Members that the server has verified stand at the top level. What a client merely says about itself goes
/// into `asserted`. There is no member for a token, and none may be put into `details`.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    event: Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    person: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vmid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change_set: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protected: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    lab_mode: bool,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) asserted: Named,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) arguments: Named,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) details: Named,
    /// Where a text, list or map was cut: path to its full size.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    truncated: BTreeMap<String, usize>,
}

impl Record {
    /// A record that says only what happened.
    pub fn new(event: Event) -> Self {
        Self {
            event,
            request_id: None,
            principal: None,
            person: None,
            actor: None,
            peer: None,
            tool: None,
            cluster: None,
            node: None,
            vmid: None,
            change_set: None,
            link: None,
            upid: None,
            tier: None,
            protected: None,
            decision: None,
            code: None,
            reason: None,
            outcome: None,
            generation: None,
            lab_mode: false,
            asserted: BTreeMap::new(),
            arguments: BTreeMap::new(),
            details: BTreeMap::new(),
            truncated: BTreeMap::new(),
        }
    }

    /// What happened.
    pub fn event(&self) -> Event {
        self.event
    }

    /// The id that joins the records of one request.
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// The name of the token that acted (never the token).
    pub fn principal(mut self, name: impl Into<String>) -> Self {
        self.principal = Some(name.into());
        self
    }

    /// The person behind the token.
    pub fn person(mut self, person: impl Into<String>) -> Self {
        self.person = Some(person.into());
        self
    }

    /// Human, agent, or unattributed when never called.
    pub fn actor(mut self, kind: Option<authz::ActorKind>) -> Self {
        self.actor = kind.map(|kind| match kind {
            authz::ActorKind::Human => "human",
            authz::ActorKind::Agent => "agent",
        });
        self
    }

    /// The peer's address, without the port.
    pub fn peer(mut self, address: std::net::IpAddr) -> Self {
        self.peer = Some(match address {
            // Every call has one, and formatting it took half a microsecond of each.
            std::net::IpAddr::V4(v4) => dotted(v4),
            std::net::IpAddr::V6(v6) => v6.to_string(),
        });
        self
    }

    /// The tool that was called.
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// The cluster addressed.
    pub fn cluster(mut self, name: impl Into<String>) -> Self {
        self.cluster = Some(name.into());
        self
    }

    /// The node, once resolved.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// The guest addressed.
    pub fn vmid(mut self, vmid: u32) -> Self {
        self.vmid = Some(vmid);
        self
    }

    /// The change set.
    pub fn change_set(mut self, id: impl Into<String>) -> Self {
        self.change_set = Some(id.into());
        self
    }

    /// The public id of a link (never its token).
    pub fn link(mut self, id: impl Into<String>) -> Self {
        self.link = Some(id.into());
        self
    }

    /// The task PVE gave.
    pub fn upid(mut self, upid: impl Into<String>) -> Self {
        self.upid = Some(upid.into());
        self
    }

    /// The tool's tier.
    pub fn tier(mut self, tier: authz::Tier) -> Self {
        self.tier = Some(match tier {
            authz::Tier::Read => "read",
            authz::Tier::Low => "low",
            authz::Tier::Destructive => "destructive",
        });
        self
    }

    /// Whether the guest was protected when the decision was made.
    pub fn protected(mut self, protected: bool) -> Self {
        self.protected = Some(protected);
        self
    }

    /// It was allowed.
    pub fn allowed(mut self) -> Self {
        self.decision = Some(Decision::Allow);
        self
    }

    /// It was refused, with the code the caller saw and the reason the operator may see.
    pub fn denied(mut self, code: impl Into<String>, reason: impl Into<String>) -> Self {
        self.decision = Some(Decision::Deny);
        self.code = Some(code.into());
        self.reason = Some(reason.into());
        self
    }

    /// A reason without a refusal (a waiver, a ticket, why a set was cancelled).
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// How it ended: `ok`, `failed`, `unknown`, …
    pub fn outcome(mut self, outcome: impl Into<String>) -> Self {
        self.outcome = Some(outcome.into());
        self
    }

    /// The configuration generation the request ran under.
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = Some(generation);
        self
    }

    /// Stamps the record as made under `--lab-mode`.
    pub fn lab_mode(mut self, on: bool) -> Self {
        self.lab_mode = on;
        self
    }

    /// Something the client says about itself (`client_name`, `model_id`): recorded, never relied on.
    pub fn asserted(mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        self.asserted.insert(key.into(), value.into());
        self
    }

    /// One argument of the call. Subject to `--audit-redact`.
    pub fn argument(mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        self.arguments.insert(key.into(), value.into());
        self
    }

    /// A further fact that the server established.
    pub fn detail(mut self, key: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        self.details.insert(key.into(), value.into());
        self
    }

    /// Cuts what is too long and takes out anything shaped like a bearer token or a link.
    pub(super) fn bound(&mut self) {
        let mut budget = Budget { left: MAX_TOTAL, truncated: std::mem::take(&mut self.truncated) };
        for (name, field) in [
            ("request_id", &mut self.request_id),
            ("principal", &mut self.principal),
            ("person", &mut self.person),
            ("tool", &mut self.tool),
            ("cluster", &mut self.cluster),
            ("node", &mut self.node),
            ("change_set", &mut self.change_set),
            ("link", &mut self.link),
            ("upid", &mut self.upid),
            ("code", &mut self.code),
            ("reason", &mut self.reason),
            ("outcome", &mut self.outcome),
        ] {
            if let Some(text) = field {
                budget.text(name, text);
            }
        }
        for (name, map) in [
            ("details", &mut self.details),
            ("asserted", &mut self.asserted),
            ("arguments", &mut self.arguments),
        ] {
            if !budget.takes_as_it_is(map) {
                let whole = std::mem::take(map);
                let whole = whole.into_iter().map(|(key, value)| (key.into_owned(), value));
                let kept = budget.entries(name, whole, 1).into_iter();
                *map = kept.map(|(key, value)| (Cow::Owned(key), value)).collect();
            }
        }
        self.truncated = budget.truncated;
    }
}

fn dotted(address: std::net::Ipv4Addr) -> String {
    let mut text = String::with_capacity("255.255.255.255".len());
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.push('.');
        }
        for (least, unit) in [(100, 100), (10, 10), (0, 1)] {
            if octet >= least {
                text.push(char::from(b'0' + octet / unit % 10));
            }
        }
    }
    text
}

/// What is left of a record's allowance, and what was cut.
struct Budget {
    left: usize,
    truncated: BTreeMap<String, usize>,
}

impl Budget {
    fn cut(&mut self, path: &str, size: usize) {
        // A record cannot grow without bound through the notes about what was cut either.
        if self.truncated.len() < MAX_ENTRIES {
            self.truncated.insert(path.to_owned(), size);
        } else {
            self.truncated.insert("…".to_owned(), MAX_ENTRIES);
        }
    }

    fn text(&mut self, path: &str, text: &mut String) {
        scrub(text);
        let allowed = MAX_TEXT.min(self.left);
        if text.len() > allowed {
            self.cut(path, text.len());
            let mut end = allowed;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        self.left -= text.len();
    }

    /// Whether nothing in the map can need a cut or hold a secret: nearly every map of nearly every record. It is counted then.
    fn takes_as_it_is(&mut self, map: &Named) -> bool {
        let mut bytes = 0;
        let plain = map.len() <= MAX_ENTRIES
            && map.iter().all(|(key, value)| {
                bytes += key.len();
                let text = match value {
                    Value::Null | Value::Bool(_) | Value::Number(_) => "",
                    Value::String(text) => text,
                    Value::Array(_) | Value::Object(_) => return false,
                };
                bytes += text.len();
                text.len() <= MAX_TEXT
                    && key.len() <= MAX_TEXT
                    && !may_hold_secret(text)
                    && !may_hold_secret(key)
            });
        let fits = plain && bytes <= self.left;
        if fits {
            self.left -= bytes;
        }
        fits
    }

    fn entries(
        &mut self,
        path: &str,
        entries: impl ExactSizeIterator<Item = (String, Value)>,
        depth: usize,
    ) -> Vec<(String, Value)> {
        if entries.len() > MAX_ENTRIES {
            self.cut(path, entries.len());
        }
        let mut kept = Vec::new();
        for (mut key, mut value) in entries.take(MAX_ENTRIES) {
            self.text(&format!("{path}.(key)"), &mut key);
            let inner = format!("{path}.{}", key.chars().take(64).collect::<String>());
            self.value(&inner, &mut value, depth);
            kept.push((key, value));
        }
        kept
    }

    fn value(&mut self, path: &str, value: &mut Value, depth: usize) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => self.text(path, text),
            Value::Array(items) if depth < MAX_DEPTH => {
                if items.len() > MAX_ENTRIES {
                    self.cut(path, items.len());
                    items.truncate(MAX_ENTRIES);
                }
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(&format!("{path}.{index}"), item, depth + 1);
                }
            }
            Value::Object(map) if depth < MAX_DEPTH => {
                let whole = std::mem::take(map);
                let entries: Vec<_> = whole.into_iter().collect();
                *map = self.entries(path, entries.into_iter(), depth + 1).into_iter().collect();
            }
            Value::Array(_) | Value::Object(_) => {
                self.cut(path, 0);
                *value = Value::Null;
            }
        }
    }
}

/// What secrets begin with, and how many characters follow at least.
const SHAPES: &[(&str, usize)] = &[
    ("pxw_", 20),
    ("PVEAPIToken=", 1),
    ("/transfers/upload/", 20),
    ("/transfers/tus/", 20),
    ("/transfers/download/", 20),
    ("/transfers/storage/", 20),
];
/// The shortest text that can hold one, by [`SHAPES`].
const SHORTEST: usize = "PVEAPIToken=".len() + 1;

/// A rough look: never `false` for a text that holds one of [`SHAPES`].
fn may_hold_secret(text: &str) -> bool {
    // Each shape has one of these three characters.
    text.len() >= SHORTEST && text.bytes().any(|byte| matches!(byte, b'_' | b'=' | b'/'))
}

/// Takes bearer tokens and link tokens out of a text. Nothing should have put one there; this is the last of
/// several nets (`behaviour.md` §4: the token appears nowhere but in the mint answer).
fn scrub(text: &mut String) {
    if !may_hold_secret(text) {
        return;
    }
    for (prefix, at_least) in SHAPES {
        if text.len() < prefix.len() + at_least {
            continue;
        }
        let mut from = 0;
        while let Some(found) = text[from..].find(prefix) {
            let start = from + found + prefix.len();
            let length = text[start..]
                .bytes()
                .take_while(|b| b.is_ascii_alphanumeric() || b"-_=@!.".contains(b))
                .count();
            if length >= *at_least {
                text.replace_range(start..start + length, "[secret]");
            }
            from = start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_the_library_writes_it() {
        for octet in 0..=255 {
            for address in [[octet, 0, 9, 10], [1, octet, 100, 99], [255, 200, 0, octet]] {
                let address = std::net::Ipv4Addr::from(address);
                assert_eq!(dotted(address), address.to_string());
            }
        }
    }
}
