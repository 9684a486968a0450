//! Changes of firewalls.

use proxmox_api::{
    Effect, ErrorKind, Field, FirewallOption, FirewallOptionsUpdate, FirewallRule, FirewallScope, GuestKind,
    NewRule, Policy, RuleAction,
};

use crate::{Setup, guest, setup};

async fn rules(setup: &Setup, scope: &FirewallScope) -> Vec<FirewallRule> {
    setup.client.firewall_rules(scope).await.unwrap().items
}

fn comments(rules: &[FirewallRule]) -> Vec<&str> {
    rules.iter().map(|rule| rule.comment.as_deref().unwrap_or("-")).collect()
}

fn rule(comment: &str) -> NewRule {
    let mut rule = NewRule::new(RuleAction::In(Policy::Accept));
    rule.proto = Some("tcp".to_owned());
    rule.dport = Some("8006".to_owned());
    rule.comment = Some(comment.to_owned());
    rule
}

#[tokio::test]
async fn rules_are_added_in_front_and_changed_by_position_and_digest() {
    let setup = setup().await;
    let client = &setup.client;
    let scope = FirewallScope::Guest(guest("pve2", GuestKind::Qemu, 104));
    for comment in ["c", "b", "a; with = & odd \u{e4}"] {
        client.add_firewall_rule(&scope, &rule(comment), None).await.unwrap();
    }
    let before = rules(&setup, &scope).await;
    assert_eq!(comments(&before), ["a; with = & odd \u{e4}", "b", "c"]);
    assert!(before.iter().all(|rule| rule.enable == Field::Value(true)), "PVE's own default is off");
    let digest = before[0].digest.clone().unwrap();

    client.move_firewall_rule(&scope, 0, 3, &digest).await.unwrap();
    let moved = rules(&setup, &scope).await;
    assert_eq!(comments(&moved)[2], "a; with = & odd \u{e4}");

    // Whoever still has the old list is told so, and nothing happens.
    let error = client.delete_firewall_rule(&scope, 0, &digest).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Changed, Effect::Refused), "{error}");
    assert_eq!(rules(&setup, &scope).await.len(), 3);

    let digest = moved[0].digest.clone().unwrap();
    let mut bare = NewRule::new(RuleAction::Out(Policy::Drop));
    bare.enable = false;
    client.replace_firewall_rule(&scope, 1, &bare, &digest).await.unwrap();
    let replaced = rules(&setup, &scope).await;
    assert_eq!((replaced[1].kind.as_deref(), replaced[1].action.as_deref()), (Some("out"), Some("DROP")));
    assert_eq!(replaced[1].enable.or_default(false), Some(false));
    assert_eq!((&replaced[1].proto, &replaced[1].dport, &replaced[1].comment), (&None, &None, &None));

    let digest = replaced[0].digest.clone().unwrap();
    client.enable_firewall_rule(&scope, 0, false, &digest).await.unwrap();
    let disabled = rules(&setup, &scope).await;
    assert_eq!(disabled[0].enable.or_default(false), Some(false));
    assert_eq!(disabled[0].dport.as_deref(), Some("8006"));
    for _ in 0..3 {
        let digest = rules(&setup, &scope).await[0].digest.clone().unwrap();
        client.delete_firewall_rule(&scope, 0, &digest).await.unwrap();
    }
    assert!(rules(&setup, &scope).await.is_empty());
}

#[tokio::test]
async fn what_a_rule_refers_to_has_to_be_there() {
    let setup = setup().await;
    let client = &setup.client;
    let mut new = rule("x");
    new.source = Some("+nowhere".to_owned());
    let error = client.add_firewall_rule(&FirewallScope::Cluster, &new, None).await.unwrap_err();
    assert_eq!((error.kind(), error.effect()), (ErrorKind::Parameter, Effect::Refused), "{error}");
    assert!(error.parameter_errors().contains_key("source"), "{error}");
    new.proto = None;
    let error = client.add_firewall_rule(&FirewallScope::Cluster, &new, None).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotSent, "{error}");
}

