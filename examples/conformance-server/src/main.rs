//! A server made with `mcp-wire` alone that has everything the public MCP conformance suite asks for: every
//! feature of every revision, with contents that mean nothing. An example of a complete server, and what the
//! suite is run against.
#![forbid(unsafe_code)]

mod prompts;
mod resources;
mod service;
mod tools;

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context, ensure};
use clap::Parser;
use hyper_util::rt::{TokioIo, TokioTimer};
use mcp_wire::{
    Changes, Identity, Offers, ServerInfo, Stateful,
    events::Events,
    http::{Config, HostPolicy, McpHttp, ParamHeaders, Refusal},
    legacy::SessionLimits,
    state_seal::StateSeal,
    stdio,
    tasks::MemoryStore,
};

use service::Service;
use tools::Tools;

/// Serves MCP to anyone on this machine.
#[derive(Debug, Parser)]
#[command(name = "conformance-server")]
struct Arguments {
    /// The loopback address to listen on; port 0 takes a free one. The URL is printed once it listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Serve standard input and output instead.
    #[arg(long)]
    stdio: bool,
}

/// The one caller there is: nobody is asked who they are here.
type Anyone = String;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let events = Events::new();
    let tools = Arc::new(Tools::new(events.clone())?);
    let param_headers = ParamHeaders::of(tools.descriptors())?;
    let service = Service::new(tools);
    let offers = Offers::new().resources().prompts().completions();
    let identity = Identity::new(ServerInfo::new("conformance-server", env!("CARGO_PKG_VERSION")))
        .instructions("A server to test clients and protocol suites with. Its tools do nothing useful.")
        .offers(offers);
    let mut key = [0; 32];
    getrandom::fill(&mut key).context("the system has no random bytes")?;
    let stateful = Stateful::new(Anyone::clone)
        .sessions(SessionLimits { per_caller: 256, ..SessionLimits::default() })
        .seal(StateSeal::new(key))
        .tasks(Arc::new(MemoryStore::default()))
        .events(events, Changes::ALL)
        .logging();
    if arguments.stdio {
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        let config = stdio::Config::new(identity);
        stdio::serve_keeping(service, "anyone".to_owned(), stdin, stdout, config, stateful).await?;
        return Ok(());
    }
    ensure!(arguments.listen.ip().is_loopback(), "--listen must be a loopback address: anyone may call");
    let anyone = |_: &http::request::Parts| std::future::ready(Ok::<_, Refusal>("anyone".to_owned()));
    let config = Config::new(identity).hosts(HostPolicy::loopback()).param_headers(param_headers);
    let endpoint = McpHttp::keeping(service, anyone, config, stateful);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = hyper_util::service::TowerToHyperService::new(endpoint.clone());
        let mut http1 = hyper::server::conn::http1::Builder::new();
        http1.timer(TokioTimer::new());
        tokio::spawn(async move { http1.serve_connection(TokioIo::new(stream), service).await });
    }
}
