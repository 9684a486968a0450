//! Standard input and output. Clients start a second process only to see what it offers, so starting takes no lock and writes
//! nothing; the first `tools/call` opens the state.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use authz::Principal;
use mcp_wire::{Method, Reply, Request, RpcError};
use tokio::sync::{OnceCell, watch};
use tokio::task::AbortHandle;
use tower::{Service, ServiceExt};

use super::front::{Front, identity, request_id};
use super::http::Listener;
use super::start::{self, StartError, start_app};
use crate::app::App;
use crate::audit::{Event, Record};
use crate::catalog::Catalog;
use crate::cli::ServeArgs;
use crate::config::{Live, Problem, Reloader, Snapshot, Sources};
use crate::stack::{Caller, Rpc, ToolFailure, Via};
use crate::state_dir::{StateDirError, StateLock};

/// Serves one client until its input ends or the process is told to stop.
pub(super) async fn run(args: &ServeArgs) -> Result<(), StartError> {
    let signals = super::StopSignals::catch()?;
    let sources = Sources::of(args);
    let live = start::load(&sources)?;
    let acts_for = ActsFor::named(args.stdio_principal.clone(), &live.load())?;
    let reloader = Arc::new(Reloader::new(sources, live.clone(), None));
    let reloads = super::reloads(reloader.clone());
    let shared = Arc::new(Shared {
        args: args.clone(),
        live,
        acts_for,
        reloader,
        catalog: Catalog::new(args.transfer_listen.is_some())?,
        opened: OnceCell::new(),
    });
    let serve = mcp_wire::stdio::serve(
        Lazy { shared: shared.clone() },
        (),
        tokio::io::stdin(),
        tokio::io::stdout(),
        mcp_wire::stdio::Config::new(identity()),
    );
    let ended = tokio::select! {
        ended = serve => ended,
        () = signals.wait() => Ok(()),
    };
    if let Some(opened) = shared.opened.get() {
        // As a server over HTTP ends.
        opened.stop.send_replace(true);
        opened.stop.closed().await;
        let mut background = opened.background.clone();
        background.push(reloads);
        let until = tokio::time::Instant::now() + super::SHUTDOWN_WAIT;
        super::wind_down(&opened.app, &shared.reloader, &background, until).await;
    }
    ended.map_err(|error| StartError::Internal(anyhow::anyhow!("standard input or output failed: {error}")))
}

/// Whose rights the client has.
enum ActsFor {
    /// Nobody was named: reads only.
    Reader(Arc<Principal>),
    /// This entry of the tokens file, looked up at each call, so that a reload changes or ends what it may do.
    Entry(String),
}

impl ActsFor {
    fn named(name: Option<String>, snapshot: &Snapshot) -> Result<Self, StartError> {
        let Some(name) = name else {
            return Ok(Self::Reader(Arc::new(Principal::local_reader("stdio"))));
        };
        let entry = Self::Entry(name.clone());
        if entry.principal(snapshot).is_some() {
            return Ok(entry);
        }
        Err(StartError::Configuration(vec![Problem::flag(format!(
            "--stdio-principal {name}: the tokens file has no entry of that name"
        ))]))
    }

    fn principal(&self, snapshot: &Snapshot) -> Option<Arc<Principal>> {
        match self {
            Self::Reader(principal) => Some(principal.clone()),
            Self::Entry(name) => {
                snapshot.tokens.principal(name).map(|principal| Arc::new(principal.over_stdio()))
            }
        }
    }
}

/// The service over stdio, with its parts opened at the first call.
#[derive(Clone)]
struct Lazy {
    shared: Arc<Shared>,
}

struct Shared {
    args: ServeArgs,
    live: Arc<Live>,
    acts_for: ActsFor,
    reloader: Arc<Reloader>,
    catalog: Catalog,
    opened: OnceCell<Opened>,
}

/// What the first call opened.
struct Opened {
    app: Arc<App>,
    /// Stops the listener for uploads and the control socket, which hold the only receivers.
    stop: watch::Sender<bool>,
    background: Vec<AbortHandle>,
    _lock: StateLock,
}

impl Service<Request<()>> for Lazy {
    type Response = Reply;
    type Error = RpcError;
    type Future = Pin<Box<dyn Future<Output = Result<Reply, RpcError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), RpcError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move {
            if matches!(request.method, Method::ToolsList { .. }) {
                let caller = shared.caller();
                let tools = caller.map(|caller| shared.catalog.listed_for(&caller, jiff::Timestamp::now()));
                return Ok(Reply::Tools(tools.unwrap_or_default()));
            }
            let opened = match shared.opened.get_or_try_init(|| shared.open()).await {
                Ok(opened) => opened,
                Err(error) => return cannot_open(&error).into_reply().map(Reply::Tool),
            };
            match shared.caller() {
                Some(caller) => Rpc::new(opened.app.clone()).oneshot(request.map_caller(|()| caller)).await,
                None => shared.nobody(&opened.app).await.into_reply().map(Reply::Tool),
            }
        })
    }
}

impl Shared {
    /// Who calls now; `None` once a reload has taken the entry away.
    fn caller(&self) -> Option<Caller> {
        let snapshot = self.live.load();
        let principal = self.acts_for.principal(&snapshot)?;
        Some(Caller { principal, via: Via::Stdio, snapshot, request_id: request_id(), share: None })
    }

    async fn nobody(&self, app: &App) -> ToolFailure {
        let name = self.args.stdio_principal.as_deref().unwrap_or_default();
        let record = Record::new(Event::AuthFailure)
            .detail("via", "stdio")
            .denied("unknown_token", format!("the tokens file no longer has an entry `{name}`"));
        if let Err(error) = app.audit.append(record).await {
            tracing::error!(%error, "a refused call could not be audited");
        }
        ToolFailure::new(
            "unauthorized",
            format!(
                "the tokens file no longer has the entry `{name}` that this process acts for; the operator can put it back or \
                 start the process with another --stdio-principal"
            ),
        )
    }

    async fn open(&self) -> Result<Opened, StartError> {
        let listener = match self.args.transfer_listen {
            Some(address) => Some(Listener::at(address, &self.args).await?),
            None => None,
        };
        let metrics = super::metrics_listener(&self.args).await?;
        let transfers = listener
            .as_ref()
            .map(|listener| start::transfers_for(&self.live, listener.address(), listener.is_tls()));
        let (app, lock) = start_app(&self.args, self.live.clone(), transfers, None).await?;
        self.reloader.record_to(app.audit.clone());
        let (stop, stopped) = watch::channel(false);
        super::attend(&app, &self.args, stopped.clone())?;
        if let Some(listener) = listener {
            let front = Front::transfers_only(app.clone(), &self.args, listener.address())?;
            tokio::spawn(listener.serve(front, stopped));
        }
        let mut background = vec![super::sweeps(app.clone())];
        background.extend(metrics.map(|listener| listener.serve(app.clone())));
        Ok(Opened { app, stop, background, _lock: lock })
    }
}

/// Why no call can be served, for the model and whoever reads over its shoulder.
fn cannot_open(error: &StartError) -> ToolFailure {
    let code = match error {
        StartError::StateDir(StateDirError::Held { .. }) => "state_in_use",
        _ => "cannot_start",
    };
    ToolFailure::new(code, format!("this process can list tools but not run them: {error}"))
}
