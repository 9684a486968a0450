//! Whole calls of `get_vms`: through the server's front, its stack, the client, TLS and back, against the lab.
//!
//! Two figures. For a cluster of ten thousand guests: the processor time a call costs the server beyond receiving the
//! cluster's answer, the latter measured as a bare TLS read of the same bytes. For a cluster of a dozen guests that
//! takes 20 ms to answer: how many calls a second 32 callers get, the cache off.
//!
//! Lab, server and receiver have threads of their own, named after them, and processor time is read per thread.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop at the first surprise"
)]

mod stage;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use benches::{large_cluster, measuring};
use lab::{Action, Fault, Lab, LabCluster, LabConfig};
use proxward::serve::{Options, Running, start_http};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

fn runtime(name: &str, threads: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build().unwrap()
}

/// The processor time of all threads of that name so far.
fn processor_time(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = tasks.filter_map(|task| {
        let folder = task.ok()?.path();
        let comm = std::fs::read_to_string(folder.join("comm")).ok()?;
        if comm.trim() != name {
            return None;
        }
        let stat = std::fs::read_to_string(folder.join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

struct Stage {
    lab: Lab,
    _lab_runtime: Runtime,
    server: Running,
    server_runtime: Runtime,
    bearer: String,
    _dir: TempDir,
}

impl Stage {
    fn new() -> Self {
        let lab_runtime = runtime("lab", 1);
        let lab = lab_runtime.block_on(Lab::start(LabConfig::two_clusters().unwrap())).unwrap();
        let dir = TempDir::new().unwrap();
        let policy = json!({"resource_cache_ttl_secs": 0, "limits": {
            "calls_per_second": 100_000, "call_burst": 1_000_000, "calls_in_flight": 10_000,
        }});
        let (args, bearer) = stage::reader_of(&lab, &dir, policy, &["*"]);
        let server_runtime = runtime("server", 2);
        let server = server_runtime.block_on(start_http(&args, Options::default())).unwrap();
        Self { lab, _lab_runtime: lab_runtime, server, server_runtime, bearer, _dir: dir }
    }

    fn alpha(&self) -> LabCluster {
        self.lab.cluster("alpha")
    }

    /// The bytes of a call of `get_vms`.
    fn call(&self) -> Arc<[u8]> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "get_vms", "arguments": {"cluster": "alpha"},
            "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}},
        }})
        .to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
             Mcp-Name: get_vms\r\nContent-Length: {}\r\n\r\n",
            self.server.address,
            self.bearer,
            body.len()
        );
        Arc::from((head + &body).into_bytes())
    }
}

