//! The two stages, one rule at a time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use authz::{
    ApprovalFacts, Denial, DenialKind, GUEST_REFUSED, GuestFacts, Known, Lift, Overrides, Permit, Principal,
    Protection, Reason, Tier, ToolRule, WaiverSet, admit, decide, decide_approval, decide_new_guest,
    permit_cluster_write, permit_unaddressed, permit_whole_read,
};
use common::{at, grant, guest, now, principal, registry, tagged, tool, vmid};
use serde_json::{Value, json};

/// A token that holds every tool by name, every cluster, guest and tier, changed by `fields`.
fn token(fields: Value) -> Arc<Principal> {
    let names: Vec<_> = registry().iter().map(|rule| rule.name).collect();
    let mut all = json!({"tools": names, "grant": grant(&["*"], &["read", "low", "destructive"])});
    for (key, value) in fields.as_object().unwrap() {
        all[key] = value.clone();
    }
    principal("ops", all)
}

fn with_grant(guests: &[&str], actions: &[&str]) -> Arc<Principal> {
    token(json!({"grant": grant(guests, actions)}))
}

fn waivers(entries: Value) -> WaiverSet {
    let text = json!({"version": 1, "waivers": entries}).to_string();
    WaiverSet::parse(text.as_bytes(), |_| true, now()).unwrap().0
}

fn both_stages(
    principal: &Arc<Principal>,
    rule: &ToolRule,
    facts: &GuestFacts,
    protection: &Protection,
    overrides: &Overrides<'_>,
) -> Result<Permit, Denial> {
    let admitted = admit(principal, rule, Some(&facts.cluster), now())?;
    decide(admitted, facts, rule.name, principal.name(), protection, overrides, now())
}

/// Both stages without waivers, under the default protection.
fn plain(principal: &Arc<Principal>, rule: &ToolRule, facts: &GuestFacts) -> Result<Permit, Denial> {
    let none = WaiverSet::empty();
    both_stages(
        principal,
        rule,
        facts,
        &Protection::default(),
        &Overrides { waivers: &none, lab_mode: false },
    )
}

fn kind(result: Result<Permit, Denial>) -> DenialKind {
    result.unwrap_err().kind()
}

#[test]
fn gr_01_a_token_without_a_grant_reaches_no_guest() {
    let principal = token(json!({"grant": null}));
    for rule in registry() {
        let denial = plain(&principal, &rule, &guest(600)).unwrap_err();
        assert_eq!(denial.public_message(), GUEST_REFUSED, "{}", rule.name);
        assert!(denial.audit_detail().contains("no grant"), "{denial:?}");
    }
    assert!(!principal.visible(&guest(600)) && !principal.unrestricted_guests());
    let new = decide_new_guest(
        admit(&principal, &tool("create_vm"), None, now()).unwrap(),
        "pve3",
        vmid(600),
        &Protection::default(),
        now(),
    );
    assert_eq!(kind(new), DenialKind::NewVmidOutOfScope);
}

#[test]
fn gr_02_a_tool_wildcard_reaches_no_mutating_tool_and_no_authorization_only_scope() {
    let principal = token(json!({"tools": ["*"]}));
    for rule in registry() {
        let result = admit(&principal, &rule, Some("pve3"), now());
        if rule.wildcard {
            assert!(result.is_ok(), "{}", rule.name);
            continue;
        }
        let denial = result.unwrap_err();
        assert_eq!((denial.kind(), denial.code()), (DenialKind::ToolOutOfScope, "insufficient_scope"));
        let message = denial.public_message();
        assert!(message.contains("`ops`") && message.contains(&format!("`{}`", rule.name)), "{message}");
        // Naming it is what opens it, also beside the wildcard.
        assert!(admit(&token(json!({"tools": ["*", rule.name]})), &rule, Some("pve3"), now()).is_ok());
    }
    assert!(registry().iter().filter(|rule| !rule.wildcard).count() > 10);
}

