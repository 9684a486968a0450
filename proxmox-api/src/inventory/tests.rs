use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{error::ErrorKind, guest::GuestKind, wire::Field};

fn inventory(rows: &Value) -> Inventory {
    Inventory::parse(json!({ "data": rows }).to_string()).unwrap()
}

fn vmid(number: u32) -> Vmid {
    Vmid::new(number).unwrap()
}

fn node(name: &str, status: &str) -> Value {
    json!({"id": format!("node/{name}"), "type": "node", "node": name, "status": status})
}

fn qemu(number: u32, node: &str) -> Value {
    json!({"id": format!("qemu/{number}"), "type": "qemu", "vmid": number, "node": node, "name": format!("g{number}"),
           "status": "running"})
}

#[test]
fn guests_come_by_number_and_nodes_as_listed() {
    let all = inventory(&json!([
        qemu(300, "pve2"), node("pve2", "online"), {"type": "lxc", "vmid": "101", "node": "pve1", "template": "1"},
        {"type": "storage", "storage": "local", "node": "pve1", "shared": 0, "plugintype": "dir"},
        node("pve1", "online"), {"type": "pool", "pool": "dev", "id": "/pool/dev"}, qemu(200, "pve1"),
    ]));
    let numbers: Vec<u32> = all.guests().filter_map(|guest| Some(guest.vmid()?.get())).collect();
    assert_eq!(numbers, [101, 200, 300]);
    let nodes: Vec<String> = all.nodes().filter_map(|node| Some(node.node()?.into_owned())).collect();
    assert_eq!(nodes, ["pve2", "pve1"]);
    assert_eq!((all.len(), all.skipped(), all.is_empty()), (7, 0, false));
    let Lookup::Guest(guest) = all.guest(vmid(101)) else { panic!("{all:?}") };
    assert_eq!(guest.guest().unwrap().to_string(), "lxc/101 on pve1");
    assert_eq!((guest.guest_kind(), guest.template()), (Some(GuestKind::Lxc), Field::Value(true)));
    assert!(matches!(all.guest(vmid(102)), Lookup::Absent));
    let kinds: Vec<String> = all.entries().map(|entry| entry.kind().to_string()).collect();
    assert_eq!(kinds, ["qemu", "node", "lxc", "storage", "node", "pool", "qemu"]);
}

#[test]
fn px_09_a_number_listed_twice_or_on_a_node_that_is_none_is_a_contradiction() {
    let all = inventory(&json!([
        node("pve1", "online"), node("pve2", "online"), qemu(100, "pve1"),
        {"type": "lxc", "vmid": 100, "node": "pve2"}, qemu(101, "pve9"), qemu(102, "PVE1"), qemu(103, "../../x"),
        qemu(104, "pve1/../pve2"), qemu(105, "pve1\n"), qemu(106, "pve1"), qemu(106, "pve1"),
    ]));
    let contradiction = |number| match all.guest(vmid(number)) {
        Lookup::Contradiction(what) => Some(what),
        _ => None,
    };
    assert_eq!(contradiction(100), Some(Contradiction::Repeated));
    assert_eq!(contradiction(106), Some(Contradiction::Repeated), "also where both say the same");
    assert_eq!(contradiction(101), Some(Contradiction::UnknownNode));
    assert_eq!(contradiction(102), Some(Contradiction::UnknownNode), "names of nodes are case sensitive");
    for hostile in [103, 104, 105] {
        assert!(matches!(all.guest(vmid(hostile)), Lookup::Absent), "{hostile}");
    }
    assert_eq!(all.skipped(), 3);
    assert_eq!(all.numbered(vmid(100)).count(), 2);
    assert!(Contradiction::Repeated.to_string().contains("more than once"));
}

