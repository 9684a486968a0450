//! What one decision costs: `authz`, Cedar and casbin in turn, in one process, so that a busy machine is busy for all.
//!
//! Each figure is the median, and the 99th percentile, of batches; the batches of all engines alternate.
#![allow(clippy::expect_used, clippy::panic, reason = "a bench: it may stop")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authz::{
    GuestFacts, GuestKind, Known, Lookup, Overrides, Protection, Tier, TokenTable, ToolRule, Vmid, WaiverSet,
    admit, argon2id_entry, decide, mint_token, sha256_entry,
};
use casbin::function_map::OperatorFunction;
use casbin::rhai::Dynamic;
use casbin::{CoreApi, DefaultModel, Enforcer, MgmtApi};
use peers::now;
use serde_json::{Value, json};

const RULE: ToolRule =
    ToolRule { name: "stop_vm", tier: Tier::Low, interrupts: true, writes_guest: false, wildcard: false };
const ROUNDS: usize = 300;

struct Gate {
    table: TokenTable,
    bearer: String,
    protection: Protection,
    waivers: WaiverSet,
    free: Arc<GuestFacts>,
    waived: Arc<GuestFacts>,
}

fn token(n: u32) -> authz::MintedToken {
    let mut entropy = [0x21; 32];
    entropy[..4].copy_from_slice(&n.to_be_bytes());
    mint_token(entropy, std::array::from_fn(|k| (n >> (5 * k.min(6))) as u8 & 31))
}

/// `count` tokens of three selectors, 100 waivers, a protected range and two protected tags.
fn gate(count: u32) -> Gate {
    let slow = argon2id_entry("x", [1; 16]).expect("argon2");
    let mut tokens: serde_json::Map<String, Value> = (0..count)
        .map(|n| {
            let minted = token(n);
            let entry = json!({"hash": sha256_entry(&minted.text), "id": minted.id, "devices": ["alpha", "beta"],
                "tools": ["*", "start_vm", "stop_vm", "create_snapshot"],
                "grant": {"guests": ["vmid:100-199", "tag:disposable", "pool:dev"], "actions": ["read", "low"]}});
            (format!("agent-{n}"), entry)
        })
        .collect();
    tokens.insert("slow".into(), json!({"hash": slow, "id": "slowslowsl", "tools": ["*"], "devices": ["*"]}));
    let waivers: Vec<Value> = (0..100)
        .map(|n| json!({"cluster": "alpha", "vmid": 300 + n, "until": "2099-01-01T00:00:00Z", "reason": "r", "ops": ["stop_vm"]}))
        .collect();
    let waivers = json!({"version": 1, "waivers": waivers}).to_string();
    let guest = |number, protection| {
        Arc::new(GuestFacts {
            cluster: "alpha".into(),
            vmid: Vmid::new(number).expect("a vmid"),
            kind: GuestKind::Lxc,
            name: Some("web".into()),
            tags: Known::Known(vec!["web".into(), "linux".into()]),
            pool: Known::Known(Some("dev".into())),
            protection: Known::Known(protection),
        })
    };
    Gate {
        table: TokenTable::parse(json!({"version": 1, "tokens": tokens}).to_string().as_bytes())
            .expect("it loads"),
        bearer: token(count / 2).text.to_string(),
        protection: Protection::new((200..220).filter_map(Vmid::new), ["protected", "prod"]).expect("tags"),
        waivers: WaiverSet::parse(waivers.as_bytes(), |_| true, now()).expect("it loads").0,
        free: guest(905, false),
        waived: guest(399, true),
    }
}

impl Gate {
    fn lookup(&self, bearer: &str) -> Lookup {
        self.table.lookup(bearer, now())
    }

    fn decide(&self, principal: &Arc<authz::Principal>, guest: &Arc<GuestFacts>) -> authz::Permit {
        let overrides = Overrides { waivers: &self.waivers, lab_mode: false };
        let admitted = admit(principal, &RULE, Some("alpha"), now()).expect("admitted");
        decide(admitted, guest, "stop_vm", principal.name(), &self.protection, &overrides, now())
            .expect("allowed")
    }
}

struct Row<'a> {
    name: String,
    batch: u32,
    run: Box<dyn FnMut() + 'a>,
    times: Vec<Duration>,
}