#[test]
fn gr_04_range_edges_are_exact_all_the_way_through() {
    let principal = with_grant(&["vmid:600-699"], &["read"]);
    for (number, inside) in [(599, false), (600, true), (699, true), (700, false), (6000, false)] {
        assert_eq!(plain(&principal, &tool("get_guest_status"), &guest(number)).is_ok(), inside, "{number}");
        assert_eq!(principal.visible(&guest(number)), inside, "{number}");
    }
}

#[test]
fn gr_05_grants_and_protection_read_tags_differently_and_both_fail_closed() {
    let principal = with_grant(&["tag:disposable"], &["read", "low", "destructive"]);
    let delete = tool("delete_vm");
    assert!(plain(&principal, &delete, &tagged(600, &["disposable"])).is_ok());
    for tags in
        [&["disposable2"][..], &["not-disposable"], &["DISPOSABLE"], &["a;disposable"], &["disposable,"]]
    {
        assert_eq!(
            kind(plain(&principal, &delete, &tagged(600, tags))),
            DenialKind::GuestOutOfScope,
            "{tags:?}"
        );
    }
    assert_eq!(
        kind(plain(&principal, &delete, &tagged(600, &["disposable", "PROTECTED"]))),
        DenialKind::Protected
    );
}

#[test]
fn gr_08_no_tier_opens_another() {
    for held in Tier::ALL {
        let principal = with_grant(&["*"], &[held.as_str()]);
        for rule in registry() {
            let result = plain(&principal, &rule, &guest(600));
            assert_eq!(result.is_ok(), rule.tier == held, "{held} {}", rule.name);
            if let Err(denial) = result {
                assert_eq!(
                    (denial.kind(), denial.code()),
                    (DenialKind::TierNotGranted, "insufficient_scope")
                );
                assert!(denial.public_message().contains(&format!("`{}`", rule.tier)));
            }
        }
    }
}

#[test]
fn gr_09_empty_lists_allow_nothing() {
    for (guests, actions) in [(&[][..], &["read", "low", "destructive"][..]), (&["*"], &[]), (&[], &[])] {
        let principal = with_grant(guests, actions);
        for rule in registry() {
            let denial = plain(&principal, &rule, &guest(600)).unwrap_err();
            // Not even that the guest exists.
            assert_eq!(denial.public_message(), GUEST_REFUSED, "{guests:?} {actions:?} {}", rule.name);
        }
        assert!(!principal.visible(&guest(600)) && !principal.unrestricted_guests());
    }
}

#[test]
fn gr_10_a_guest_out_of_scope_reads_like_one_that_does_not_exist() {
    let absent = Denial::guest_unknown();
    assert_eq!(absent.public_message(), "authorization failed");
    let other = GuestFacts { cluster: "pve4".into(), ..guest(600) };
    for principal in [
        with_grant(&["vmid:700"], &["read", "low", "destructive"]),
        with_grant(&["tag:x", "pool:x"], &["read", "low", "destructive"]),
        token(json!({"grant": null})),
    ] {
        for facts in
            [guest(600), tagged(600, &["protected"]), GuestFacts { tags: Known::Unreadable, ..guest(600) }]
        {
            let denial = plain(&principal, &tool("delete_vm"), &facts).unwrap_err();
            assert_eq!(denial.to_string(), absent.to_string());
            assert_eq!((denial.kind(), denial.code()), (absent.kind(), absent.code()));
        }
    }
    // Facts of another cluster than the admitted one never pass, whatever the grant.
    let admitted = admit(&token(json!({})), &tool("get_guest_status"), Some("pve3"), now()).unwrap();
    let none = WaiverSet::empty();
    let overrides = Overrides { waivers: &none, lab_mode: true };
    let result = decide(admitted, &other, "x", "ops", &Protection::default(), &overrides, now());
    assert_eq!(result.unwrap_err().to_string(), absent.to_string());
    // Nor does an admission without a cluster reach one outside the scope.
    let admitted =
        admit(&token(json!({"devices": ["pve3"]})), &tool("get_guest_status"), None, now()).unwrap();
    let result = decide(admitted, &other, "x", "ops", &Protection::default(), &overrides, now());
    assert_eq!(result.unwrap_err().to_string(), absent.to_string());
}