/// A09: guests of an offline node have neither name nor state, and are there all the same.
#[test]
fn guests_of_an_offline_node_are_found_by_number_and_doubted_by_name() {
    let all = inventory(&json!([
        {"id": "qemu/1002", "vmid": 1002, "node": "n2", "type": "qemu", "status": "unknown"},
        {"id": "qemu/101", "vmid": 101, "node": "n1", "name": "web", "type": "qemu", "status": "running"},
        {"type": "node", "node": "n2", "status": "offline"}, node("n1", "online"),
    ]));
    let web = all.named("web");
    assert_eq!((web.guests.len(), web.unnamed), (1, 1));
    assert_eq!(web.guests[0].vmid(), Some(vmid(101)));
    assert_eq!((all.named("db").guests.len(), all.named("db").unnamed), (0, 1), "one of them may be it");
    let Lookup::Guest(away) = all.guest(vmid(1002)) else { panic!("{all:?}") };
    assert_eq!(
        (all.node_is_online(away), away.name(), away.status().as_deref()),
        (Some(false), None, Some("unknown"))
    );
    let Lookup::Guest(here) = all.guest(vmid(101)) else { panic!("{all:?}") };
    assert_eq!(all.node_is_online(here), Some(true));
}

/// A10: what an offline node does not tell is not 0. A49: nor is the size of a storage in an unknown state.
#[test]
fn what_is_not_told_is_unknown() {
    let all = inventory(&json!([
        {"type": "node", "node": "n1", "status": "offline"},
        {"type": "node", "node": "n2", "status": "online", "cpu": 0.02, "maxcpu": 4, "mem": 4e9, "maxmem": 8e9},
        {"storage": "lvm1", "node": "n2", "status": "unknown", "plugintype": "lvm", "type": "storage"},
    ]));
    let [away, here, storage] = all.entries().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((away.cpu(), away.mem(), away.maxmem(), away.uptime()), (None, None, None, None));
    assert_eq!((here.cpu(), here.maxcpu(), here.mem()), (Some(0.02), Some(4.0), Some(4_000_000_000)));
    assert_eq!(
        (storage.disk(), storage.maxdisk(), storage.status().as_deref()),
        (None, None, Some("unknown"))
    );
    assert_eq!(storage.storage().unwrap().as_str(), "lvm1");
}

/// A05: one odd record never hides the others.
#[test]
fn px_06_an_odd_column_costs_neither_entry_nor_list() {
    let text = r#"{"data":[
        {"type":"qemu","vmid":"201","node":"pve1","name":"\u0077eb","status":null,"tags":7,"pool":null,"template":"","cpu":"0.5","mem":1e400},
        {"type":"qemu","vmid":202,"node":"pve\u0031","name":"\ud800","template":"maybe","mem":"77","maxmem":18446744073709551615,"x":[[{}]]},
        {"type":"lxc","vmid":203,"node":null}, {"type":"lxc","vmid":99,"node":"pve1"}, {"type":"lxc","vmid":"0204","node":"pve1"},
        {"type":null,"vmid":205}, {"vmid":206}, null, 7, 1e400, "\ud800", [], [{"type":"node","node":"a"}],
        {"type":"qemu","vmid":1,"\u0076mid":207,"node":"x y","node":"pve1"},
        {"type":"node","node":"pve1","status":"online","level":""}
    ], "total": 3}"#;
    let all = Inventory::parse(text).unwrap();
    assert_eq!((all.len(), all.skipped()), (4, 11));
    let at = |number| match all.guest(vmid(number)) {
        Lookup::Guest(guest) => guest,
        other => panic!("{number}: {other:?}"),
    };
    let first = at(201);
    assert_eq!(
        (first.name().as_deref(), first.status(), first.cpu(), first.mem()),
        (Some("web"), None, Some(0.5), None)
    );
    assert_eq!(first.tags().value().map(ToString::to_string).as_deref(), Some("7"));
    assert_eq!((first.pool(), first.template()), (Field::Unreadable, Field::Value(false)));
    let second = at(202);
    assert_eq!(
        (second.name(), second.node().as_deref(), second.template()),
        (None, Some("pve1"), Field::Unreadable)
    );
    assert_eq!((second.mem(), second.maxmem(), second.tags()), (Some(77), Some(u64::MAX), Field::Absent));
    assert_eq!(at(207).node().as_deref(), Some("pve1"), "of a repeated key the last one counts");
}

