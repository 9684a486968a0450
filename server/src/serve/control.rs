//! The door for people on the server's own host: a Unix socket in the state directory, over which `proxward change` asks the
//! running server. The same calls as over MCP pass the same stack, with the same bearer token; only resolving an unknown set is
//! possible here alone. An agent's client never needs to reach it, and approvals need not pass the agent's listener.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::header::{AUTHORIZATION, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};

use super::front::request_id;
use crate::app::App;
use crate::stack::bearer::Bearer;
use crate::stack::{self, CallContext, Caller, Listener, ToolFailure, Trail, Via};
use crate::tools::{changes, parsed};

/// The socket's name in the state directory.
pub const SOCKET: &str = "control.sock";
/// Largest request, in bytes. A note and a name fit many times over.
const MAX_REQUEST: u64 = 64 * 1024;
/// How long a caller may take to say what it wants.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// Callers served at once.
const MAX_CALLERS: usize = 16;
/// The call that is no tool.
pub const RESOLVE: &str = "resolve_change_set";
/// What can be asked for here.
const CALLS: &[&str] = &[
    "list_change_sets",
    "get_proxmox_change_set",
    "approve_proxmox_change_set",
    "reject_change_set",
    "cancel_change_set",
    RESOLVE,
];

/// One request: a line of JSON.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The person's bearer token.
    pub token: String,
    /// A tool's name, or [`RESOLVE`].
    pub call: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask").field("call", &self.call).finish_non_exhaustive()
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.token);
    }
}

/// Answers people on this host, whichever way they ask.
#[derive(Clone)]
pub struct Desk {
    app: Arc<App>,
    bearer: Arc<Bearer>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl Desk {
    /// Over these parts.
    ///
    /// # Errors
    /// No randomness.
    pub fn new(app: Arc<App>) -> anyhow::Result<Self> {
        Ok(Self { app, bearer: Arc::new(Bearer::new(false)?) })
    }

    /// Answers one request: an object with `result`, or with `error` that has `code` and `message`.
    pub async fn answer(&self, ask: Ask) -> Value {
        match self.run(ask).await {
            Ok(result) => json!({"result": result}),
            Err(error) => json!({"error": error}),
        }
    }

    async fn run(&self, mut ask: Ask) -> Result<Value, Map<String, Value>> {
        let call = std::mem::take(&mut ask.call);
        let arguments = std::mem::take(&mut ask.arguments);
        if !CALLS.contains(&call.as_str()) {
            let failure = ToolFailure::new("unknown_call", format!("expected one of {}", CALLS.join(", ")));
            return Err(failure.into_object());
        }
        let snapshot = self.app.live.load();
        let mut parts = Request::new(()).into_parts().0;
        let mut header = HeaderValue::try_from(format!("Bearer {}", ask.token)).map_err(|_| {
            ToolFailure::new("unauthorized", "the token holds characters that no token has").into_object()
        })?;
        header.set_sensitive(true);
        parts.headers.insert(AUTHORIZATION, header);
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let principal = match self.bearer.authenticate(&self.app, &snapshot, &parts, here).await {
            Ok(principal) => principal,
            Err(refusal) => {
                let text = |key: &str| refusal.body.get(key).and_then(Value::as_str).unwrap_or_default();
                let mut out = Map::new();
                out.insert("code".to_owned(), text("error").into());
                out.insert("message".to_owned(), text("message").into());
                return Err(out);
            }
        };
        let caller = Caller { principal, via: Via::Host, snapshot, request_id: request_id(), share: None };
        let context = CallContext {
            app: self.app.clone(),
            caller,
            trail: Trail::default(),
            listener: Listener::default(),
        };
        let result = if call == RESOLVE {
            match parsed(arguments) {
                Ok(args) => changes::resolve(&context, args).await,
                Err(failure) => Err(failure),
            }
        } else {
            stack::run(context, call, arguments).await
        };
        result.map_err(ToolFailure::into_object)
    }
}

/// The bound socket; its file goes with it.
#[derive(Debug)]
pub(super) struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Binds the socket in the state directory, whose lock is held: a socket that lies there is a dead process's.
    pub(super) fn bind(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join(SOCKET);
        match std::fs::symlink_metadata(&path) {
            Ok(there) if there.file_type().is_socket() => std::fs::remove_file(&path)?,
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "another file has its name")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(&path)?;
        // The directory is the server's alone already; this keeps a copy of it that was opened wider as closed.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        Ok(Self { listener, path })
    }

    /// Answers until told to stop.
    pub(super) async fn serve(self, desk: Desk, mut stopped: watch::Receiver<bool>) {
        let slots = Arc::new(Semaphore::new(MAX_CALLERS));
        loop {
            let stop = async {
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            let accepted = tokio::select! {
                () = stop => break,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a caller on this host could not be accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
            let desk = desk.clone();
            tokio::spawn(async move {
                let _slot = slot;
                if let Err(error) = serve_one(&desk, stream).await {
                    tracing::debug!(%error, "a caller on this host was not answered");
                }
            });
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The next server removes what is left of it.
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(%error, "the control socket's file could not be removed");
        }
    }
}

async fn serve_one(desk: &Desk, mut stream: UnixStream) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("user {uid} is not served")));
    }
    let (input, mut output) = stream.split();
    let mut line = Vec::new();
    let mut reader = BufReader::new(input.take(MAX_REQUEST));
    tokio::time::timeout(REQUEST_DEADLINE, reader.read_until(b'\n', &mut line))
        .await
        .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let mut answer = match serde_json::from_slice::<Ask>(&line) {
        Ok(ask) => desk.answer(ask).await,
        Err(_) => json!({"error": {"code": "bad_request", "message": "expected one line of JSON: token, call, arguments"}}),
    }
    .to_string();
    zeroize::Zeroize::zeroize(&mut line);
    answer.push('\n');
    output.write_all(answer.as_bytes()).await?;
    output.shutdown().await
}
