use http::StatusCode;
use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::*;
use crate::error::{Effect, Error, ErrorKind};

const SECRET: &str = "5ec2e700-1111-2222-3333-444444444444";

fn scrubber() -> Scrubber {
    Scrubber::new(SecretString::from(SECRET))
}

fn reply(body: &str) -> Reply {
    Reply::new(body.as_bytes().to_vec(), Effect::Unknown, scrubber(), "GET /x".to_owned())
}

fn refused(status: u16, reason: Option<&str>, body: &str) -> Error {
    let status = StatusCode::from_u16(status).unwrap();
    refusal(status, reason.map(str::as_bytes), body.as_bytes().to_vec(), true, &scrubber())
}

/// Reads one field of `{"f": value}`.
fn field<T>(value: &str, read: impl FnOnce(&Record<'_>) -> T) -> T {
    let body = format!("{{\"data\":{{\"f\":{value}}}}}");
    reply(&body).record(|record| Ok(read(record))).unwrap()
}

#[test]
fn px_06_flags_in_every_spelling() {
    for yes in ["1", "\"1\"", "true", "\"true\"", "\"yes\"", "\"on\"", "1.0"] {
        assert_eq!(field(yes, |r| r.flag("f")), Field::Value(true), "{yes}");
    }
    for no in ["0", "\"0\"", "false", "\"\"", "\"no\"", "\"off\"", "0.0", "-0"] {
        assert_eq!(field(no, |r| r.flag("f")), Field::Value(false), "{no}");
    }
    for odd in ["null", "2", "-1", "\"maybe\"", "[]", "{}", "1e400"] {
        assert_eq!(field(odd, |r| r.flag("f")), Field::Unreadable, "{odd}");
    }
    assert_eq!(field("1", |r| r.flag("g")), Field::Absent);
}

#[test]
fn px_06_counters_in_every_spelling() {
    for (text, expected) in [
        ("0", Some(0)),
        ("\"77001\"", Some(77001)),
        ("50000000001", Some(50_000_000_001)),
        ("18446744073709551615", Some(u64::MAX)),
        ("\"18446744073709551615\"", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("9.1e15", Some(9_100_000_000_000_000)),
        ("4e9", Some(4_000_000_000)),
        ("123.9", Some(123)),
        ("\" 15 \"", Some(15)),
        ("-1", None),
        ("1e400", None),
        ("\"NaN\"", None),
        ("\"inf\"", None),
        ("\"\"", None),
        ("null", None),
        ("true", None),
        ("[1]", None),
    ] {
        assert_eq!(field(text, |r| r.integer("f")), expected, "{text}");
    }
    assert_eq!(field("\"0.0125\"", |r| r.float("f")), Some(0.0125));
    assert_eq!(field("1e400", |r| r.float("f")), None);
    assert_eq!(field("\"nan\"", |r| r.float("f")), None);
}

#[test]
fn px_06_an_odd_field_never_loses_an_entry() {
    let body = r#"{"data":[
        {"vmid":201,"name":"a","pid":1410},
        {"vmid":"202","name":null,"pid":null},
        {"vmid":203,"name":{"x":[1]},"pid":1e400,"name":["y"]},
        {"vmid":204,"name":"\ud800","pid":"x"},
        {"vmid":0,"name":"no number"},
        {"name":"no number"},
        null, 7, []
    ],"total":"9"}"#;
    let list = reply(body)
        .list(|row| Some((row.id::<crate::Vmid>("vmid")?, row.filled("name"), row.integer("pid"))))
        .unwrap();
    let numbers: Vec<u32> = list.iter().map(|row| row.0.get()).collect();
    assert_eq!(numbers, [201, 202, 203, 204]);
    assert_eq!(list.items[0].1.as_deref(), Some("a"));
    assert_eq!((list.skipped, list.total), (5, Some(9)));
}

#[test]
fn px_06_what_is_no_answer_is_an_error() {
    for body in ["", "null", "[]", "{}", "<html>", "{\"data\":", "{\"x\":1}", "\u{0}"] {
        let error = reply(body).list(|_| Some(())).unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Malformed, Effect::Unknown), "{body:?}");
    }
    for body in ["{\"data\":null}", "{\"data\":5}", "{\"data\":{}}"] {
        assert!(reply(body).list(|_| Some(())).is_err(), "{body}");
        assert!(reply(body).upid().is_err(), "{body}");
    }
    let error = reply("{\"data\":null,\"message\":\"VM 1 is odd\\n\"}").upid().unwrap_err();
    assert!(error.message().contains("VM 1 is odd"), "{error}");
    let error = reply("{\"data\":\"generating ISO\\nUPID:pve1:\"}").upid().unwrap_err();
    assert!(error.message().contains("generating ISO"), "{error}");
}

