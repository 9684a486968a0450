//! The QEMU guest agent.

mod exec;
mod files;

use serde_json::{Value, json};

use crate::api::handlers::{Call, network};
use crate::api::reply::{Answer, Refusal};
use crate::config::GuestKind;
use crate::state::guest::Guest;

/// Calls the endpoint, if it is one of the agent.
pub(crate) fn dispatch(method: &str, template: &str, call: &mut Call<'_>) -> Option<Result<Answer, Refusal>> {
    Some(match (method, template.strip_prefix("/nodes/{node}/qemu/{vmid}/agent")?) {
        ("POST", "") => plain(call, call.get("command").unwrap_or_default()),
        ("GET", "/get-host-name") => plain(call, "get-host-name"),
        ("GET", "/get-osinfo") => plain(call, "get-osinfo"),
        ("GET", "/network-get-interfaces") => plain(call, "network-get-interfaces"),
        ("POST", "/exec") => exec::start(call),
        ("GET", "/exec-status") => exec::status(call),
        ("GET", "/file-read") => files::read(call),
        ("POST", "/file-write") => files::write(call),
        ("POST", "/ping") => plain(call, "ping"),
        _ => return None,
    })
}

/// The VM of a call, when its agent answers.
fn answering<'a>(call: &'a Call<'_>) -> Result<&'a Guest, Refusal> {
    let guest = call.guest(GuestKind::Qemu)?;
    if !guest.has_agent() {
        return Err(Refusal::die("No QEMU guest agent configured"));
    }
    if !guest.running {
        return Err(Refusal::die(format!("VM {} is not running", guest.vmid)));
    }
    if !guest.agent_runs {
        return Err(Refusal::die("QEMU guest agent is not running"));
    }
    Ok(guest)
}

/// The commands without arguments; their result is inside `result`.
fn plain(call: &Call<'_>, command: &str) -> Result<Answer, Refusal> {
    let guest = answering(call)?;
    let result = match command {
        "ping" => json!({}),
        "get-host-name" => json!({ "host-name": guest.name() }),
        "get-osinfo" => os(),
        "network-get-interfaces" => network::of_agent(guest),
        other => {
            let text = format!("Agent error: Command guest-{other} has been disabled");
            return Err(Refusal::die(text));
        }
    };
    Ok(Answer::Data(json!({ "result": result })))
}

fn os() -> Value {
    json!({
        "id": "debian", "name": "Debian GNU/Linux", "version": "12 (bookworm)", "version-id": "12",
        "pretty-name": "Debian GNU/Linux 12 (bookworm)", "machine": "x86_64",
        "kernel-release": "6.1.0-31-amd64", "kernel-version": "#1 SMP Debian",
    })
}

/// Bytes as PVE hands them out: each as the character of its number.
fn latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}
