use serde_json::json;

use super::*;

fn validator() -> Validator {
    Validator::new(&json!({
        "type": "object",
        "properties": {
            "vmid": {"type": "integer", "minimum": 100, "maximum": 999_999_999},
            "online": {"type": "boolean"},
            "mode": {"type": "string", "enum": ["snapshot", "stop"]},
            "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 8},
            "fields": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            "disk": {"type": "object", "properties": {"gb": {"type": "integer"}}, "required": ["gb"], "additionalProperties": false},
        },
        "required": ["vmid"],
    }))
    .unwrap()
}

fn refused(arguments: Value) -> String {
    let Value::Object(map) = arguments else { panic!("not an object") };
    validator().validate(map).unwrap_err().to_string()
}

#[test]
fn mc_05_problems_name_field_expectation_and_type() {
    let cases = [
        (json!({}), "argument `vmid`: expected integer of 100 to 999999999, got nothing"),
        (json!({"vmid": true}), "argument `vmid`: expected integer of 100 to 999999999, got boolean"),
        (json!({"vmid": 99}), "argument `vmid`: expected integer of 100 to 999999999, got integer"),
        (json!({"vmid": 100.5}), "argument `vmid`: expected integer of 100 to 999999999, got number"),
        (json!({"vmid": null}), "argument `vmid`: expected integer of 100 to 999999999, got null"),
        (
            json!({"vmid": 100, "mode": "x"}),
            "argument `mode`: expected one of `snapshot`, `stop`, got string",
        ),
        (
            json!({"vmid": 100, "name": "A"}),
            "argument `name`: expected string of at most 8 characters matching `^[a-z]+$`, got string",
        ),
        (
            json!({"vmid": 100, "fields": "a"}),
            "argument `fields`: expected array of at most 2 items, got string",
        ),
        (json!({"vmid": 100, "fields": ["a", 1]}), "argument `fields[1]`: expected string, got integer"),
        (json!({"vmid": 100, "disk": {}}), "argument `disk.gb`: expected integer, got nothing"),
        (json!({"vmid": 100, "disk": {"gb": "x"}}), "argument `disk.gb`: expected integer, got string"),
        (
            json!({"vmid": 100, "disk": {"gb": 1, "x": []}}),
            "argument `disk.x`: expected only the arguments `gb`, got array",
        ),
    ];
    for (arguments, expected) in cases {
        assert_eq!(refused(arguments.clone()), expected, "{arguments}");
    }
}

#[test]
fn mc_05_unknown_arguments_are_refused_by_name() {
    let expected =
        "expected only the arguments `disk`, `fields`, `mode`, `name`, `online`, `vmid`, got object";
    assert_eq!(refused(json!({"vmid": 100, "__proto__": {}})), format!("argument `__proto__`: {expected}"));
    let none = Validator::new(&json!({"type": "object"})).unwrap();
    let arguments = json!({"x": 1}).as_object().unwrap().clone();
    assert_eq!(
        none.validate(arguments.clone()).unwrap_err().to_string(),
        "argument `x`: expected no arguments, got integer"
    );
    let open = Validator::new(&json!({"type": "object", "additionalProperties": true})).unwrap();
    assert_eq!(open.validate(arguments.clone()).unwrap(), arguments);
}

#[test]
fn mc_05_values_never_show_in_problems() {
    let secret = "hunter2\u{202e}";
    for arguments in [
        json!({"vmid": secret}),
        json!({"vmid": 100, "mode": secret}),
        json!({"vmid": 100, "name": secret}),
        json!({"vmid": 100, "fields": [1, secret]}),
        json!({"vmid": 100, "disk": {"gb": secret}}),
        json!({"vmid": 100, "other": secret}),
    ] {
        assert!(!refused(arguments.clone()).contains("hunter2"), "{arguments}");
    }
    let long = "k".repeat(10_000);
    assert!(refused(json!({"vmid": 100, long: 1})).len() < 300);
    assert!(!refused(json!({"vmid": 100, "\u{202e}\n": 1})).contains(['\u{202e}', '\n']));
}

#[test]
fn canonical_strings_are_taken_and_nothing_else_is() {
    let take = |value: Value| validator().validate(json!({"vmid": value}).as_object().unwrap().clone()).ok();
    for fine in [json!("100"), json!(100), json!(100.0)] {
        assert_eq!(take(fine.clone()), json!({"vmid": 100}).as_object().cloned(), "{fine}");
    }
    for bad in
        ["0100", "+100", " 100", "100 ", "1e2", "100.0", "0x64", "", "-0", "१००", "99999999999999999999999"]
    {
        assert_eq!(take(json!(bad)), None, "{bad}");
    }
    let online = |value: &str| {
        validator().validate(json!({"vmid": 100, "online": value}).as_object().unwrap().clone())
    };
    assert_eq!(online("true").unwrap()["online"], json!(true));
    assert_eq!(online("false").unwrap()["online"], json!(false));
    for bad in ["True", "1", "yes", ""] {
        assert!(online(bad).is_err(), "{bad}");
    }
}

#[test]
fn schemas_that_reach_out_or_backtrack_do_not_compile() {
    assert!(
        Validator::new(&json!({"type": "object", "properties": {"a": {"$ref": "https://x.test/s"}}}))
            .is_err()
    );
    assert!(
        Validator::new(&json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}}))
            .is_err()
    );
    assert!(Validator::new(&json!({"properties": {"a": {"pattern": "^(?=a)b$"}}})).is_err());
    assert!(Validator::new(&json!({"type": "nonsense"})).is_err());
}

#[test]
fn do_06_patterns_run_in_linear_time() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}});
    let validator = Validator::new(&schema).unwrap();
    let arguments = json!({"a": format!("{}!", "a".repeat(50_000))});
    let started = std::time::Instant::now();
    assert!(validator.validate(arguments.as_object().unwrap().clone()).is_err());
    assert!(started.elapsed() < std::time::Duration::from_millis(500), "{:?}", started.elapsed());
}
