//! What of a guest's config waits for its next start.

use serde_json::{Value, json};

use crate::api::handlers::Call;
use crate::api::handlers::config::on_the_wire;
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;

/// One row for each option: the value that holds, and what is pending.
pub(crate) fn get(call: &Call<'_>, kind: GuestKind) -> Result<Answer, Refusal> {
    let guest = call.guest(kind)?;
    let current = guest.active_config();
    let mut rows: Vec<Value> = Vec::new();
    for (key, value) in current {
        let mut row = json!({ "key": key, "value": on_the_wire(kind, key, value) });
        match guest.config.get(key) {
            None => row["delete"] = json!(1),
            Some(wanted) if wanted != value => row["pending"] = on_the_wire(kind, key, wanted),
            Some(_) => {}
        }
        rows.push(row);
    }
    for (key, value) in guest.config.iter().filter(|(key, _)| !current.contains_key(*key)) {
        rows.push(json!({ "key": key, "pending": on_the_wire(kind, key, value) }));
    }
    rows.push(json!({ "key": "digest", "value": guest.digest() }));
    Ok(Answer::Data(Value::Array(rows)))
}
