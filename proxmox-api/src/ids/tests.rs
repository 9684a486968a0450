use proptest::prelude::*;

use super::*;

/// Texts that must not reach a request line, whatever id they are taken for.
const HOSTILE: &[&str] = &[
    "",
    " ",
    "a/b",
    "../x",
    "..",
    "a%2fb",
    "a?b",
    "a#b",
    "ab\r\nHost: evil",
    "ab\n",
    "ab\0",
    "ａｂ",
    "１００",
    "١٠٠",
    "100\n",
    "100 ",
    "+100",
    "0100",
    "1e3",
    "0x64",
    "100.0",
];

#[test]
fn px_07_no_hostile_text_is_an_id() {
    for text in HOSTILE {
        assert!(text.parse::<Vmid>().is_err(), "vmid {text:?}");
        assert!(text.parse::<Upid>().is_err(), "upid {text:?}");
        assert!(text.parse::<Volid>().is_err(), "volid {text:?}");
        if !text.starts_with('0') && !text.starts_with('1') {
            assert!(text.parse::<NodeName>().is_err(), "node {text:?}");
        }
        assert!(text.parse::<StorageId>().is_err(), "storage {text:?}");
        assert!(text.parse::<SnapName>().is_err(), "snapshot {text:?}");
    }
    for text in ["100\n", "100 ", "+100", "100.0", "pve1.example", "-pve", "pve-", "pve_1"] {
        assert!(text.parse::<NodeName>().is_err(), "node {text:?}");
    }
    for volume in ["iso/../x", "/etc/passwd", "a//b", "a/", ".", "a%2fb", "a?b", "a#b", "a\nb", "a\n", "a\\b"]
    {
        assert!(format!("local:{volume}").parse::<Volid>().is_err(), "volume {volume:?}");
    }
}

#[test]
fn the_error_names_what_was_expected_and_escapes_what_was_given() {
    let error = "10\n".parse::<Vmid>().unwrap_err();
    assert_eq!(error.what(), "a guest number");
    assert_eq!(
        error.to_string(),
        r#""10\n" is not a guest number: expected digits from 100 to 999999999 without a leading zero"#
    );
    let long = "x".repeat(10_000).parse::<SnapName>().unwrap_err();
    assert!(long.to_string().len() < 250, "{long}");
}

#[test]
fn vmid_range() {
    assert_eq!("100".parse::<Vmid>().unwrap(), Vmid::MIN);
    assert_eq!("999999999".parse::<Vmid>().unwrap(), Vmid::MAX);
    for text in ["99", "1000000000", "4294967396", "0"] {
        assert!(text.parse::<Vmid>().is_err(), "{text}");
    }
    assert!(Vmid::new(99).is_err() && Vmid::try_from(1_000_000_000).is_err());
    assert_eq!(u32::from(Vmid::MIN), Vmid::MIN.get());
}

#[test]
fn snapshot_names() {
    for name in ["s1", "before-upgrade", "Clean_2", &"a".repeat(40)] {
        assert_eq!(name.parse::<SnapName>().unwrap().as_str(), name);
    }
    for name in ["s", "1s", "_s", "a.b", &"a".repeat(41), "current", "Current", "pending", "vzdump"] {
        assert!(name.parse::<SnapName>().is_err(), "{name}");
    }
}

#[test]
fn px_07_a_volume_id_leads_nowhere_else() {
    for volume in
        ["../x", "iso/../x", "iso/..", "./x", "iso//x", "/x", "iso/", ":../x", "a:../x", "a/..:b", "..", ":."]
    {
        assert!(format!("local:{volume}").parse::<Volid>().is_err(), "{volume}");
    }
    for volume in ["iso/..x", "iso/x..", "iso/...", "a:b", "vm-100-disk-0:1"] {
        assert!(format!("local:{volume}").parse::<Volid>().is_ok(), "{volume}");
    }
}

#[test]
fn volume_ids_of_every_kind_of_storage() {
    for (text, storage, volume) in [
        ("local:iso/debian.iso", "local", "iso/debian.iso"),
        ("local-lvm:vm-100-disk-0", "local-lvm", "vm-100-disk-0"),
        (
            "local:9000/base-9000-disk-0.qcow2/123/vm-123-disk-0.qcow2",
            "local",
            "9000/base-9000-disk-0.qcow2/123/vm-123-disk-0.qcow2",
        ),
        ("pbs1:backup/vm/901/2026-03-04T05:06:07Z", "pbs1", "backup/vm/901/2026-03-04T05:06:07Z"),
        ("pbs1:backup/ns1/ct/5/2026-01-01T00:00:00Z", "pbs1", "backup/ns1/ct/5/2026-01-01T00:00:00Z"),
        ("local:iso/größe 1.iso", "local", "iso/größe 1.iso"),
    ] {
        let volid: Volid = text.parse().unwrap();
        assert_eq!((volid.storage().as_str(), volid.volume()), (storage, volume));
        assert_eq!(volid.to_string(), text);
    }
}

