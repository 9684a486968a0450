//! Whom `proxward change` asks: the server on this host through its socket, the state itself while no server runs, or a server
//! over HTTP. One process writes the audit and the store at any time: the socket's server, or this one under the state lock.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use zeroize::Zeroizing;

use super::remote::Remote;
use super::{ChangeArgs, Failure};
use crate::app::App;
use crate::audit::{Event, Record};
use crate::cli::ServeArgs;
use crate::config::{Problem, Sources};
use crate::serve::control::{Ask, Desk, RESOLVE, SOCKET};
use crate::serve::{self, StartError};
use crate::state_dir::{StateDirError, StateLock};

/// How long the server may take. It waits for the cluster itself, with shorter deadlines of its own.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);

/// A structured answer.
pub(super) type Answer = Value;

/// Whom to ask.
pub(super) struct Door {
    way: Way,
    token: Zeroizing<String>,
}

enum Way {
    Socket(PathBuf),
    State { desk: Desk, app: std::sync::Arc<App>, _lock: StateLock },
    Http(Box<Remote>),
}

impl Door {
    /// Finds out whom to ask.
    pub(super) async fn open(args: &ChangeArgs, token: Zeroizing<String>) -> Result<Self, Failure> {
        let way = match &args.url {
            Some(url) => Way::Http(Box::new(Remote::new(url, args.ca_file.as_deref())?)),
            None => on_host(args).await?,
        };
        Ok(Self { way, token })
    }

    /// Asks for one call.
    pub(super) async fn call(&self, call: &str, arguments: &Value) -> Result<Answer, Failure> {
        let arguments: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
        let ask =
            || Ask { token: self.token.to_string(), call: call.to_owned(), arguments: arguments.clone() };
        let answer = match &self.way {
            Way::Http(_) if call == RESOLVE => {
                return Err(Failure::Configuration(vec![Problem::flag(
                    "--url: a set is resolved on the server's own host only; log in there and leave --url out",
                )]));
            }
            Way::Http(remote) => return remote.call(&self.token, call, &arguments).await,
            Way::State { desk, .. } => desk.answer(ask()).await,
            Way::Socket(path) => {
                let answered = tokio::time::timeout(ANSWER_DEADLINE, over_socket(path, &ask())).await;
                answered.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
                    Failure::Unreachable(format!("the server on this host did not answer: {error}"))
                })?
            }
        };
        opened(answer)
    }

    /// Leaves the state as a server would.
    pub(super) async fn close(self) {
        if let Way::State { app, .. } = self.way {
            app.tracker.idle().await;
            if let Err(error) = app.audit.append(Record::new(Event::Stop)).await {
                eprintln!("warning: the end of this visit could not be audited: {error}");
            }
            app.audit.stop().await;
        }
    }
}

/// The result in an answer, or the refusal.
fn opened(mut answer: Value) -> Result<Value, Failure> {
    if let Some(error) = answer.get("error") {
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        return Err(Failure::Refused { code: text("code"), message: text("message") });
    }
    match answer.get_mut("result") {
        Some(result) => Ok(result.take()),
        None => Err(Failure::Unreachable("the server's answer is none".to_owned())),
    }
}

async fn on_host(args: &ChangeArgs) -> Result<Way, Failure> {
    let socket = args.state_dir.join(SOCKET);
    match UnixStream::connect(&socket).await {
        Ok(_) => return Ok(Way::Socket(socket)),
        // No server, or one that was killed and left its socket behind.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {}
        Err(error) => {
            return Err(Failure::Unreachable(format!(
                "{} cannot be reached ({error}): run this as the server's user, or name --url",
                socket.display()
            )));
        }
    }
    if !args.state_dir.exists() {
        return Err(Failure::Configuration(vec![Problem::flag(format!(
            "--state-dir {}: there is no such directory on this host; name the server's, or its --url",
            args.state_dir.display()
        ))]));
    }
    open_state(args).await
}

async fn open_state(args: &ChangeArgs) -> Result<Way, Failure> {
    let path = |path: &Path| path.as_os_str().to_owned();
    let line = [
        "proxward".into(),
        "--state-dir".into(),
        path(&args.state_dir),
        "--clusters-file".into(),
        path(&args.clusters_file),
        "--tokens-file".into(),
        path(&args.tokens_file),
        "--waivers-file".into(),
        path(&args.waivers_file),
    ];
    let serve_args: ServeArgs = match crate::cli::Cli::try_parse_from(line) {
        Ok(cli) => cli.serve,
        Err(error) => return Err(Failure::Configuration(vec![Problem::flag(error.to_string())])),
    };
    let opened = async {
        let live = serve::load(&Sources::of(&serve_args))?;
        let (app, lock) = serve::open_app(&serve_args, live, None, None).await?;
        let desk = Desk::new(app.clone())?;
        Ok::<_, StartError>(Way::State { desk, app, _lock: lock })
    };
    opened.await.map_err(|error| match error {
        StartError::Configuration(problems) => Failure::Configuration(problems),
        StartError::StateDir(StateDirError::Held { holder, .. }) => Failure::Unreachable(format!(
            "{holder} serves from this state directory but answers at no control socket: name its --url"
        )),
        other => Failure::Unreachable(other.to_string()),
    })
}

async fn over_socket(path: &Path, ask: &Ask) -> io::Result<Value> {
    let mut stream = UnixStream::connect(path).await?;
    let mut line = Zeroizing::new(serde_json::to_vec(ask)?);
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await?;
    Ok(serde_json::from_str(&answer)?)
}