#[test]
fn gr_11_clusters_match_exactly_and_unknown_reads_like_forbidden() {
    let principal = token(json!({"devices": ["pve3"]}));
    let rule = tool("get_vms");
    assert!(admit(&principal, &rule, Some("pve3"), now()).is_ok());
    for name in ["PVE3", "pve3 ", "pve", "pve33", "рve3", "pve4", "", "*", "pve3\n"] {
        let denial = admit(&principal, &rule, Some(name), now()).unwrap_err();
        assert_eq!((denial.kind(), denial.code()), (DenialKind::ClusterOutOfScope, "cluster_unavailable"));
        let unknown = Denial::cluster_unknown(&principal, name);
        assert_eq!(denial.to_string(), unknown.to_string());
        assert_eq!(denial.code(), unknown.code());
        assert!(!denial.to_string().contains('\n'));
    }
}

#[test]
fn pw_01_protection_from_any_source_refuses_what_destroys_interrupts_or_writes() {
    let principal = token(json!({}));
    let none = WaiverSet::empty();
    let overrides = Overrides { waivers: &none, lab_mode: false };
    let by_number = Protection::new([vmid(600)], Vec::<String>::new()).unwrap();
    let by_tag = Protection::default();
    for (protection, facts, cause) in [
        (&by_number, guest(600), "`protected_vmids`"),
        (&by_tag, tagged(600, &["web", "Protected"]), "`protected` is in `protected_tags`"),
        (&by_tag, GuestFacts { protection: Known::Known(true), ..guest(600) }, "`protection` flag is set"),
        (
            &by_number,
            GuestFacts { protection: Known::Known(true), ..tagged(600, &["protected"]) },
            "flag is set",
        ),
    ] {
        for rule in registry() {
            let result = both_stages(&principal, &rule, &facts, protection, &overrides);
            let hazard = rule.tier == Tier::Destructive || rule.interrupts || rule.writes_guest;
            match result {
                Ok(permit) => {
                    assert!(!hazard, "{} must be refused", rule.name);
                    assert!(matches!(permit.reasons().last(), Some(Reason::ProtectionAllows(_))));
                    assert_eq!(permit.lift(), None);
                }
                Err(denial) => {
                    assert!(hazard, "{} must be allowed", rule.name);
                    assert_eq!((denial.kind(), denial.code()), (DenialKind::Protected, "protected"));
                    let text = denial.public_message();
                    assert!(
                        text.contains(cause) && text.contains("operator") && text.contains(rule.name),
                        "{text}"
                    );
                }
            }
        }
    }
    for allowed in ["get_guest_status", "start_vm", "create_snapshot", "create_backup", "clone_vm"] {
        assert!(plain(&principal, &tool(allowed), &tagged(600, &["protected"])).is_ok(), "{allowed}");
    }
}

#[test]
fn pw_03_facts_that_could_not_be_read_protect() {
    let principal = token(json!({}));
    for facts in [
        GuestFacts { tags: Known::Unreadable, ..guest(600) },
        GuestFacts { protection: Known::Unreadable, ..guest(600) },
        tagged(600, &["half;split"]),
    ] {
        let denial = plain(&principal, &tool("stop_vm"), &facts).unwrap_err();
        assert!(denial.public_message().contains("could not be read"), "{denial}");
        assert!(plain(&principal, &tool("get_guest_status"), &facts).is_ok());
    }
    // A pool protects nothing; not knowing it only narrows grants.
    let facts = GuestFacts { pool: Known::Unreadable, ..guest(600) };
    assert!(plain(&principal, &tool("stop_vm"), &facts).is_ok());
    let by_pool = with_grant(&["pool:dev"], &["low"]);
    assert_eq!(kind(plain(&by_pool, &tool("stop_vm"), &facts)), DenialKind::GuestOutOfScope);
}

fn waiver(fields: Value) -> WaiverSet {
    let mut entry = json!({"cluster": "pve3", "vmid": 600, "until": "2026-06-02T00:00:00Z", "reason": "move",
                           "ticket": "CHG-1", "ops": ["stop_vm"]});
    for (key, value) in fields.as_object().unwrap() {
        entry[key] = value.clone();
    }
    waivers(json!([entry]))
}

