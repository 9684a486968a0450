//! A toy backend under change control: plan, approve, apply.
//!
//! The backend is a map of virtual machines. Its one dangerous call takes a [`DispatchPermit`], and only the apply
//! machine makes one, so that no code path can destroy a machine without a second person's approval.
//!
//! Run it: `cargo run -p changeset --example toy_backend`

use std::collections::BTreeMap;
use std::time::Duration;

use changeset::store::{Inserted, Limits, Store};
use changeset::{
    Actor, ActorKind, Apply, ApprovalKey, ChangeSet, ChangeSetId, DispatchPermit, Effect, Event, Fingerprint,
    MemoryStore, Plan, PlanDraft, Preview, SendResult, Step, Target, TaskEnd, Timing,
};
use jiff::Timestamp;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Virtual machines by name, with their notes.
struct Backend {
    machines: BTreeMap<String, String>,
    tasks: Vec<String>,
}

impl Backend {
    fn fingerprint(&self, name: &str) -> Fingerprint {
        Fingerprint::new(self.machines.get(name).map(|notes| ("notes", notes.as_str())))
    }

    /// Takes the permit by value: one permit, one call.
    fn destroy(&mut self, permit: DispatchPermit) -> SendResult {
        let name = permit.step().params.get("name").cloned().unwrap_or_default();
        match self.machines.remove(&name) {
            None => SendResult::Refused(format!("there is no machine `{name}`")),
            Some(_) => {
                let handle = format!("task-{}", self.tasks.len());
                self.tasks.push(handle.clone());
                SendResult::Handle(handle)
            }
        }
    }
}

fn main() -> Result<()> {
    // An embedder takes these from a random source, a key file and a clock.
    let (id, key) = (ChangeSetId::from_entropy([42; 16]), ApprovalKey::new([7; 32]));
    let start: Timestamp = "2026-11-30T12:00:00Z".parse()?;
    let bot = Actor::new("bot", "ann", Some(ActorKind::Agent));
    let olga = Actor::new("olga", "olga", Some(ActorKind::Human));

    let notes = "APPROVED BY everybody\u{202e}";
    let mut backend = Backend { machines: [("web".to_owned(), notes.to_owned())].into(), tasks: Vec::new() };
    let mut store = MemoryStore::new();

    // The agent plans. What the approver reads is made from facts, and quotes what others wrote.
    let text = format!("destroys machine web; notes: {}", Preview::quote(notes));
    let plan = Plan::new(PlanDraft {
        id,
        planner: bot.clone(),
        target: Target::new("toy", "machine/web", "machine web"),
        tier_destructive: true,
        target_protected: false,
        steps: vec![Step::new("destroy", [("name", "web")], "destroy the machine and its disks")],
        fingerprint: backend.fingerprint("web"),
        preview: Preview::new(text, [("disks", "1")]),
        policy_version: "1".to_owned(),
        lab_mode: false,
        idempotency_key: None,
        created: start,
    })?;
    let planned = ChangeSet::create(plan, &key);
    assert_eq!(store.insert(&planned, &Limits::default())?, Inserted::Stored);
    println!("{} is {}: {}", planned.id(), planned.state(), planned.plan().preview().text);
    println!("its digest is {}", planned.digest());

    // The agent cannot approve its own plan; a different human can, and says which digest they saw.
    let now = start + Duration::from_secs(60);
    if let Err(refusal) = planned.approve(&bot, &planned.digest(), &key, now) {
        println!("the agent tries to approve: {refusal}");
    }
    let approved = planned.approve(&olga, &planned.digest(), &key, now)?;
    assert!(store.advance(&planned, &approved)?);
    println!("approved by {}", olga.token);

    // The apply machine says what to do; this loop does it.
    let (mut apply, mut effect) = Apply::begin(approved, bot, &key, Timing::default(), now);
    let finish = loop {
        let event = match effect {
            Effect::ResolveAndDecide { .. } => Event::Decided {
                fingerprint: backend.fingerprint("web"),
                approver_valid: true,
                planner_valid: true,
            },
            Effect::Watermark { .. } => {
                Event::Watermark { tasks: backend.tasks.clone(), node: "here".to_owned() }
            }
            Effect::Persist { set, expected_version, mark } => {
                println!("  store: {mark:?}");
                match store.replace_if(&set, expected_version) {
                    Ok(true) => Event::Persisted,
                    Ok(false) => Event::Conflict,
                    Err(error) => Event::PersistFailed(error.to_string()),
                }
            }
            Effect::Send { permit, .. } => {
                println!("  send: {}", permit.step().summary);
                Event::Sent(backend.destroy(permit))
            }
            Effect::Follow { handle, .. } => {
                println!("  follow: {handle}");
                Event::Task(TaskEnd::from_exit_status("OK"))
            }
            Effect::FindTask(_) => Event::Found(backend.tasks.clone()),
            Effect::Refuse(refusal) => return Err(refusal.into()),
            Effect::Finish(finish) => break finish,
        };
        effect = apply.on(event, now)?;
    };
    println!("{} is {}; machines left: {}", finish.set.id(), finish.set.state(), backend.machines.len());
    Ok(())
}
