//! How change sets are shown at a terminal.

use serde_json::Value;

/// Text for a terminal: whatever could move its cursor is escaped, line ends stay.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => c.to_string(),
            c if c.is_control() || is_format(c) => c.escape_unicode().to_string(),
            c => c.to_string(),
        })
        .collect()
}

/// Characters that change how others are shown without being shown themselves.
fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0001}'..='\u{e007f}')
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or("")
}

/// One set with its preview.
pub(super) fn set(set: &Value) -> String {
    let mut lines = vec![
        format!("Change set  {}", text(set, "change_set_id")),
        format!("State       {}", text(set, "state")),
        format!("Planner     {}", text(set, "planner")),
    ];
    for (key, label) in [("approved_by", "Approved by"), ("expires_at", "Expires    ")] {
        if !text(set, key).is_empty() {
            lines.push(format!("{label} {}", text(set, key)));
        }
    }
    lines.push(String::new());
    lines.push(text(set, "preview").to_owned());
    lines.push(String::new());
    for (number, step) in (1..).zip(set["steps"].as_array().into_iter().flatten()) {
        let mut line = format!("Step {number}: {}", text(step, "summary"));
        for key in ["upid", "outcome"] {
            if !text(step, key).is_empty() {
                line.push_str(&format!("; {}", text(step, key)));
            }
        }
        lines.push(line);
    }
    if let Some(note) = set["ended"]["note"].as_str() {
        lines.push(format!("Ended: {note}"));
    }
    lines.push(format!("Digest: {}", text(set, "digest")));
    plain(&lines.join("\n"))
}

/// What a set is now, in one line.
pub(super) fn moved(set: &Value) -> String {
    plain(&format!("{} is {}. Next: {}", text(set, "change_set_id"), text(set, "state"), text(set, "next")))
}

/// A line a set.
pub(super) fn table(sets: &Value) -> String {
    let rows = sets.as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return "no change sets".to_owned();
    }
    let mut lines =
        vec![format!("{:<29}  {:<9}  {:<24}  {:<16}  SUMMARY", "CHANGE SET", "STATE", "TARGET", "PLANNER")];
    for row in rows {
        let target = format!("{}/{}", text(row, "cluster"), text(row, "target"));
        lines.push(format!(
            "{:<29}  {:<9}  {target:<24}  {:<16}  {}",
            text(row, "change_set_id"),
            text(row, "state"),
            text(row, "planner"),
            text(row, "summary")
        ));
        let older = row["older"].as_array().map_or(0, Vec::len);
        if older > 0 {
            lines.push(format!("{:<29}  and {older} older for the same target", ""));
        }
    }
    plain(&lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cs_06_nothing_from_a_server_moves_the_cursor() {
        let shown = set(
            &json!({"change_set_id": "cs_x", "preview": "Name  \"a\"\u{1b}[2J\r\u{202e}\nTags", "digest": "00"}),
        );
        assert!(shown.contains("\\u{1b}[2J\\u{d}\\u{202e}\nTags"), "{shown:?}");
        assert!(!table(&json!([{"summary": "x\u{7}"}])).contains('\u{7}'));
    }

    #[test]
    fn a_set_shows_its_preview_word_for_word_and_its_whole_digest() {
        let digest = "ab".repeat(32);
        let preview = "Operation           destroy\nVMID                905";
        let shown = set(&json!({"preview": preview, "digest": digest}));
        assert!(shown.contains(preview) && shown.contains(&digest));
    }
}
