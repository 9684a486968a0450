//! One random policy and one call, for `authz` and for Cedar. The two encodings share the words and nothing else.
#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a harness: a policy that does not load is a fault of its own"
)]

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use authz::{
    GuestFacts, GuestKind, Known, Lookup, Overrides, Principal, Protection, ToolRule, Vmid, WaiverSet, admit,
    decide, sha256_entry,
};
use cedar_policy::{
    Authorizer, Context, Decision, Entities, Entity, EntityUid, PolicySet, Request, RestrictedExpression,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

const BEARER: &str = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE";
const TOOLS: [&str; 4] = ["*", "tool", "tools", "too"];
const DEVICES: [&str; 3] = ["*", "c1", "c2"];
const GUESTS: [&str; 8] =
    ["*", "vmid:600", "vmid:600-699", "vmid:650-999999999", "tag:a", "tag:ab", "pool:p", "pool:p/q"];
const TIERS: [&str; 3] = ["read", "low", "destructive"];
const TAGS: [&str; 7] = ["a", "A", "ab", "b", "Prot", "prot", "x y"];
const OPS: [&str; 2] = ["tool", "other"];
const TOKENS: [&str; 2] = ["me", "you"];
const VMIDS: [u32; 5] = [100, 600, 601, 699, 700];

/// A small random number generator (xorshift64*), so that a seed names a case for ever.
#[derive(Debug, Clone)]
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33
    }

    fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn some<T: Copy>(&mut self, from: &[T], percent: u64) -> Vec<T> {
        from.iter().copied().filter(|_| self.chance(percent)).collect()
    }
}

/// A waiver in plain words; its end in seconds from now.
#[derive(Debug, Clone)]
pub struct Waived {
    cluster: &'static str,
    vmid: u32,
    until: i64,
    ops: Vec<&'static str>,
    principal: Option<&'static str>,
}

/// One token, the protection of both clusters, waivers and the mode.
#[derive(Debug, Clone)]
pub struct Policy {
    tools: Vec<&'static str>,
    devices: Vec<&'static str>,
    grant: Option<(Vec<&'static str>, Vec<&'static str>)>,
    expires: Option<i64>,
    vmids: Vec<u32>,
    tags: Vec<&'static str>,
    waivers: Vec<Waived>,
    lab: bool,
}

/// One call about one guest. `None` is a fact that could not be read.
#[derive(Debug, Clone)]
pub struct Call {
    tier: &'static str,
    interrupts: bool,
    writes: bool,
    wildcard: bool,
    cluster: &'static str,
    vmid: u32,
    tags: Option<Vec<&'static str>>,
    pool: Option<Option<&'static str>>,
    flag: Option<bool>,
    op: &'static str,
    planner: &'static str,
}

impl Policy {
    /// A random one.
    pub fn random(random: &mut Random) -> Policy {
        let mut words = |from: &[&'static str], percent| {
            let mut list = random.some(from, percent);
            if list.is_empty() {
                list.push(random.pick(from));
            }
            list
        };
        let (tools, devices) = (words(&TOOLS, 50), words(&DEVICES, 60));
        let grant = random.chance(90).then(|| (random.some(&GUESTS, 30), random.some(&TIERS, 70)));
        let expires = random.chance(15).then(|| random.pick(&[-1, 0, 1]));
        let waivers = (0..random.below(5))
            .map(|_| Waived {
                cluster: random.pick(&DEVICES[1..]),
                vmid: random.pick(&VMIDS),
                until: random.pick(&[-1, 0, 1, 100]),
                ops: if random.chance(50) { vec![OPS[0]] } else { OPS.to_vec() },
                principal: random.chance(50).then(|| random.pick(&TOKENS)),
            })
            .collect();
        let (vmids, tags) = (random.some(&VMIDS, 20), random.some(&["PROT", "b"], 50));
        Policy { tools, devices, grant, expires, vmids, tags, waivers, lab: random.chance(15) }
    }
}

impl Call {
    /// A random one.
    pub fn random(random: &mut Random) -> Call {
        Call {
            tier: random.pick(&TIERS),
            interrupts: random.chance(30),
            writes: random.chance(30),
            wildcard: random.chance(50),
            cluster: random.pick(&DEVICES[1..]),
            vmid: random.pick(&VMIDS),
            tags: random.chance(85).then(|| random.some(&TAGS, 20)),
            pool: random.chance(85).then(|| random.chance(60).then(|| random.pick(&["p", "P", "p/q"]))),
            flag: random.chance(85).then(|| random.chance(20)),
            op: random.pick(&OPS),
            planner: random.pick(&TOKENS),
        }
    }
}

// ---- authz -----------------------------------------------------------------------------------------------------------