#[test]
fn tags_split_at_every_separator() {
    let expected = Tags::parse("web;prod");
    for text in ["web,prod", "web prod", ";web;;prod;", "prod;web;web", "web\0prod\n"] {
        assert_eq!(Tags::parse(text), expected, "{text:?}");
    }
    assert_eq!(expected.to_string(), "prod;web");
    assert!(expected.contains("web") && !expected.contains("we") && !expected.contains("Web"));
    assert!(Tags::parse(" ;, ").is_empty());
}

#[test]
fn a_upid_tells_what_it_is_about() {
    let text = "UPID:pve1:00007CF2:00041584:6B0CE067:qmstart:102:root@pam!full:";
    let upid: Upid = text.parse().unwrap();
    assert_eq!(upid.node().as_str(), "pve1");
    assert_eq!((upid.pid(), upid.pstart(), upid.starttime()), (31986, 267_652, 1_796_005_991));
    assert_eq!((upid.kind(), upid.id(), upid.user()), ("qmstart", "102", "root@pam!full"));
    assert_eq!(upid.guest(), Some(Vmid::new(102).unwrap()));
    assert_eq!(upid.to_string(), text);
}

#[test]
fn the_guest_of_a_task_is_decided_by_its_type() {
    let guest = |kind: &str, id: &str| {
        let text = format!("UPID:pve1:00000001:000000001:00000001:{kind}:{id}:root@pam:");
        text.parse::<Upid>().unwrap().guest().map(Vmid::get)
    };
    for kind in
        ["qmdestroy", "qmigrate", "vzrestore", "vzdump", "hastart", "resize", "move_volume", "push_file"]
    {
        assert_eq!(guest(kind, "200"), Some(200), "{kind}");
    }
    assert_eq!(guest("cephdestroyosd", "300"), None);
    assert_eq!(guest("imgcopy", "300"), None);
    assert_eq!(guest("vzdump", ""), None);
    assert_eq!(guest("qmstart", "0100"), None);
}

#[test]
fn gr_15_what_is_no_upid_is_refused() {
    let good = "UPID:pve1:00007CF2:00041584:6B0CE067:qmstart:102:root@pam:";
    assert!(good.parse::<Upid>().is_ok());
    let bad = [
        good.trim_end_matches(':').to_owned(),
        format!("{good}\n"),
        format!("\n{good}"),
        format!("{good}:"),
        format!("{good}x"),
        good.replace("UPID", "upid"),
        good.replace("pve1", "../x"),
        good.replace("pve1", ""),
        good.replace("pve1", "pve1\n"),
        good.replace("00007CF2", "7CF2"),
        good.replace("00007CF2", "+0007CF2"),
        good.replace("00041584", "0000041584"),
        good.replace("6B0CE067", "6B0CE06G"),
        good.replace("qmstart", ""),
        good.replace("qmstart", "qm/start"),
        good.replace("102", "1 02"),
        good.replace("102", "../../x"),
        good.replace("root@pam", ""),
        good.replace("root@pam", "root@pam\r"),
        good.replace("root@pam", &"x".repeat(600)),
    ];
    for text in bad {
        assert!(text.parse::<Upid>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_vmid_in_range_reads_back(number in 100u32..=999_999_999) {
        prop_assert_eq!(number.to_string().parse::<Vmid>().unwrap().get(), number);
    }

    #[test]
    fn what_parses_prints_as_it_came(text in "\\PC{0,40}|UPID(:[0-9A-Fa-z@!.-]{0,9}){0,9}:?\n?") {
        macro_rules! same {
            ($($id:ty),*) => {$(
                if let Ok(id) = text.parse::<$id>() {
                    prop_assert_eq!(id.to_string(), text.clone());
                    prop_assert!(!text.contains(char::is_control));
                }
            )*};
        }
        same!(Vmid, NodeName, StorageId, SnapName, Volid, Upid, Digest);
    }

    #[test]
    fn every_upid_of_the_right_form_parses(
        node in "[a-z]([a-z0-9-]{0,10}[a-z0-9])?",
        pid: u32,
        pstart in 0u64..0x10_0000_0000,
        start: u32,
        kind in "[a-z_-]{1,12}",
        id in "[A-Za-z0-9@.-]{0,12}",
        user in "[a-z]{1,8}@[a-z]{2,4}(![a-z]{2,6})?",
    ) {
        let text = format!("UPID:{node}:{pid:08X}:{pstart:08X}:{start:08X}:{kind}:{id}:{user}:");
        let upid: Upid = text.parse().unwrap();
        prop_assert_eq!(upid.to_string(), text);
        prop_assert_eq!((upid.pid(), upid.pstart(), upid.starttime()), (pid, pstart, start));
        prop_assert_eq!((upid.kind(), upid.id(), upid.user()), (kind.as_str(), id.as_str(), user.as_str()));
    }

    #[test]
    fn tags_read_back(tags in proptest::collection::btree_set("[a-zA-Z0-9_][a-zA-Z0-9_.+-]{0,8}", 0..6)) {
        let tags: Tags = tags.into_iter().collect();
        prop_assert_eq!(Tags::parse(&tags.to_string()), tags);
    }
}

#[test]
fn the_guest_task_types_are_sorted_for_the_search() {
    assert!(upid::GUEST_TASKS.is_sorted());
}