#[tokio::test]
async fn aliases_sets_and_groups_come_and_go() {
    let setup = setup().await;
    let client = &setup.client;
    for scope in [FirewallScope::Cluster, FirewallScope::Guest(guest("pve2", GuestKind::Qemu, 104))] {
        let (lan, renamed) = ("lan0".parse().unwrap(), "lan1".parse().unwrap());
        let network = "10.9.0.0/16".parse().unwrap();
        client.create_firewall_alias(&scope, &lan, &network, Some("office")).await.unwrap();
        let alias = client.firewall_alias(&scope, &lan).await.unwrap();
        assert_eq!((alias.cidr.as_deref(), alias.comment.as_deref()), (Some("10.9.0.0/16"), Some("office")));
        let digest = client.firewall_aliases(&scope).await.unwrap().items[0].digest.clone().unwrap();
        let other = "10.8.0.0/16".parse().unwrap();
        client.update_firewall_alias(&scope, &lan, &other, None, Some(&renamed), &digest).await.unwrap();
        assert_eq!(
            client.firewall_alias(&scope, &renamed).await.unwrap().cidr.as_deref(),
            Some("10.8.0.0/16")
        );

        let set = "admins0".parse().unwrap();
        client.create_ipset(&scope, &set, Some("who may")).await.unwrap();
        let network = "192.0.2.0/24".parse().unwrap();
        let exception = "192.0.2.9".parse().unwrap();
        client.add_ipset_entry(&scope, &set, &network, false, None).await.unwrap();
        client.add_ipset_entry(&scope, &set, &exception, true, Some("not them")).await.unwrap();
        let entries = client.ipset_entries(&scope, &set).await.unwrap();
        assert_eq!(entries.iter().filter(|entry| entry.nomatch == Field::Value(true)).count(), 1);
        let error = client.delete_ipset(&scope, &set, false).await.unwrap_err();
        assert!(error.message().contains("is not empty"), "{error}");
        client.update_ipset_entry(&scope, &set, &network, false, Some("all"), None).await.unwrap();
        // The slash of a network is part of one segment of the path.
        client.delete_ipset_entry(&scope, &set, &network, None).await.unwrap();
        assert_eq!(client.ipset_entries(&scope, &set).await.unwrap().len(), 1);
        client.delete_ipset(&scope, &set, true).await.unwrap();
        client.delete_firewall_alias(&scope, &renamed, None).await.unwrap();
    }

    let (db, renamed) = ("db0".parse().unwrap(), "db1".parse().unwrap());
    client.create_security_group(&db, None).await.unwrap();
    let groups = client.security_groups().await.unwrap();
    let digest = groups.iter().find(|group| group.group == db).unwrap().digest.clone().unwrap();
    client.update_security_group(&db, &renamed, Some("databases"), &digest).await.unwrap();
    let scope = FirewallScope::Group(renamed.clone());
    client.add_firewall_rule(&scope, &rule("in the group"), None).await.unwrap();
    let error = client.delete_security_group(&renamed).await.unwrap_err();
    assert!(error.message().contains("is not empty"), "{error}");
    let digest = rules(&setup, &scope).await[0].digest.clone().unwrap();
    client.delete_firewall_rule(&scope, 0, &digest).await.unwrap();
    client.delete_security_group(&renamed).await.unwrap();
    assert!(client.security_groups().await.unwrap().iter().all(|group| group.group != renamed));
}

#[tokio::test]
async fn options_are_set_and_unset_where_the_scope_has_them() {
    let setup = setup().await;
    let client = &setup.client;
    let scratch = FirewallScope::Guest(guest("pve2", GuestKind::Qemu, 104));
    let update = FirewallOptionsUpdate {
        enable: Some(true),
        policy_in: Some(Policy::Drop),
        dhcp: Some(false),
        ..FirewallOptionsUpdate::default()
    };
    client.update_firewall_options(&scratch, &update, None).await.unwrap();
    let options = client.firewall_options(&scratch).await.unwrap();
    assert_eq!((options.enable, options.policy_in.as_deref()), (Field::Value(true), Some("DROP")));
    let digest = options.digest.clone();
    let unset =
        FirewallOptionsUpdate { unset: vec![FirewallOption::PolicyIn], ..FirewallOptionsUpdate::default() };
    client.update_firewall_options(&scratch, &unset, digest.as_ref()).await.unwrap();
    assert_eq!(client.firewall_options(&scratch).await.unwrap().policy_in, None);
    let error = client.update_firewall_options(&scratch, &update, digest.as_ref()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");

    let node = FirewallScope::Node("pve1".parse().unwrap());
    let error = client.update_firewall_options(&node, &update, None).await.unwrap_err();
    assert_eq!(error.effect(), Effect::NotSent, "a node has no policy: {error}");
    let on = FirewallOptionsUpdate { enable: Some(true), ..FirewallOptionsUpdate::default() };
    client.update_firewall_options(&FirewallScope::Cluster, &on, None).await.unwrap();
    assert_eq!(client.firewall_options(&FirewallScope::Cluster).await.unwrap().enable, Field::Value(true));
}
