//! `/access/permissions`.

use serde_json::{Map, Value, json};

use crate::api::handlers::Call;
use crate::api::reply::{Answer, Refusal};

pub(crate) fn permissions(call: &Call<'_>) -> Result<Answer, Refusal> {
    if let Some(other) = call.get("userid").filter(|userid| *userid != call.token) {
        // A token may not ask for others, not even for its user, without Sys.Audit on /access.
        if !call.may("/access", "Sys.Audit") {
            return Err(Refusal::permission("/access, Sys.Audit"));
        }
        return Ok(Answer::Data(of(call, other)));
    }
    Ok(Answer::Data(of(call, call.token)))
}

fn of(call: &Call<'_>, who: &str) -> Value {
    let state = &call.state;
    let paths = match call.get("path") {
        Some(path) => [path.to_owned()].into(),
        None => state.acl.known_paths(&state.pools),
    };
    let rights = paths.into_iter().map(|path| {
        let rights = state.acl.rights(who, &path, &state.pools);
        let rights: Map<String, Value> = rights
            .into_iter()
            .map(|(privilege, propagates)| (privilege, json!(u8::from(propagates))))
            .collect();
        (path, rights)
    });
    Value::Object(
        rights.filter(|(_, rights)| !rights.is_empty()).map(|(path, rights)| (path, rights.into())).collect(),
    )
}