/// Sends a request over a connection that stays open and reads the whole answer.
async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    request: &[u8],
    buffer: &mut Vec<u8>,
) -> usize {
    stream.write_all(request).await.unwrap();
    stream.flush().await.unwrap();
    buffer.clear();
    let head = loop {
        assert_ne!(stream.read_buf(buffer).await.unwrap(), 0, "the connection ended");
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let text = String::from_utf8(buffer[..head].to_vec()).unwrap().to_lowercase();
    assert!(text.starts_with("http/1.1 200"), "{text}");
    let length = text.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let length: usize = length.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap();
    buffer.reserve(head + length);
    while buffer.len() < head + length {
        assert_ne!(stream.read_buf(buffer).await.unwrap(), 0, "the connection ended");
    }
    length
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Processor time per call on threads of that name, median of the rounds.
fn per_call(name: &str, rounds: usize, mut call: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..rounds)
        .map(|_| {
            let before = processor_time(name);
            call();
            processor_time(name) - before
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

/// One list of ten thousand guests.
fn large_list(stage: &Stage) {
    let body = large_cluster(10_000);
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", Action::Raw(body.clone().into())));
    let rounds = if measuring() { 60 } else { 2 };
    let client = runtime("client", 1);
    let (request, mut buffer) = (stage.call(), Vec::new());
    let mut stream = client.block_on(connect(stage.server.address));
    let mut call = || {
        client.block_on(exchange(&mut stream, &request, &mut buffer));
    };
    call();
    let whole = per_call("server", rounds, &mut call);
    let answer: Value = {
        let at = buffer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        serde_json::from_slice(&buffer[at..]).unwrap()
    };
    let total = &answer["result"]["structuredContent"]["total"];
    assert_eq!(total, 6_666, "{answer}");

    // Bare receiving: the same bytes of the same lab over one TLS connection, into a buffer.
    let receiver = runtime("receiver", 1);
    let (address, token) = (stage.alpha().address(), stage.alpha());
    let request: Arc<[u8]> = Arc::from(
        format!(
            "GET /api2/json/cluster/resources HTTP/1.1\r\nHost: {address}\r\nAuthorization: PVEAPIToken={}={}\r\n\r\n",
            token.token_id(),
            token.token_secret()
        )
        .into_bytes(),
    );
    let pem = stage.alpha().ca_pem().to_owned();
    let tls = Arc::new(tokio::sync::Mutex::new(receiver.block_on(async move {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::from(address.ip());
        (connector.connect(name, connect(address).await).await.unwrap(), Vec::new())
    })));
    let mut call = || {
        let (request, tls) = (request.clone(), tls.clone());
        let work = async move {
            let (stream, buffer) = &mut *tls.lock().await;
            exchange(stream, &request, buffer).await
        };
        // On the receiver's own thread, so that its time is counted there.
        let received = receiver.block_on(receiver.spawn(work)).unwrap();
        assert_eq!(received, body.len());
    };
    call();
    let bare = per_call("receiver", rounds, &mut call);
    println!(
        "get_vms of 10,000 guests ({:.2} MB): {whole:?} of the server's processor time a call, of which receiving {bare:?}; added: {:?} (medians of {rounds})",
        body.len() as f64 / 1e6,
        whole.saturating_sub(bare)
    );
    stage.alpha().clear_faults();
}

/// Many lists of a dozen guests at once.
fn many_lists(stage: &Stage) {
    let delay = Action::Delay(Duration::from_millis(20));
    stage.alpha().inject(Fault::always("GET", "/cluster/resources", delay));
    let (callers, span) = (32, Duration::from_secs(if measuring() { 10 } else { 1 }));
    let client = runtime("client", 1);
    let request = stage.call();
    let (calls, waited) = (Arc::new(AtomicU64::new(0)), Arc::new(std::sync::Mutex::new(Vec::new())));
    stage.alpha().clear_requests();
    let start = Instant::now();
    client.block_on(async {
        let tasks: Vec<_> = (0..callers)
            .map(|_| {
                let (request, calls, waited) = (request.clone(), calls.clone(), waited.clone());
                let address = stage.server.address;
                tokio::spawn(async move {
                    let (mut stream, mut buffer) = (connect(address).await, Vec::new());
                    while start.elapsed() < span {
                        let sent = Instant::now();
                        exchange(&mut stream, &request, &mut buffer).await;
                        calls.fetch_add(1, Ordering::Relaxed);
                        waited.lock().unwrap().push(sent.elapsed());
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    let took = start.elapsed();
    let mut waited = std::mem::take(&mut *waited.lock().unwrap());
    waited.sort_unstable();
    let calls = calls.load(Ordering::Relaxed);
    println!(
        "get_vms of a dozen guests, {callers} callers, 20 ms at the cluster, cache off: {:.0} calls/s (median {:?}, 99th {:?}; {calls} calls, {} requests to the cluster)",
        calls as f64 / took.as_secs_f64(),
        waited[waited.len() / 2],
        waited[waited.len() * 99 / 100],
        stage.alpha().requests().len(),
    );
    stage.alpha().clear_faults();
}

fn main() {
    if std::env::args().any(|argument| argument == "--list") {
        return;
    }
    let stage = Stage::new();
    many_lists(&stage);
    large_list(&stage);
    let Stage { server, server_runtime, .. } = stage;
    server_runtime.block_on(server.stop());
}