#[test]
fn a_matching_waiver_lifts_protection_and_says_why() {
    let principal = token(json!({}));
    let set = waiver(json!({}));
    let facts = tagged(600, &["protected"]);
    let overrides = Overrides { waivers: &set, lab_mode: true };
    let permit =
        both_stages(&principal, &tool("stop_vm"), &facts, &Protection::default(), &overrides).unwrap();
    let Some(Lift::Waiver(used)) = permit.lift() else { panic!("{permit:?}") };
    assert_eq!((used.reason(), used.ticket()), ("move", Some("CHG-1")));
    assert_eq!(permit.lift().unwrap().to_string(), "waiver until 2026-06-02T00:00:00Z: move [CHG-1]");
    assert_eq!(
        (permit.facts(), permit.rule().name, permit.principal().name()),
        (Some(&facts), "stop_vm", "ops")
    );
    // Lab mode is named where only it lifts, and nothing is lifted where nothing stands in the way.
    let permit =
        both_stages(&principal, &tool("reset_vm"), &facts, &Protection::default(), &overrides).unwrap();
    assert_eq!(permit.lift(), Some(&Lift::LabMode));
    assert_eq!(permit.lift().unwrap().to_string(), "lab mode");
    for (rule, facts) in [(tool("stop_vm"), guest(600)), (tool("start_vm"), facts)] {
        let permit = both_stages(&principal, &rule, &facts, &Protection::default(), &overrides).unwrap();
        assert_eq!(permit.lift(), None, "{}", rule.name);
    }
}

#[test]
fn a_waiver_that_misses_is_no_waiver_and_the_refusal_says_what_it_missed() {
    let principal = token(json!({}));
    for (fields, miss) in [
        (json!({"vmid": 601}), None),
        (json!({"cluster": "pve4"}), None),
        (json!({"ops": ["reset_vm"]}), Some("does not name this operation")),
        (json!({"until": "2026-06-01T12:00:00Z"}), Some("has expired")),
        (json!({"principal": "quinn"}), Some("bound to another token")),
    ] {
        let set = waiver(fields.clone());
        let overrides = Overrides { waivers: &set, lab_mode: false };
        let facts = tagged(600, &["protected"]);
        let denial = both_stages(&principal, &tool("stop_vm"), &facts, &Protection::default(), &overrides)
            .unwrap_err();
        assert_eq!(denial.kind(), DenialKind::Protected, "{fields}");
        let text = denial.public_message();
        assert_eq!(text.contains("a waiver for this guest exists"), miss.is_some(), "{text}");
        assert!(miss.is_none_or(|miss| text.contains(miss)), "{text}");
        assert!(!text.contains("quinn"), "the bound token's name is not the caller's business: {text}");
    }
}

#[test]
fn pw_06_a_waiver_bound_to_its_planner_counts_for_that_plan_only() {
    let set = waiver(json!({"principal": "ops", "ops": ["destroy_guest"]}));
    let facts = tagged(600, &["protected"]);
    let overrides = Overrides { waivers: &set, lab_mode: false };
    let decide_for = |caller: &str, planner: &str| {
        let principal =
            principal(caller, json!({"tools": ["delete_vm"], "grant": grant(&["*"], &["destructive"])}));
        let admitted = admit(&principal, &tool("delete_vm"), Some("pve3"), now()).unwrap();
        decide(admitted, &facts, "destroy_guest", planner, &Protection::default(), &overrides, now()).is_ok()
    };
    assert!(decide_for("ops", "ops"));
    // Planned by someone else; and planned by the bound token, but judged for another caller as planner.
    assert!(!decide_for("ops", "eve") && !decide_for("eve", "eve"));
    // Whoever applies, it is the planner the waiver is held against.
    assert!(decide_for("eve", "ops"));
}

#[test]
fn a_waiver_never_reaches_past_the_grant() {
    let set = waiver(json!({}));
    let overrides = Overrides { waivers: &set, lab_mode: true };
    let facts = tagged(600, &["protected"]);
    for principal in
        [with_grant(&["vmid:601"], &["low"]), with_grant(&["*"], &["read"]), token(json!({"tools": ["*"]}))]
    {
        assert!(
            both_stages(&principal, &tool("stop_vm"), &facts, &Protection::default(), &overrides).is_err()
        );
    }
}