#[test]
fn px_04_what_is_no_answer_is_refused_and_a_repeated_list_is_read_once() {
    for body in [
        "",
        "null",
        "[]",
        "{}",
        "<html>",
        "{\"data\":",
        "{\"data\":null}",
        "{\"data\":{}}",
        "{\"data\":[],}",
        "{\"data\":[]}x",
        "{\"data\":[],\"data\":5}",
        "{\"data\":[NaN]}",
        "{\"data\":[{\"a\":1 \"b\":2}]}",
    ] {
        let error = Inventory::parse(body).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{body}");
    }
    let deep = format!(
        "{{\"data\":[{{\"type\":\"node\",\"node\":\"a\",\"x\":{}{}}}]}}",
        "[".repeat(126),
        "]".repeat(126)
    );
    assert!(Inventory::parse(deep.clone()).unwrap_err().message().contains("128"), "{deep}");
    assert_eq!(Inventory::parse(deep.replace("[[", "[").replace("]]", "]")).unwrap().len(), 1);
    let many = |n: usize| format!("{{\"data\":[{}]}}", vec!["{}"; n].join(","));
    assert_eq!(Inventory::parse(many(100_000)).unwrap().skipped(), 100_000);
    assert!(Inventory::parse(many(100_001)).unwrap_err().message().contains("more than 100000 entries"));
    let twice = r#"{"data":[{"type":"node","node":"a"}],"d\u0061ta":[{"type":"node","node":"b"}]}"#;
    let twice = Inventory::parse(twice).unwrap();
    assert_eq!((twice.len(), twice.nodes().count()), (1, 1));
    let marked = b"\xef\xbb\xbf{\"data\":[{\"type\":\"node\",\"node\":\"a\",\"status\":\"\xff\"}]}".to_vec();
    let marked = Inventory::parse(marked).unwrap();
    assert_eq!(marked.nodes().next().unwrap().status().as_deref(), Some("?"));
}

/// An entry with any of its columns swapped for something else.
fn odd_entry() -> impl Strategy<Value = (String, Value)> {
    let column = prop_oneof![
        Just("name"),
        Just("status"),
        Just("tags"),
        Just("pool"),
        Just("template"),
        Just("lock"),
        Just("cpu"),
        Just("maxcpu"),
        Just("mem"),
        Just("maxmem"),
        Just("disk"),
        Just("maxdisk"),
        Just("uptime"),
        Just("hastate"),
        Just("id"),
    ];
    let value = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,10}|[0-9.e+-]{0,8}".prop_map(Value::from),
        Just(json!({"a": [1, {"b": null}]})),
        Just(json!([[], "x"])),
        "x{2000}".prop_map(Value::from),
    ];
    (column.prop_map(str::to_owned), value)
}

proptest! {
    /// The mutations of a listing's columns never lose a guest, and a record of its own says what the entry says.
    #[test]
    fn px_06_any_value_in_any_column_keeps_the_guest(odd in proptest::collection::vec(odd_entry(), 1..6)) {
        let mut row = qemu(100, "pve1");
        for (column, value) in odd {
            row[column.as_str()] = value;
        }
        let all = inventory(&json!([node("pve1", "online"), row, qemu(101, "pve1")]));
        prop_assert_eq!((all.len(), all.skipped(), all.guests().count()), (3, 0, 2));
        let Lookup::Guest(guest) = all.guest(vmid(100)) else { panic!("{all:?}") };
        prop_assert!(guest.cpu().is_none_or(f64::is_finite));
        let owned = guest.to_resource();
        prop_assert_eq!(&owned.name, &guest.name().map(std::borrow::Cow::into_owned));
        prop_assert_eq!((owned.mem, owned.template, owned.tags), (guest.mem(), guest.template(), guest.tags()));
    }

    #[test]
    fn px_06_any_body_is_an_inventory_or_an_error(body in "\\PC{0,60}|\\{\"data\":\\[\\{\\PC{0,40}\\}\\]\\}") {
        if let Ok(all) = Inventory::parse(body) {
            prop_assert!(all.guests().all(|guest| guest.guest().is_some()));
        }
    }
}