fn row<'a, T>(name: impl Into<String>, batch: u32, mut run: impl FnMut() -> T + 'a) -> Row<'a> {
    let run = Box::new(move || {
        black_box(run());
    });
    Row { name: name.into(), batch, run, times: Vec::new() }
}

async fn casbin(tokens: u32) -> Enforcer {
    let model = DefaultModel::from_str(
        "[request_definition]\nr = sub, tool, cluster, vmid, tier\n[policy_definition]\np = sub, tool, cluster, first, last, tier\n\
         [policy_effect]\ne = some(where (p.eft == allow))\n[matchers]\n\
         m = r.sub == p.sub && r.tool == p.tool && r.cluster == p.cluster && r.tier == p.tier && within(r.vmid, p.first, p.last)",
    )
    .await
    .expect("a model");
    let mut enforcer = Enforcer::new(model, ()).await.expect("an enforcer");
    enforcer.add_function(
        "within",
        OperatorFunction::Arg3(|vmid: Dynamic, first: Dynamic, last: Dynamic| {
            let number = |text: Dynamic| text.to_string().parse::<u32>().unwrap_or(0);
            let vmid = number(vmid);
            (number(first) <= vmid && vmid <= number(last)).into()
        }),
    );
    let rule = |n: u32, first: u32| {
        ["agent-", "stop_vm", "alpha", "", "", "low"]
            .iter()
            .enumerate()
            .map(|(k, word)| match k {
                0 => format!("agent-{n}"),
                3 => first.to_string(),
                4 => (first + 99).to_string(),
                _ => (*word).to_owned(),
            })
            .collect::<Vec<_>>()
    };
    let rules: Vec<_> = (0..tokens).flat_map(|n| [100, 300, 900].map(|first| rule(n, first))).collect();
    enforcer.add_policies(rules).await.expect("policies");
    enforcer
}

/// The same policy in Cedar, for `tokens` tokens.
fn cedar(tokens: u32) -> cedar_policy::PolicySet {
    let waived: Vec<String> = (300..400).map(|vmid| vmid.to_string()).collect();
    let mut text = String::new();
    for n in 0..tokens {
        text += &format!(
            "permit(principal == Token::\"agent-{n}\", action, resource) when {{ [\"start_vm\", \"stop_vm\", \"create_snapshot\"].contains(context.tool) \
             && [\"alpha\", \"beta\"].contains(resource.cluster) && [\"read\", \"low\"].contains(context.tier) \
             && ((resource.vmid >= 100 && resource.vmid <= 199) || resource.tags.contains(\"disposable\") || resource.pool == \"dev\") }};\n"
        );
    }
    text += &format!(
        "forbid(principal, action, resource) when {{ context.interrupts && (resource.flag || (resource.vmid >= 200 && resource.vmid < 220) \
         || resource.folded.containsAny([\"protected\", \"prod\"])) }} unless {{ [{}].contains(resource.vmid) && context.op == \"stop_vm\" && context.now < 9 }};",
        waived.join(",")
    );
    text.parse().expect("policies")
}