#[test]
fn gr_13_a_new_guest_needs_a_number_the_grant_holds_and_nobody_protects() {
    let protection = Protection::new([vmid(650)], ["protected"]).unwrap();
    let create = |principal: &Arc<Principal>, number: u32| {
        let admitted = admit(principal, &tool("create_vm"), Some("pve3"), now()).unwrap();
        decide_new_guest(admitted, "pve3", vmid(number), &protection, now())
    };
    for (guests, number, allowed) in [
        (&["*"][..], 601, true),
        (&["vmid:600-699"], 600, true),
        (&["vmid:600-699"], 699, true),
        (&["tag:x", "vmid:601"], 601, true),
        (&["vmid:600-699"], 599, false),
        (&["vmid:600-699"], 700, false),
        (&["tag:x", "pool:y"], 601, false),
    ] {
        let result = create(&with_grant(guests, &["low"]), number);
        match result {
            Ok(permit) => {
                assert!(allowed);
                assert_eq!((permit.new_guest(), permit.facts()), (Some(vmid(number)), None));
                assert_eq!(permit.reasons().last(), Some(&Reason::NewGuest(vmid(number))));
            }
            Err(denial) => {
                assert!(!allowed, "{guests:?} {number}");
                assert_eq!(
                    (denial.kind(), denial.code()),
                    (DenialKind::NewVmidOutOfScope, "vmid_out_of_scope")
                );
                assert!(denial.public_message().contains("does not exist yet"), "{denial}");
            }
        }
    }
    let denial = create(&token(json!({})), 650).unwrap_err();
    assert_eq!((denial.kind(), denial.code()), (DenialKind::NewVmidProtected, "protected"));
    assert_eq!(kind(create(&with_grant(&["*"], &["read", "destructive"]), 601)), DenialKind::TierNotGranted);
    let elsewhere = |admitted_for: Option<&str>, cluster: &str| {
        let admitted =
            admit(&token(json!({"devices": ["pve3"]})), &tool("create_vm"), admitted_for, now()).unwrap();
        decide_new_guest(admitted, cluster, vmid(601), &protection, now())
    };
    assert!(elsewhere(None, "pve3").is_ok());
    assert_eq!(kind(elsewhere(Some("pve3"), "pve4")), DenialKind::ClusterOutOfScope);
    assert_eq!(kind(elsewhere(None, "pve4")), DenialKind::ClusterOutOfScope);
}

/// A restore to a new number reads the archive of a guest that still exists: its owner's protection is asked too.
#[test]
fn pw_15_the_archive_of_a_protected_owner_needs_a_waiver_on_the_owner() {
    let restore = ToolRule { name: "restore_backup_new_vmid", ..tool("rollback_snapshot") };
    let principal = token(json!({"tools": ["restore_backup_new_vmid"]}));
    let owner = tagged(600, &["protected"]);
    for (fields, allowed) in [
        (json!({"ops": ["restore_new_vmid"]}), true),
        // Neither the operation on an existing guest nor a waiver for the new number does.
        (json!({"ops": ["restore_backup"]}), false),
        (json!({"ops": ["restore_new_vmid"], "vmid": 700}), false),
    ] {
        let set = waiver(fields.clone());
        let overrides = Overrides { waivers: &set, lab_mode: false };
        let admitted = admit(&principal, &restore, Some("pve3"), now()).unwrap();
        let protection = Protection::default();
        let decided = decide(admitted, &owner, "restore_new_vmid", "ops", &protection, &overrides, now());
        assert_eq!(decided.is_ok(), allowed, "{fields}");
    }
}