/// The instant all cases live in.
pub fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).expect("a time")
}

fn after(seconds: i64) -> String {
    now().checked_add(SignedDuration::from_secs(seconds)).expect("a time").to_string()
}

/// A policy as `authz` has it loaded.
#[derive(Debug)]
pub struct Ours {
    principal: Arc<Principal>,
    protection: Protection,
    waivers: WaiverSet,
    lab: bool,
}

impl Ours {
    /// Loads it through the files.
    pub fn new(policy: &Policy) -> Ours {
        let mut entry =
            json!({"hash": sha256_entry(BEARER), "tools": policy.tools, "devices": policy.devices});
        if let Some((guests, actions)) = &policy.grant {
            entry["grant"] = json!({"guests": guests, "actions": actions});
        }
        if let Some(seconds) = policy.expires {
            entry["expires"] = json!(after(seconds));
        }
        let file = json!({"version": 1, "tokens": {"me": entry}}).to_string();
        let table = authz::TokenTable::parse(file.as_bytes()).expect("the file loads");
        // Expiry is decided later; here it only has to be found.
        let Lookup::Principal(principal) = table.lookup(BEARER, Timestamp::MIN) else {
            panic!("no principal")
        };
        let waivers: Vec<_> = policy
            .waivers
            .iter()
            .map(|w| {
                json!({"cluster": w.cluster, "vmid": w.vmid,
            "until": after(w.until), "reason": "r", "ops": w.ops, "principal": w.principal})
            })
            .collect();
        let waivers = json!({"version": 1, "waivers": waivers}).to_string();
        let (waivers, _) = WaiverSet::parse(waivers.as_bytes(), |_| true, now()).expect("the file loads");
        let vmids = policy.vmids.iter().filter_map(|vmid| Vmid::new(*vmid));
        let protection = Protection::new(vmids, &policy.tags).expect("tags");
        Ours { principal, protection, waivers, lab: policy.lab }
    }

    /// Whether the call is allowed.
    pub fn allows(&self, call: &Call) -> bool {
        let rule = ToolRule {
            name: "tool",
            tier: call.tier.parse().expect("a tier"),
            interrupts: call.interrupts,
            writes_guest: call.writes,
            wildcard: call.wildcard,
        };
        let known = |fact: Option<bool>| fact.map_or(Known::Unreadable, Known::Known);
        let facts = GuestFacts {
            cluster: call.cluster.into(),
            vmid: Vmid::new(call.vmid).expect("a vmid"),
            kind: GuestKind::Lxc,
            name: None,
            tags: match &call.tags {
                Some(tags) => Known::Known(tags.iter().map(|tag| (*tag).to_owned()).collect()),
                None => Known::Unreadable,
            },
            pool: call.pool.map_or(Known::Unreadable, |pool| Known::Known(pool.map(str::to_owned))),
            protection: known(call.flag),
        };
        let overrides = Overrides { waivers: &self.waivers, lab_mode: self.lab };
        admit(&self.principal, &rule, Some(call.cluster), now())
            .and_then(|admitted| {
                decide(admitted, &facts, call.op, call.planner, &self.protection, &overrides, now())
            })
            .is_ok()
    }
}

// ---- Cedar -----------------------------------------------------------------------------------------------------------

/// A policy as Cedar has it loaded: one permit for the token, one forbid for protection.
pub struct Cedar {
    policies: PolicySet,
    authorizer: Authorizer,
    text: String,
}

impl std::fmt::Debug for Cedar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn any_of(conditions: Vec<String>) -> String {
    if conditions.is_empty() { "false".into() } else { conditions.join(" || ") }
}

fn selector(word: &str) -> String {
    match word.split_once(':') {
        None => "true".into(),
        Some(("vmid", range)) => {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            format!("(resource.vmid >= {first} && resource.vmid <= {last})")
        }
        Some(("tag", tag)) => format!("(resource.tagsRead && resource.tags.contains(\"{tag}\"))"),
        Some((_, pool)) => format!("(resource.poolRead && resource has pool && resource.pool == \"{pool}\")"),
    }
}

