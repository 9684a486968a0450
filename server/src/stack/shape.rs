//! The cap of a result. A client that gets more than it can hold drops it, or the connection.

use serde_json::Value;

use super::failure::ToolFailure;

/// Most bytes of one result, its text and its structured copy together.
pub(crate) const RESULT_CAP: usize = 512 * 1024;
/// What the items of a page may cost: room is left for what stands around them.
pub(crate) const ROOM_FOR_ITEMS: usize = RESULT_CAP - 8 * 1024;

/// What `value` costs on the wire: once as JSON, and once more as JSON text inside a JSON string.
pub(crate) fn cost(value: &Value) -> usize {
    let text = value.to_string();
    // The text holds no raw control character: it is JSON already. Only these two grow when it becomes a string.
    let escapes = text.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count();
    2 * text.len() + escapes + 2
}

/// More than [`cost`] can be, without writing the value out.
fn costs_at_most(value: &Value) -> usize {
    // A byte of text takes six at worst, `\u0001`, and one more where that stands inside a string.
    let text = |text: &str| 13 * text.len() + 8;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 64,
        Value::String(string) => text(string),
        Value::Array(items) => items.iter().map(|item| 2 + costs_at_most(item)).sum::<usize>() + 6,
        Value::Object(map) => {
            map.iter().map(|(key, item)| text(key) + 4 + costs_at_most(item)).sum::<usize>() + 6
        }
    }
}

/// The last look at a result that is no page of a list.
pub(super) fn within_cap(result: Value) -> Result<Value, ToolFailure> {
    // Most are so small that a rough look is enough.
    if costs_at_most(&result) > RESULT_CAP && cost(&result) > RESULT_CAP {
        Err(too_large())
    } else {
        Ok(result)
    }
}

/// Refuses a result that no client could take.
pub(crate) fn too_large() -> ToolFailure {
    ToolFailure::new(
        "result_too_large",
        format!(
            "the answer is larger than {} KiB, the most that a result may hold; of a list ask for fewer columns by `fields`",
            RESULT_CAP / 1024
        ),
    )
}

#[cfg(test)]
mod tests {
    use mcp_wire::ToolResult;
    use serde_json::json;

    use super::*;

    #[test]
    fn mc_08_the_cost_is_what_both_copies_take_on_the_wire() {
        for fill in ["plain", "\"quoted\" \\ and \n\u{1}", "ünïcode \u{1F600}"] {
            let value = json!({"text": fill, "list": [1, fill]});
            let result = ToolResult::structured(value.clone());
            let wire = serde_json::to_string(&result.content[0]).unwrap().len() + value.to_string().len();
            // Without the block's own `{"type":"text","text":…}`.
            assert!(costs_at_most(&value) >= cost(&value), "{fill}");
            assert_eq!(cost(&value), wire - r#"{"type":"text","text":}"#.len(), "{fill}");
        }
    }

    #[test]
    fn the_rough_look_never_says_less() {
        let text = |c: char, n: usize| Value::from(c.to_string().repeat(n));
        for c in ['a', '"', '\\', '\n', '\u{1}', '\u{7f}', 'ü', '\u{2028}', '\u{1F600}'] {
            for value in
                [text(c, 0), text(c, 1), text(c, 1000), json!([text(c, 7), {c.to_string(): text(c, 3)}])]
            {
                assert!(costs_at_most(&value) >= cost(&value), "{value}");
            }
        }
        for value in [
            json!([]),
            json!({}),
            json!(null),
            json!(f64::MIN),
            json!(-1.234_567_890_123_456_7e-300),
            json!(u64::MAX),
        ] {
            assert!(costs_at_most(&value) >= cost(&value), "{value}");
        }
    }

    #[test]
    fn mc_08_a_record_above_the_cap_is_refused() {
        assert!(within_cap(json!({"config": "x".repeat(200 * 1024)})).is_ok());
        assert_eq!(
            within_cap(json!({"config": "x".repeat(300 * 1024)})).unwrap_err().code(),
            "result_too_large"
        );
    }
}