#[test]
fn what_addresses_no_guest_is_permitted_only_by_its_own_door() {
    let principal = with_grant(&["vmid:600"], &["read", "low"]);
    for rule in registry() {
        let admitted = || admit(&principal, &rule, Some("pve3"), now()).unwrap();
        let read = permit_unaddressed(admitted());
        assert_eq!(read.is_ok(), rule.tier == Tier::Read, "{}", rule.name);
        if let Err(denial) = read {
            assert_eq!((denial.kind(), denial.code()), (DenialKind::GuestRequired, "guest_required"));
        }
        let write = permit_cluster_write(admitted(), now());
        let allowed = rule.tier == Tier::Low && !rule.interrupts && !rule.writes_guest;
        assert_eq!(write.is_ok(), allowed, "{}", rule.name);
    }
    let permit = permit_unaddressed(admit(&principal, &tool("get_vms"), None, now()).unwrap()).unwrap();
    assert_eq!((permit.facts(), permit.new_guest(), permit.lift()), (None, None, None));
    // Without a grant cluster-wide reads stay open (and show no guest), writes do not.
    let bare = token(json!({"grant": null}));
    assert!(permit_unaddressed(admit(&bare, &tool("get_vms"), None, now()).unwrap()).is_ok());
    let write = permit_cluster_write(admit(&bare, &tool("download_iso"), None, now()).unwrap(), now());
    assert_eq!(kind(write), DenialKind::TierNotGranted);
    // What shows a cluster as a whole needs every guest, for reading.
    let whole = |principal: &Arc<Principal>, tool_name: &'static str, now| {
        permit_whole_read(admit(principal, &tool(tool_name), None, self::now()).unwrap(), now)
    };
    let denial = whole(&principal, "get_vms", now()).unwrap_err();
    assert_eq!((denial.kind(), denial.code()), (DenialKind::GuestsRestricted, "insufficient_scope"));
    assert_eq!(kind(whole(&bare, "get_vms", now())), DenialKind::GuestsRestricted);
    assert_eq!(kind(whole(&with_grant(&["*"], &["low"]), "get_vms", now())), DenialKind::GuestsRestricted);
    let every = with_grant(&["vmid:600", "*"], &["read", "low"]);
    assert!(whole(&every, "get_vms", now()).is_ok());
    assert_eq!(kind(whole(&every, "download_iso", now())), DenialKind::GuestRequired);
    // A row that calls itself a read and is none gets nowhere.
    let odd = ToolRule { interrupts: true, ..tool("get_vms") };
    let admitted = || admit(&principal, &odd, None, now()).unwrap();
    assert!(permit_unaddressed(admitted()).is_err() && permit_cluster_write(admitted(), now()).is_err());
}

#[test]
fn lists_show_what_the_token_may_read() {
    let principal =
        token(json!({"devices": ["pve3"], "grant": grant(&["vmid:600-699", "tag:web"], &["read"])}));
    assert!(principal.visible(&guest(650)) && principal.visible(&tagged(700, &["web"])));
    assert!(!principal.visible(&guest(700)));
    assert!(!principal.visible(&GuestFacts { cluster: "pve4".into(), ..guest(650) }));
    assert!(!principal.unrestricted_guests());
    assert!(!with_grant(&["*"], &["low"]).visible(&guest(650)));
    assert!(!with_grant(&["*"], &["low"]).unrestricted_guests());
    // In scope is not the same as readable: no tier stands for another.
    assert!(with_grant(&["vmid:650"], &["low"]).holds(&guest(650)));
    assert!(!with_grant(&["vmid:650"], &["low"]).holds(&guest(651)));
    assert!(!with_grant(&["*"], &[]).holds(&guest(650)));
    assert!(!principal.holds(&GuestFacts { cluster: "pve4".into(), ..guest(650) }));
    assert!(with_grant(&["tag:x", "*"], &["read"]).unrestricted_guests());
    assert!(!with_grant(&["vmid:100-999999999"], &["read"]).unrestricted_guests());
}