fn cedar_question(agent: u32) -> (cedar_policy::Request, cedar_policy::Entities) {
    use cedar_policy::{Context, Entities, Entity, EntityUid, Request, RestrictedExpression as Value};
    let uid = |text: &str| -> EntityUid { text.parse().expect("a uid") };
    let text = |text: &str| Value::new_string(text.to_owned());
    let tags = || Value::new_set([text("web"), text("linux")]);
    let guest = uid("Guest::\"905\"");
    let attributes = [
        ("cluster", text("alpha")),
        ("vmid", Value::new_long(905)),
        ("tags", tags()),
        ("folded", tags()),
        ("pool", text("dev")),
        ("flag", Value::new_bool(false)),
    ];
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let entity = Entity::new(guest.clone(), attributes, std::collections::HashSet::new()).expect("an entity");
    let context = Context::from_pairs([
        ("tool".to_owned(), text("stop_vm")),
        ("tier".to_owned(), text("low")),
        ("interrupts".to_owned(), Value::new_bool(true)),
        ("op".to_owned(), text("stop_vm")),
        ("now".to_owned(), Value::new_long(0)),
    ])
    .expect("a context");
    let token = uid(&format!("Token::\"agent-{agent}\""));
    let request = Request::new(token, uid("Action::\"call\""), guest, context, None).expect("a request");
    (request, Entities::from_entities([entity], None).expect("entities"))
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let gates: Vec<(u32, Gate)> = [10, 1_000, 10_000].map(|count| (count, gate(count))).into();
    let principals: Vec<_> = gates
        .iter()
        .map(|(_, gate)| match gate.lookup(&gate.bearer) {
            Lookup::Principal(principal) => principal,
            other => panic!("{other:?}"),
        })
        .collect();
    let authorizer = cedar_policy::Authorizer::new();
    let cedars = [(1, cedar(1)), (100, cedar(100))];
    let questions = [cedar_question(0), cedar_question(50)];
    let enforcers = [(1, runtime.block_on(casbin(1))), (100, runtime.block_on(casbin(100)))];
    for ((_, policies), (request, entities)) in cedars.iter().zip(&questions) {
        let answer = authorizer.is_authorized(request, policies, entities);
        assert_eq!(answer.decision(), cedar_policy::Decision::Allow, "{answer:?}");
    }
    for (tokens, enforcer) in &enforcers {
        let agent = format!("agent-{}", tokens / 2);
        assert!(enforcer.enforce((agent.as_str(), "stop_vm", "alpha", "905", "low")).expect("an answer"));
    }

    let mut rows = Vec::new();
    for ((count, gate), principal) in gates.iter().zip(&principals) {
        rows.push(row(format!("authz: full decision, {count} tokens, 100 waivers"), 2_000, || {
            gate.decide(principal, black_box(&gate.free))
        }));
        rows.push(row(format!("authz: full decision, lifted by a waiver, {count} tokens"), 2_000, || {
            gate.decide(principal, black_box(&gate.waived))
        }));
        rows.push(row(format!("authz: bearer, hit, {count} tokens"), 2_000, || {
            gate.lookup(black_box(&gate.bearer))
        }));
        rows.push(row(format!("authz: bearer to permit, {count} tokens"), 2_000, || {
            match gate.lookup(black_box(&gate.bearer)) {
                Lookup::Principal(principal) => gate.decide(&principal, &gate.free),
                other => panic!("{other:?}"),
            }
        }));
    }
    let (_, many) = &gates[2];
    let good = many.bearer.clone();
    let unknown = mint_token([9; 32], [31; 10]).text.to_string();
    // The id of a sha256 entry with another secret, and a checksum that fits.
    let stolen_id = mint_token([8; 32], std::array::from_fn(|k| (5_000_u32 >> (5 * k.min(6))) as u8 & 31))
        .text
        .to_string();
    for (what, text) in [
        ("malformed", format!("{}!", &good[..66])),
        ("bad checksum", format!("{}{}", &good[..66], if good.ends_with('0') { '1' } else { '0' })),
        ("unknown id", unknown),
        ("id of a sha256 entry", stolen_id),
    ] {
        assert!(matches!(many.lookup(&text), Lookup::Refused(_)), "{what}");
        rows.push(row(format!("authz: forged bearer, {what}, 10000 tokens"), 2_000, move || {
            many.lookup(black_box(&text))
        }));
    }
    for ((count, policies), (request, entities)) in cedars.iter().zip(&questions) {
        rows.push(row(format!("cedar-policy: request and entities at hand, {count} tokens"), 20, || {
            authorizer.is_authorized(request, policies, entities)
        }));
        rows.push(row(format!("cedar-policy: building them too, {count} tokens"), 20, || {
            let (request, entities) = cedar_question(*count / 2);
            authorizer.is_authorized(&request, policies, &entities)
        }));
    }
    for (count, enforcer) in &enforcers {
        let agent = format!("agent-{}", count / 2);
        rows.push(row(
            format!("casbin: scope and ranges alone, {count} tokens, {} rules", count * 3),
            20,
            move || enforcer.enforce((agent.as_str(), "stop_vm", "alpha", "905", "low")).expect("an answer"),
        ));
    }
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let start = Instant::now();
            for _ in 0..row.batch {
                (row.run)();
            }
            row.times.push(start.elapsed() / row.batch);
        }
    }
    println!("| what | median ns | best ns | p99 of batches ns |\n|---|---|---|---|");
    for row in &mut rows {
        row.times.sort_unstable();
        let at = |percent: usize| row.times[row.times.len() * percent / 100].as_nanos();
        println!("| {} | {} | {} | {} |", row.name, at(50), at(0), at(99));
    }
}