#[test]
fn invalid_utf_8_and_a_byte_order_mark_cost_nothing_else() {
    let mut body = b"\xef\xbb\xbf{\"data\":[{\"n\":\"a\"},{\"n\":\"b\xff\"}]}".to_vec();
    let read = |body: &[u8]| {
        Reply::new(body.to_vec(), Effect::Refused, scrubber(), String::new())
            .list(|row| row.filled("n"))
            .unwrap()
            .items
    };
    assert_eq!(read(&body), ["a", "b?"]);
    body.drain(..3);
    assert_eq!(read(&body), ["a", "b?"]);
    // A character cut off, one too long, and a lone half: every byte in its own place.
    let odd = b"{\"data\":[{\"n\":\"\xc3\xa9\xe2\x82|\xc0\xaf|\xed\xa0\x80|\xf0\"}]}";
    assert_eq!(read(odd), ["é??|??|???|?"]);
}

#[test]
fn px_04_depth_is_an_error_and_repeated_keys_do_no_harm() {
    // The answer, the list and the entry are three levels.
    let deep =
        |levels| format!("{{\"data\":[{{\"n\":\"a\",\"x\":{}{}}}]}}", "[".repeat(levels), "]".repeat(levels));
    assert_eq!(reply(&deep(125)).list(|row| row.filled("n")).unwrap().items, ["a"]);
    for levels in [126, 100_000] {
        let error = reply(&deep(levels)).list(|row| row.filled("n")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        assert!(error.message().contains("128 levels"), "{error}");
        // Nor is the text of an error dug out of such a body.
        let refusal = deep(levels).replacen("{", "{\"message\":\"x\",", 1);
        assert_eq!(refused(500, Some("why"), &refusal).message(), "why");
    }
    let twice = r#"{"data":[{"n":"a","n":"b"}],"data":[{"n":"c","\u006e":"d"}]}"#;
    assert_eq!(reply(twice).list(|row| row.filled("n")).unwrap().items, ["d"]);
}

#[test]
fn px_04_how_many_entries_and_fields_there_may_be() {
    let rows = |n: usize| format!("{{\"data\":[{}]}}", vec!["{\"n\":\"a\"}"; n].join(","));
    assert_eq!(reply(&rows(ENTRIES_CAP)).list(|row| row.filled("n")).unwrap().len(), ENTRIES_CAP);
    let error = reply(&rows(ENTRIES_CAP + 1)).list(|row| row.filled("n")).unwrap_err();
    assert!(error.message().contains("more than 100000 entries"), "{error}");
    let fields = |n: usize| {
        let fields: Vec<String> = (0..n).map(|n| format!("\"f{n}\":0")).collect();
        format!("{{\"data\":{{{}}}}}", fields.join(","))
    };
    assert!(reply(&fields(10_000)).record(|_| Ok(())).is_ok());
    assert_eq!(reply(&fields(10_001)).record(|_| Ok(())).unwrap_err().kind(), ErrorKind::Malformed);
}

/// A35: a proxy in between, or HTTP/2, leaves nothing of the reason phrase.
#[test]
fn the_text_of_an_error_comes_from_the_first_place_that_has_one() {
    let moved =
        r#"{"data":null,"message":"Configuration file 'nodes/n1/qemu-server/153.conf' does not exist\n"}"#;
    for reason in [Some("Internal Server Error"), Some(""), None] {
        let error = refused(500, reason, moved);
        assert_eq!((error.kind(), error.is_missing_guest()), (ErrorKind::NotFound, true), "{error}");
    }
    let named = refused(400, Some("Bad Request"), r#"{"data":null,"errors":{"vmid":"too small"}}"#);
    assert!(named.to_string().contains("vmid: too small"), "{named}");

    let body =
        r#"{"data":null,"message":"Parameter verification failed.\n","errors":{"vmid":"too small","x":3}}"#;
    let error = refused(400, Some("Bad"), body);
    assert_eq!(error.message(), "Parameter verification failed.");
    assert_eq!(error.parameter_errors()["vmid"], "too small");
    assert_eq!(error.parameter_errors()["x"], "3");
    assert_eq!(error.to_string(), "400 Parameter verification failed. (vmid: too small; x: 3)");

    assert_eq!(
        refused(500, Some("VM is locked (backup)"), "{\"data\":null}").message(),
        "VM is locked (backup)"
    );
    assert_eq!(refused(500, Some("from the reason"), "{\"message\":\" \\n\"}").message(), "from the reason");
    assert_eq!(refused(500, Some(""), "").message(), "Internal Server Error");
    assert_eq!(refused(500, None, "<html>Bad gateway</html>").message(), "Internal Server Error");
    assert!(refused(595, None, "").message().contains("could not connect"));
    assert_eq!(refused(418 + 300, None, "").message(), "no reason was given");
}

#[test]
fn kinds_by_status_and_text() {
    for (status, text, kind) in [
        (401, "No ticket", ErrorKind::Unauthorized),
        (403, "Permission check failed (/vms/100, VM.Audit)", ErrorKind::PermissionDenied),
        (400, "Parameter verification failed.", ErrorKind::Parameter),
        (501, "Method 'GET /foo' not implemented", ErrorKind::Unsupported),
        (501, "for data too large", ErrorKind::Server),
        (595, "Connection refused", ErrorKind::NodeUnreachable),
        (596, "Connection timed out", ErrorKind::NodeUnreachable),
        (599, "", ErrorKind::NodeUnreachable),
        (596, "no such cluster node 'PVE1'", ErrorKind::NotFound),
        (500, "Configuration file 'nodes/pve1/lxc/999.conf' does not exist", ErrorKind::NotFound),
        (500, "storage 'x' does not exist", ErrorKind::NotFound),
        (500, "hostname lookup 'nope' failed - failed to get address info", ErrorKind::NotFound),
        (500, "something 'x' does not exist", ErrorKind::Server),
        (500, "VM is locked (backup)", ErrorKind::Locked),
        (500, "CT is locked (snapshot)", ErrorKind::Locked),
        (500, "can't lock file '/var/lock/qemu-server/lock-101.conf' - got timeout", ErrorKind::Busy),
        (500, "cluster not ready - no quorum?", ErrorKind::NoQuorum),
        (500, "cfs-lock 'file-user_cfg' error: no quorum!", ErrorKind::NoQuorum),
        (500, "checksum mismatch (file change by other user?)", ErrorKind::Changed),
        (500, "detected modified configuration - file changed by other user? Try again.", ErrorKind::Changed),
        (500, "whatever", ErrorKind::Server),
        (302, "Found", ErrorKind::Redirected),
    ] {
        let error = refused(status, Some(text), "");
        assert_eq!(error.kind(), kind, "{status} {text}");
        assert_eq!(error.status(), Some(status));
    }
    let body =
        r#"{"data":null,"errors":{"upid":"no such task"},"message":"Parameter verification failed.\n"}"#;
    assert_eq!(refused(400, None, body).kind(), ErrorKind::NotFound);
    assert!(
        refused(500, Some("Configuration file 'nodes/n/lxc/9.conf' does not exist"), "").is_missing_guest()
    );
    assert!(!refused(500, Some("storage 'x' does not exist"), "").is_missing_guest());
}

#[test]
fn px_05_what_a_status_says_about_the_effect() {
    for status in [400, 401, 403, 500, 501, 595] {
        assert_eq!(refused(status, None, "").effect(), Effect::Refused, "{status}");
    }
    for status in [301, 302, 408, 502, 503, 504, 596, 597, 599] {
        assert_eq!(refused(status, None, "").effect(), Effect::Unknown, "{status}");
    }
}

#[test]
fn px_14_the_secret_is_cut_out_of_everything_pve_says() {
    let body = json!({
        "data": null,
        "message": format!("bad token root@pam!x={SECRET} and PVEAPIToken=root@pam!x={SECRET}"),
        "errors": { SECRET: format!("got '{SECRET}'") },
    });
    let error = refused(400, Some("x"), &body.to_string());
    let shown = format!("{error} {error:?} {:?}", error.parameter_errors());
    assert!(!shown.contains(SECRET), "{shown}");
    assert!(error.message().contains("[redacted]"));
    let error = refused(500, Some(&format!("it was {SECRET}")), "");
    assert_eq!(error.message(), "it was [redacted]");
    let error = reply(&format!("{{\"data\":\"{SECRET}\"}}")).upid().unwrap_err();
    assert!(!format!("{error} {error:?}").contains("5ec2e700"), "{error}");
    let long = format!("{}{SECRET}", "x".repeat(4096 - 10));
    assert!(!refused(500, Some(&long), "").message().contains("5ec2"));
}

#[test]
fn an_error_text_is_bounded_and_holds_no_control_characters() {
    let error = refused(500, Some(&format!("a\u{1b}[31mb\tc\n{}", "é".repeat(10_000))), "");
    assert!(error.message().starts_with("a [31mb c\n"));
    assert!(error.message().len() < 4200, "{}", error.message().len());
}

#[test]
fn px_07_what_separates_a_form_is_encoded() {
    let form = Form::new()
        .put("tags", "a;b&c=d+e f")
        .put("name", "größe\n%")
        .put_flag("purge", true)
        .put_some("unset", None::<u32>)
        .put_some("set", Some(0));
    assert_eq!(form.as_str(), "tags=a%3Bb%26c%3Dd%2Be%20f&name=gr%C3%B6%C3%9Fe%0A%25&purge=1&set=0");
}

#[test]
fn px_07_ids_are_encoded_in_a_path() {
    let volid: crate::Volid = "local:iso/a b;c&d=é.iso".parse().unwrap();
    let path = Path::of("storage").id(&volid).word("x");
    assert_eq!(path.as_str(), "/storage/local%3Aiso%2Fa%20b%3Bc%26d%3D%C3%A9.iso/x");
    let upid: crate::Upid =
        "UPID:pve1:00007CF2:00041584:6B0CE067:qmstart:102:root@pam!full:".parse().unwrap();
    assert_eq!(
        Path::of("tasks").id(&upid).as_str(),
        "/tasks/UPID%3Apve1%3A00007CF2%3A00041584%3A6B0CE067%3Aqmstart%3A102%3Aroot%40pam%21full%3A"
    );
}

/// Any JSON a hostile or odd server could put into a field.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}|[0-9.e+-]{0,8}|[01]|true|false".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{0,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn px_06_any_value_in_any_field_keeps_the_entry(value in any_json()) {
        let body = json!({ "data": [{ "vmid": "100", "f": value }] }).to_string();
        let list = reply(&body)
            .list(|row| {
                let _ = (row.flag("f"), row.integer("f"), row.text("f"), row.tags("f"), row.record("f").is_some());
                if let Some(float) = row.float("f") {
                    assert!(float.is_finite());
                }
                row.id::<crate::Vmid>("vmid")
            })
            .unwrap();
        prop_assert_eq!((list.len(), list.skipped), (1, 0));
    }

    #[test]
    fn px_06_any_body_is_an_answer_or_an_error(body in "\\PC{0,60}|\\{\"data\":\\PC{0,40}\\}") {
        let reply = reply(&body);
        let _ = reply.list(|row| row.filled("a"));
        let _ = reply.record(|row| Ok(row.flag("a")));
        let _ = reply.upid();
    }

    #[test]
    fn counters_read_back_as_number_and_as_text(n: u64) {
        prop_assert_eq!(field(&n.to_string(), |r| r.integer("f")), Some(n));
        prop_assert_eq!(field(&format!("\"{n}\""), |r| r.integer("f")), Some(n));
    }

    #[test]
    fn px_07_a_form_reads_back_in_pves_way(pairs in proptest::collection::vec(("[a-z]{1,4}", "\\PC{0,12}|[;&=+% \n]{0,6}"), 0..5)) {
        let form = pairs.iter().fold(Form::new(), |form, (key, value)| form.put(key, value));
        // As pveproxy does: split at `&` and `;`, then at `=`, `+` is a space, then percent-decode.
        let read: Vec<(String, String)> = form
            .as_str()
            .split(['&', ';'])
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let mut parts = pair.split('=').map(|part| {
                    let part = part.replace('+', " ");
                    percent_encoding::percent_decode_str(&part).decode_utf8().unwrap().into_owned()
                });
                (parts.next().unwrap(), parts.next().unwrap())
            })
            .collect();
        prop_assert_eq!(read, pairs);
    }
}