#[test]
fn an_expired_token_is_refused_at_every_door() {
    let principal = token(json!({"expires": "2026-06-01T12:00:01Z", "actor_type": "human"}));
    let later = at("2026-06-01T12:00:01Z");
    let admitted = |name: &str| admit(&principal, &tool(name), Some("pve3"), now()).unwrap();
    let none = WaiverSet::empty();
    let overrides = Overrides { waivers: &none, lab_mode: true };
    let protection = Protection::default();
    let plan = ApprovalFacts { planner_name: "x", planner_person: "x", tier: Tier::Low, facts: &guest(600) };
    let kinds = [
        admit(&principal, &tool("get_vms"), None, later).unwrap_err().kind(),
        kind(decide(admitted("start_vm"), &guest(600), "start_vm", "ops", &protection, &overrides, later)),
        kind(decide_new_guest(admitted("create_vm"), "pve3", vmid(600), &protection, later)),
        kind(permit_cluster_write(admitted("download_iso"), later)),
        decide_approval(&principal, &plan, later).unwrap_err().kind(),
    ];
    assert_eq!(kinds, [DenialKind::TokenExpired; 5]);
    assert!(decide_approval(&principal, &plan, now()).is_ok());
}

fn approver(name: &str, fields: Value) -> Arc<Principal> {
    let mut all = json!({"actor_type": "human", "grant": grant(&["vmid:600-699"], &["read", "destructive"])});
    for (key, value) in fields.as_object().unwrap() {
        all[key] = value.clone();
    }
    principal(name, all)
}

fn approve(approver: &Arc<Principal>, planner: (&str, &str), facts: &GuestFacts) -> Result<(), Denial> {
    let plan =
        ApprovalFacts { planner_name: planner.0, planner_person: planner.1, tier: Tier::Destructive, facts };
    decide_approval(approver, &plan, now()).map(|permit| assert_eq!(permit.approver(), approver))
}

#[test]
fn cs_08_one_person_never_approves_their_own_plan() {
    let ann = approver("ann", json!({}));
    assert!(approve(&ann, ("bob", "bob"), &guest(600)).is_ok());
    for (planner, fields) in [
        (("ann", "ann"), json!({})),
        (("ANN", "ANN"), json!({})),
        (("agent-7", "Ann"), json!({})),
        (("agent-7", "ann@example.org"), json!({"person": "ANN@Example.org"})),
        // The same token under another person's name is still the same token.
        (("Ann", "someone-else"), json!({})),
    ] {
        let denial = approve(&approver("ann", fields), planner, &guest(600)).unwrap_err();
        assert_eq!((denial.kind(), denial.code()), (DenialKind::ApproverIsPlanner, "approver_is_planner"));
        assert!(denial.public_message().contains("different person"), "{denial}");
    }
}

#[test]
fn cs_09_only_a_person_approves() {
    let anonymous = Arc::new(Principal::anonymous_reader());
    let stdio = Arc::new(approver("ann", json!({})).over_stdio());
    for (caller, says) in [
        (approver("bot", json!({"actor_type": "agent"})), "an agent's"),
        (approver("old", json!({"actor_type": null})), "unattributed"),
        (approver("old", json!({"actor_type": "unknown"})), "unattributed"),
        (stdio, "a local process"),
    ] {
        let denial = approve(&caller, ("bob", "bob"), &guest(600)).unwrap_err();
        assert_eq!((denial.kind(), denial.code()), (DenialKind::ApproverNotHuman, "approver_not_human"));
        assert!(
            denial.public_message().contains(says) && denial.public_message().contains("ask a person"),
            "{denial}"
        );
    }
    // The readers without a token lack the tier before anyone asks who they are.
    for caller in [anonymous, Arc::new(Principal::local_reader("stdio"))] {
        assert!(approve(&caller, ("bob", "bob"), &guest(600)).is_err());
        let plan = ApprovalFacts {
            planner_name: "bob",
            planner_person: "bob",
            tier: Tier::Read,
            facts: &guest(600),
        };
        assert_eq!(decide_approval(&caller, &plan, now()).unwrap_err().kind(), DenialKind::ApproverNotHuman);
    }
}