impl Cedar {
    /// Writes the policy in Cedar's language and loads it.
    pub fn new(policy: &Policy) -> Cedar {
        let tools = any_of(policy.tools.iter().map(|tool| match *tool {
            "*" => "(context.wildcard && context.tier == \"read\" && !context.interrupts && !context.writes)".into(),
            name => format!("context.tool == \"{name}\""),
        }).collect());
        let devices = any_of(
            policy
                .devices
                .iter()
                .map(|device| match *device {
                    "*" => "true".into(),
                    name => format!("resource.cluster == \"{name}\""),
                })
                .collect(),
        );
        let (guests, actions) = policy.grant.clone().unwrap_or_default();
        let guests = any_of(guests.iter().map(|word| selector(word)).collect());
        let actions = any_of(actions.iter().map(|tier| format!("context.tier == \"{tier}\"")).collect());
        let valid = policy.expires.map_or("true".into(), |end| format!("context.now < {end}"));
        let mut text = format!(
            "permit(principal, action, resource) when {{ ({valid}) && ({tools}) && ({devices}) && ({guests}) && ({actions}) }};\n"
        );
        let mut protected: Vec<String> =
            policy.vmids.iter().map(|vmid| format!("resource.vmid == {vmid}")).collect();
        protected.extend(
            policy.tags.iter().map(|tag| format!("resource.folded.contains(\"{}\")", tag.to_lowercase())),
        );
        protected.extend(["!resource.tagsRead".into(), "!resource.flagRead".into(), "resource.flag".into()]);
        let mut lifted: Vec<String> = policy.waivers.iter().map(|w| {
            let ops = any_of(w.ops.iter().map(|op| format!("context.op == \"{op}\"")).collect());
            let planner = w.principal.map_or("true".into(), |name| format!("context.planner == \"{name}\""));
            format!("(resource.cluster == \"{}\" && resource.vmid == {} && context.now < {} && ({ops}) && ({planner}))", w.cluster, w.vmid, w.until)
        }).collect();
        lifted.push(policy.lab.to_string());
        let _ = write!(
            text,
            "forbid(principal, action, resource) when {{ (context.tier == \"destructive\" || context.interrupts || context.writes) && ({}) }} unless {{ {} }};",
            any_of(protected),
            any_of(lifted)
        );
        let policies = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
        Cedar { policies, authorizer: Authorizer::new(), text }
    }

    /// The request and the guest as an entity.
    pub fn prepare(call: &Call) -> (Request, Entities) {
        let uid = |text: &str| -> EntityUid { text.parse().expect("a uid") };
        let text = |text: &str| RestrictedExpression::new_string(text.to_owned());
        let set = |words: Vec<String>| {
            RestrictedExpression::new_set(words.into_iter().map(RestrictedExpression::new_string))
        };
        let tags = call.tags.clone().unwrap_or_default();
        let readable = call.tags.is_some() && tags.iter().all(|tag| !tag.contains(' '));
        let mut attributes = HashMap::from([
            ("cluster".to_owned(), text(call.cluster)),
            ("vmid".to_owned(), RestrictedExpression::new_long(i64::from(call.vmid))),
            ("tagsRead".to_owned(), RestrictedExpression::new_bool(readable)),
            ("tags".to_owned(), set(tags.iter().map(|tag| (*tag).to_owned()).collect())),
            ("folded".to_owned(), set(tags.iter().map(|tag| tag.to_lowercase()).collect())),
            ("poolRead".to_owned(), RestrictedExpression::new_bool(call.pool.is_some())),
            ("flagRead".to_owned(), RestrictedExpression::new_bool(call.flag.is_some())),
            ("flag".to_owned(), RestrictedExpression::new_bool(call.flag == Some(true))),
        ]);
        if let Some(Some(pool)) = call.pool {
            attributes.insert("pool".to_owned(), text(pool));
        }
        let guest = uid("Guest::\"g\"");
        let entity = Entity::new(guest.clone(), attributes, HashSet::new()).expect("an entity");
        let entities = Entities::from_entities([entity], None).expect("entities");
        let context = Context::from_pairs([
            ("tool".to_owned(), text("tool")),
            ("tier".to_owned(), text(call.tier)),
            ("interrupts".to_owned(), RestrictedExpression::new_bool(call.interrupts)),
            ("writes".to_owned(), RestrictedExpression::new_bool(call.writes)),
            ("wildcard".to_owned(), RestrictedExpression::new_bool(call.wildcard)),
            ("op".to_owned(), text(call.op)),
            ("planner".to_owned(), text(call.planner)),
            ("now".to_owned(), RestrictedExpression::new_long(0)),
        ])
        .expect("a context");
        let request = Request::new(uid("Token::\"me\""), uid("Action::\"call\""), guest, context, None)
            .expect("a request");
        (request, entities)
    }

    /// Whether the call is allowed.
    pub fn allows(&self, call: &Call) -> bool {
        let (request, entities) = Cedar::prepare(call);
        let answer = self.authorizer.is_authorized(&request, &self.policies, &entities);
        let errors: Vec<_> = answer.diagnostics().errors().collect();
        assert!(errors.is_empty(), "{errors:?}\n{}", self.text);
        answer.decision() == Decision::Allow
    }
}
