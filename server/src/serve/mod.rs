//! Putting the parts together and serving them.

mod client;
pub mod control;
mod front;
mod heads;
mod http;
mod ready;
mod start;
mod stdio;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

pub(crate) use start::load;
pub use start::{StartError, open_app, start_app};

use crate::app::App;
use crate::audit::{Event, Record};
use crate::changes::Observer;
use crate::cli::{ServeArgs, Transport};
use crate::config::{Reloader, Sources};
use crate::metrics;

/// How long running work may still take when the server stops.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(30);

/// What an embedder may add to the flags.
#[derive(Default)]
pub struct Options {
    /// Told of every point an apply passes.
    pub observer: Option<Observer>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("observer", &self.observer.is_some()).finish()
    }
}

/// A server that listens.
#[derive(Debug)]
pub struct Running {
    /// Where it listens; the port is real even where 0 was asked for.
    pub address: SocketAddr,
    /// Where its counters are served, when they are.
    pub metrics_address: Option<SocketAddr>,
    /// Its parts.
    pub app: Arc<App>,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    reloader: Arc<Reloader>,
    background: Vec<AbortHandle>,
    _lock: crate::state_dir::StateLock,
}

impl Running {
    /// Stops accepting, lets running work finish (at most 30 s), records the stop and closes the audit trail.
    pub async fn stop(self) {
        // One deadline for both: connections and work that outlives them.
        let until = Instant::now() + SHUTDOWN_WAIT;
        self.stop.send_replace(true);
        // A panic of the accept loop ends it as well as a stop does.
        let _ = self.serving.await;
        wind_down(&self.app, &self.reloader, &self.background, until).await;
    }
}

/// Lets running work finish, at most until then, ends what runs in the background, records the stop and closes the audit trail.
async fn wind_down(app: &App, reloader: &Reloader, background: &[AbortHandle], until: Instant) {
    if tokio::time::timeout_at(until, app.tracker.idle()).await.is_err() {
        tracing::warn!(
            running = app.tracker.running(),
            "stopping although work is still running; recovery looks at it at the next start"
        );
    }
    let paused = reloader.pause().await;
    for task in background {
        task.abort();
    }
    drop(paused);
    if let Err(error) = app.audit.append(Record::new(Event::Stop)).await {
        tracing::error!(%error, "the stop could not be audited");
    }
    app.audit.stop().await;
}

/// Opens the door for people on this host. Without it nothing else is worse off, so a directory that can hold no socket is no
/// reason not to serve.
fn attend(app: &Arc<App>, args: &ServeArgs, stopped: watch::Receiver<bool>) -> Result<(), StartError> {
    match control::Control::bind(&args.state_dir) {
        Ok(socket) => {
            tokio::spawn(socket.serve(control::Desk::new(app.clone())?, stopped));
        }
        Err(error) => tracing::warn!(
            %error,
            "no control socket in the state directory: `proxward change` on this host needs --url while this server runs"
        ),
    }
    Ok(())
}

/// Starts serving over HTTP. `args` must have passed [`crate::cli::ServeArgs`]'s start rules.
///
/// # Errors
/// Every problem that keeps the server from starting.
pub async fn start_http(args: &ServeArgs, options: Options) -> Result<Running, StartError> {
    let sources = Sources::of(args);
    let live = start::load(&sources)?;
    let listener = http::Listener::bind(args).await?;
    let address = listener.address();
    let metrics = metrics_listener(args).await?;
    let transfers = start::transfers_for(&live, address, listener.is_tls());
    if let Some(listener) = &metrics {
        transfers.listens_on(listener.address().port());
    }
    let (app, lock) = start_app(args, live.clone(), Some(transfers), options.observer).await?;
    let front = front::Front::new(app.clone(), args, address)?;
    let (stop, stopped) = watch::channel(false);
    attend(&app, args, stopped.clone())?;
    let serving = tokio::spawn(listener.serve(front, stopped));
    let reloader = Arc::new(Reloader::new(sources, live, Some(app.audit.clone())));
    let mut background = vec![reloads(reloader.clone()), sweeps(app.clone())];
    let metrics_address = metrics.as_ref().map(metrics::Listener::address);
    background.extend(metrics.map(|listener| listener.serve(app.clone())));
    Ok(Running { address, metrics_address, app, stop, serving, reloader, background, _lock: lock })
}

/// Binds the listener for counters, where the flags ask for one.
async fn metrics_listener(args: &ServeArgs) -> Result<Option<metrics::Listener>, StartError> {
    match args.metrics_listen {
        Some(address) => metrics::Listener::bind(address).await.map(Some),
        None => Ok(None),
    }
}

/// Serves until the process is told to stop.
///
/// # Errors
/// Every problem that keeps the server from starting.
pub async fn run(args: &ServeArgs) -> Result<(), StartError> {
    match args.transport {
        Transport::Stdio => stdio::run(args).await,
        Transport::StreamableHttp => {
            let stop = StopSignals::catch()?;
            let running = start_http(args, Options::default()).await?;
            tracing::info!(address = %running.address, "serving MCP at /mcp");
            if let Some(address) = running.metrics_address {
                tracing::info!(%address, "serving counters at /metrics");
            }
            tell_supervisor(&[sd_notify::NotifyState::Ready]);
            stop.wait().await;
            tell_supervisor(&[sd_notify::NotifyState::Stopping]);
            running.stop().await;
            Ok(())
        }
    }
}

fn tell_supervisor(state: &[sd_notify::NotifyState<'_>]) {
    // Without a supervisor there is nobody to tell, which is no error.
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "the service manager was not told");
    }
}

/// SIGTERM and SIGINT, caught from the moment this is made: made before anything says that the server is ready, so that no
/// signal falls in between and kills it unrecorded.
struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    fn catch() -> Result<Self, StartError> {
        let caught =
            |kind| signal(kind).map_err(|error| StartError::Internal(anyhow::anyhow!("signals: {error}")));
        Ok(Self { terminate: caught(SignalKind::terminate())?, interrupt: caught(SignalKind::interrupt())? })
    }

    async fn wait(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// SIGHUP: reads the configuration again and opens the audit file anew.
fn reloads(reloader: Arc<Reloader>) -> AbortHandle {
    tokio::spawn(async move {
        if let Err(error) = reloader.run().await {
            tracing::error!(%error, "SIGHUP cannot be received; the configuration will not be reloaded");
        }
    })
    .abort_handle()
}

/// Retires expired links even when nobody presents or mints one.
fn sweeps(app: Arc<App>) -> AbortHandle {
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_secs(60));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(transfers) = &app.transfers {
                transfers.sweep(app.clock.monotonic());
            }
        }
    })
    .abort_handle()
}