#[test]
fn cs_11_an_approver_must_hold_the_cluster_the_guest_and_the_tier() {
    let elsewhere = GuestFacts { cluster: "pve4".into(), ..guest(600) };
    for (fields, facts) in [
        (json!({}), guest(700)),
        (json!({"grant": null}), guest(600)),
        (json!({"devices": ["pve3"]}), elsewhere),
        (json!({"grant": grant(&["tag:x"], &["destructive"])}), guest(600)),
        // Out of scope comes first: not even an agent learns more.
        (json!({"actor_type": "agent"}), guest(700)),
    ] {
        let denial = approve(&approver("ann", fields.clone()), ("bob", "bob"), &facts).unwrap_err();
        assert_eq!(denial.public_message(), GUEST_REFUSED, "{fields}");
    }
    let reader = approver("ann", json!({"grant": grant(&["*"], &["read", "low"])}));
    assert_eq!(approve(&reader, ("bob", "bob"), &guest(600)).unwrap_err().kind(), DenialKind::TierNotGranted);
    // No op scope is needed: the approver's tools do not matter.
    assert!(approve(&approver("ann", json!({"tools": ["get_vms"]})), ("bob", "bob"), &guest(600)).is_ok());
}

#[test]
fn a_permit_carries_its_reasons() {
    let principal = with_grant(&["tag:web", "vmid:600-699"], &["read", "low"]);
    let permit = plain(&principal, &tool("start_vm"), &tagged(600, &["x", "B", "Protected", "b"])).unwrap();
    let words: Vec<String> = permit.reasons().iter().map(ToString::to_string).collect();
    assert_eq!(
        words,
        [
            "the token names the tool",
            "cluster `pve3` is in the token's scope",
            "selector `vmid:600-699` matches the guest",
            "the grant holds `low`",
            "the guest is protected (its tag `protected` is in `protected_tags`), which does not refuse this tool",
        ]
    );
    let bare = plain(&principal, &tool("start_vm"), &guest(600)).unwrap();
    assert_eq!(bare.reasons().last(), Some(&Reason::NotProtected));
    let reader = Arc::new(Principal::local_reader("stdio"));
    let read = permit_unaddressed(admit(&reader, &tool("get_vms"), None, now()).unwrap()).unwrap();
    assert_eq!(read.reasons(), [Reason::ToolWildcard, Reason::ReadsNoGuest]);
    let write = admit(&token(json!({})), &tool("download_iso"), None, now()).unwrap();
    let write = permit_cluster_write(write, now()).unwrap();
    assert_eq!(write.reasons(), [Reason::ToolNamed, Reason::Tier(Tier::Low), Reason::ChangesNoGuest]);
    let view = Protection::default().describe(&tagged(600, &["protected"]));
    assert_eq!(
        serde_json::to_value(view).unwrap(),
        json!({"protected": true, "causes": ["its tag `protected` is in `protected_tags`"]})
    );
}

#[test]
fn refusals_name_a_remedy_and_who_can_unblock() {
    let none = WaiverSet::empty();
    let overrides = Overrides { waivers: &none, lab_mode: false };
    let all = token(json!({}));
    let denials = [
        admit(&token(json!({"tools": ["*"]})), &tool("stop_vm"), None, now()).unwrap_err(),
        admit(&token(json!({"devices": ["pve4"]})), &tool("get_vms"), Some("pve3"), now()).unwrap_err(),
        plain(&with_grant(&["*"], &["read"]), &tool("stop_vm"), &guest(600)).unwrap_err(),
        both_stages(&all, &tool("stop_vm"), &tagged(600, &["protected"]), &Protection::default(), &overrides)
            .unwrap_err(),
        admit(&Arc::new(Principal::local_reader("stdio")), &tool("stop_vm"), None, now()).unwrap_err(),
    ];
    for denial in denials {
        let text = denial.public_message();
        assert!(text.contains("operator"), "{text}");
        assert_eq!(denial.to_string(), text, "what an error prints is what the caller may read");
        assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
    }
    let anonymous = Arc::new(Principal::anonymous_reader());
    let denial = admit(&anonymous, &tool("stop_vm"), None, now()).unwrap_err();
    assert!(denial.public_message().contains("call with a token"), "{denial}");
    // What a caller sends is never shown raw.
    let hostile = "x\u{1b}[31m\u{202e}".repeat(100);
    let denial =
        admit(&token(json!({"devices": ["a"]})), &tool("get_vms"), Some(&hostile), now()).unwrap_err();
    assert!(denial.public_message().len() < 600 && !denial.public_message().contains('\u{1b}'));
}
