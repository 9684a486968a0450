//! Standard input and output. Clients start a second process only to see what it offers, so starting takes no lock and writes
//! nothing; the first `tools/call` opens the state.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use authz::Principal;
use mcp_wire::{Method, Reply, Request, RpcError, ToolResult};
use tokio::sync::{OnceCell, watch};
use tower::{Service, ServiceExt};

use super::front::{Front, identity, request_id};
use super::http::Listener;
use super::start::{self, StartError, start_app};
use crate::app::App;
use crate::catalog::Catalog;
use crate::cli::ServeArgs;
use crate::config::{Live, Problem, Sources};
use crate::stack::{Caller, Rpc, Via};
use crate::state_dir::StateLock;

/// Serves one client until its input ends.
pub(super) async fn run(args: &ServeArgs) -> Result<(), StartError> {
    let sources = Sources::of(args);
    let live = start::load(&sources)?;
    let principal = principal(args, &live)?;
    let service = Lazy {
        shared: Arc::new(Shared {
            args: args.clone(),
            sources,
            live,
            principal,
            catalog: Catalog::new(args.transfer_listen.is_some())?,
            opened: OnceCell::new(),
        }),
    };
    let served = service.clone();
    let signals = super::StopSignals::catch()?;
    let stop = async {
        signals.wait().await;
        Ok(())
    };
    let serve = mcp_wire::stdio::serve(
        served,
        (),
        tokio::io::stdin(),
        tokio::io::stdout(),
        mcp_wire::stdio::Config::new(identity()),
    );
    let ended = tokio::select! {
        ended = serve => ended,
        stopped = stop => stopped,
    };
    if let Some(opened) = service.shared.opened.get() {
        opened.app.tracker.idle().await;
        opened.app.audit.stop().await;
    }
    ended.map_err(|error| StartError::Internal(anyhow::anyhow!("standard input or output failed: {error}")))
}

fn principal(args: &ServeArgs, live: &Live) -> Result<Arc<Principal>, StartError> {
    match &args.stdio_principal {
        None => Ok(Arc::new(Principal::local_reader("stdio"))),
        Some(name) => match live.load().tokens.principal(name) {
            Some(principal) => Ok(Arc::new(principal.over_stdio())),
            None => Err(StartError::Configuration(vec![Problem::flag(format!(
                "--stdio-principal {name}: the tokens file has no entry of that name"
            ))])),
        },
    }
}

/// The service over stdio, with its parts opened at the first call.
#[derive(Clone)]
struct Lazy {
    shared: Arc<Shared>,
}

struct Shared {
    args: ServeArgs,
    sources: Sources,
    live: Arc<Live>,
    principal: Arc<Principal>,
    catalog: Catalog,
    opened: OnceCell<Opened>,
}

struct Opened {
    app: Arc<App>,
    _lock: StateLock,
    _stop: watch::Sender<bool>,
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
            let caller = shared.caller();
            if matches!(request.method, Method::ToolsList { .. }) {
                return Ok(Reply::Tools(shared.catalog.listed_for(&caller, jiff::Timestamp::now())));
            }
            match shared.opened.get_or_try_init(|| shared.open()).await {
                Ok(opened) => Rpc::new(opened.app.clone()).oneshot(request.map_caller(|()| caller)).await,
                Err(error) => Ok(Reply::Tool(ToolResult::error(format!("the server cannot work: {error}")))),
            }
        })
    }
}

impl Shared {
    fn caller(&self) -> Caller {
        Caller {
            principal: self.principal.clone(),
            via: Via::Stdio,
            snapshot: self.live.load(),
            request_id: request_id(),
            share: None,
        }
    }

    async fn open(&self) -> Result<Opened, StartError> {
        let (stop, stopped) = watch::channel(false);
        let listener = match self.args.transfer_listen {
            Some(address) => Some(bound(address).await?),
            None => None,
        };
        let transfers =
            listener.as_ref().map(|listener| start::transfers_for(&self.live, listener.address(), false));
        let (app, lock) = start_app(&self.args, self.live.clone(), transfers, None).await?;
        if let Some(listener) = listener {
            let front = Front::transfers_only(app.clone(), &self.args, listener.address())?;
            tokio::spawn(listener.serve(front, stopped));
        }
        // They end with the process.
        super::reloads(self.sources.clone(), self.live.clone(), &app);
        super::sweeps(app.clone());
        Ok(Opened { app, _lock: lock, _stop: stop })
    }
}

async fn bound(address: SocketAddr) -> Result<Listener, StartError> {
    Listener::plain(address).await
}
