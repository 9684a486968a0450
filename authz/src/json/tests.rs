use proptest::prelude::*;
use serde_json::Value;

use super::*;

/// Rebuilds a plain value, so that the tree can be held against `serde_json`'s own reading.
fn plain(node: &Node, text: &str) -> Value {
    match &node.kind {
        Kind::Null => Value::Null,
        Kind::Bool(value) => Value::Bool(*value),
        Kind::Number => serde_json::from_str(&text[node.start.offset..node.end]).unwrap(),
        Kind::Text(text) => Value::String(text.clone()),
        Kind::Array(items) => items.iter().map(|item| plain(item, text)).collect(),
        Kind::Object(members) => members.iter().map(|m| (m.key.clone(), plain(&m.value, text))).collect(),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1e300..1e300f64).prop_map(Value::from),
        "\\PC{0,8}|[\\x00-\\x7f]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,4}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn reads_what_serde_json_reads(value in any_json(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.unwrap();
        let document = Document::parse(text.as_bytes()).unwrap();
        // Read back rather than compared with `value`: serde_json does not round-trip every float.
        prop_assert_eq!(plain(document.root().node, &text), serde_json::from_str::<Value>(&text).unwrap());
        prop_assert!(document.findings().is_clean());
    }

    #[test]
    fn never_panics_and_never_accepts_what_serde_json_refuses(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if Document::parse(&bytes).is_ok() {
            prop_assert!(serde_json::from_slice::<Value>(&bytes).is_ok());
        }
    }

    #[test]
    fn never_panics_on_almost_json(text in "[\\[\\]{}:,\"\\\\a0-9eE+\\-.\\s u]{0,40}") {
        let ours = Document::parse(text.as_bytes()).is_ok();
        let theirs = serde_json::from_str::<Value>(&text).is_ok();
        // Only numbers beyond f64 may part the two.
        prop_assert!(ours == theirs || (ours && text.contains(['e', 'E'])), "{text:?} {ours} {theirs}");
    }
}

fn refused(text: &[u8]) -> FileProblem {
    Document::parse(text).unwrap_err()
}

#[test]
fn syntax_faults_carry_line_and_column() {
    let problem = refused(b"{\n  \"a\": 1,\n}");
    assert_eq!((problem.line, problem.column), (3, 1));
    assert!(problem.message.starts_with("expected JSON: key must be a string"), "{problem}");
    assert!(!problem.message.contains("at line"), "{problem}");
    for (text, line, column) in [
        (&b""[..], 1, 1),
        (b" \n ", 1, 1),
        (b"\xef\xbb\xbf{}", 1, 1),
        (b"{\n\"\xff\"}", 2, 2),
        (b"[1] 2", 1, 5),
        (br#"["\ud800"]"#, 1, 2),
    ] {
        let problem = refused(text);
        assert_eq!((problem.line, problem.column), (line, column), "{problem}");
    }
}

#[test]
fn depth_and_size_are_bounded() {
    let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
    assert!(Document::parse(&nested(MAX_DEPTH + 1)).is_ok());
    assert!(refused(&nested(MAX_DEPTH + 2)).message.contains("nested deeper"));
    assert!(refused(&nested(100_000)).message.contains("nested deeper"));
    // Four MiB.
    let mut big = vec![b' '; 4_194_304];
    big[0] = b'1';
    assert!(Document::parse(&big).is_ok());
    big.push(b' ');
    assert!(refused(&big).message.contains("at most"));
}

#[test]
fn tk_07_duplicate_keys_are_found_at_every_depth() {
    let text = "{\n \"a\": {\"x\": 1, \"\\u0078\": 2},\n \"b\": [{\"y z\": 1, \"y z\": 1}],\n \"a\": 3\n}";
    let document = Document::parse(text.as_bytes()).unwrap();
    let problems = document.findings().into_result(Some(())).unwrap_err();
    let seen: Vec<_> = problems.iter().map(|p| (p.line, p.column, p.path.as_str())).collect();
    assert_eq!(seen, [(2, 16, "$.a.x"), (3, 19, "$.b[0][\"y z\"]"), (4, 2, "$.a")]);
}

#[test]
fn columns_count_characters() {
    let document = Document::parse("{\"é\u{1f600}\": 1, \"é\u{1f600}\": 2}".as_bytes()).unwrap();
    let problems = document.findings().into_result(Some(())).unwrap_err();
    assert_eq!((problems[0].line, problems[0].column), (1, 11));
}

#[test]
fn findings_are_bounded() {
    let text = format!("{{{}}}", vec!["\"a\":1"; 1000].join(","));
    let document = Document::parse(text.as_bytes()).unwrap();
    let problems = document.findings().into_result(Some(())).unwrap_err();
    assert_eq!(problems.len(), MAX_FINDINGS + 1);
    assert!(
        problems.last().unwrap().message.contains("more problems") || problems[0].message.contains("more")
    );
}

#[test]
fn fields_name_what_is_missing_unknown_or_of_the_wrong_type() {
    let text = "{\"n\": -1, \"s\": 1, \"b\": 0, \"x\\n\": true, \"z\": null}";
    let document = Document::parse(text.as_bytes()).unwrap();
    let mut findings = document.findings();
    let mut fields = document.root().fields(&mut findings).unwrap();
    assert_eq!(fields.required("n", &mut findings).unwrap().number(&mut findings), None);
    assert_eq!(fields.required("s", &mut findings).unwrap().text(&mut findings), None);
    assert_eq!(fields.required("b", &mut findings).unwrap().bool(&mut findings), None);
    assert!(fields.required("m", &mut findings).is_none());
    assert!(fields.optional("z").is_none());
    fields.finish(&mut findings);
    let problems = findings.into_result(Some(())).unwrap_err();
    let messages: Vec<_> = problems.iter().map(|p| format!("{} {}", p.path, p.message)).collect();
    assert_eq!(
        messages,
        [
            "$ the field `m` is missing",
            "$.n expected a whole number in plain digits, not negative",
            "$.s expected a string, found a number",
            "$.b expected a boolean, found a number",
            "$[\"x\\u{a}\"] the field `x\\u{a}` is unknown; expected one of `n`, `s`, `b`, `m`, `z`",
        ]
    );
}

#[test]
fn values_are_read_as_what_they_are() {
    let document = Document::parse(br#"{"yes": true, "no": false, "n": 7, "s": "x", "list": []}"#).unwrap();
    let mut findings = document.findings();
    let mut fields = document.root().fields(&mut findings).unwrap();
    let mut take = |name| fields.take(name).unwrap();
    assert_eq!(take("yes").bool(&mut findings), Some(true));
    assert_eq!(take("no").bool(&mut findings), Some(false));
    assert_eq!(take("n").number(&mut findings), Some(7));
    assert_eq!(take("s").text(&mut findings), Some("x"));
    assert!(take("list").is_array());
    fields.finish(&mut findings);
    assert!(findings.is_clean());
}

#[test]
fn a_finding_prints_where_it_is_and_what_it_says() {
    let document = Document::parse(b"{\n  \"a\": 1}").unwrap();
    let mut findings = document.findings();
    let at = document.root().fields(&mut findings).unwrap().take("a").unwrap();
    let place = "line 2, column 8, $.a: odd";
    assert_eq!(findings.warning_for(&at, "odd").to_string(), place);
    assert!(findings.is_clean());
    findings.problem(&at, "odd");
    assert!(!findings.is_clean());
    assert_eq!(findings.into_result(Some(())).unwrap_err()[0].to_string(), place);
}
