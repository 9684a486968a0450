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

/// The last look at a result that is no page of a list.
pub(super) fn within_cap(result: Value) -> Result<Value, ToolFailure> {
    if cost(&result) > RESULT_CAP { Err(too_large()) } else { Ok(result) }
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
            assert_eq!(cost(&value), wire - r#"{"type":"text","text":}"#.len(), "{fill}");
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
