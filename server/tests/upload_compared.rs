//! The whole way of an upload beside OpenSSH's own `sftp`, in one run: `curl -T` over HTTPS to the real program, through one OpenSSH
//! server into a container, verified there, against a `put` of the same file to the same server, which verifies nothing.
//!
//! Small by default, so that it is a test of every way; `benches/README.md` has the commands that measure with it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    reason = "a test stops at the first surprise"
)]

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/delay.rs"]
mod delay;
#[path = "support/program.rs"]
mod program;
#[path = "../../guest-push/tests/support/mod.rs"]
mod sshd;
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use certificates::Authority;
use delay::Delay;
use program::Program;
use serde_json::{Value, json};
use sshd::{Sshd, eventually};
use support::{Stage, roomy};
use tempfile::TempDir;

const VMID: u32 = 200;

/// A number from the environment: what makes a measurement of this test.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// The file that travels, OpenSSH's server, and what its clients need to know of it.
struct Ground {
    sshd: Sshd,
    dir: TempDir,
    file: PathBuf,
    mib: usize,
    authority: Authority,
}

impl Ground {
    fn new() -> Option<Self> {
        for tool in ["curl", "sftp"] {
            if Command::new(tool).arg("--help").output().is_err() {
                println!("skipped: {tool} is missing");
                return None;
            }
        }
        let sshd = Sshd::start()?;
        sshd.add_guest(VMID);
        if !sshd.add_openssl(VMID) {
            println!("the container hashes with busybox: there is no openssl to give to it");
        }
        let mib = setting("PROXWARD_COMPARE_MIB", 4);
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("source.bin");
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        let chunk: Vec<u8> = std::iter::repeat_with(&mut next).take(1 << 20).collect();
        let mut source = std::fs::File::create(&file).unwrap();
        for _ in 0..mib {
            std::io::Write::write_all(&mut source, &chunk).unwrap();
        }
        Some(Self { sshd, dir, file, mib, authority: Authority::new() })
    }

    /// CPU time of the server's processes, of which none may be at work.
    fn cpu_of_sshd(&self) -> f64 {
        let pid = self.sshd.pid();
        let children = format!("/proc/{pid}/task/{pid}/children");
        eventually("every session to have ended", || std::fs::read_to_string(&children).unwrap().is_empty());
        cpu(pid)
    }

    /// `sftp put` over this port, with OpenSSH's own choice of everything.
    fn put(&self, port: u16) -> Figure {
        let private = |name: &str, text: String| write_private(self.dir.path(), name, text);
        let key = private("key", self.sshd.client_key_pem());
        let known = private("known", self.known_hosts(port));
        let target = self.dir.path().join("put.bin");
        let batch = private("batch", format!("put {} {}\n", self.file.display(), target.display()));
        settle();
        let before = cpu(std::process::id()) + self.cpu_of_sshd();
        let started = Instant::now();
        let status = Command::new("sftp")
            .args([
                "-q",
                "-P",
                &port.to_string(),
                "-i",
                &key,
                "-b",
                &batch,
                "-o",
                "IdentitiesOnly=yes",
                "-F",
                "none",
            ])
            .args(["-o", &format!("UserKnownHostsFile={known}")])
            .arg(format!("{}@{}", self.sshd.user(), self.sshd.host()))
            .stdout(Stdio::null())
            .status()
            .unwrap();
        let took = started.elapsed();
        assert!(status.success());
        assert_eq!(std::fs::metadata(&target).unwrap().len(), self.bytes());
        std::fs::remove_file(&target).unwrap();
        Figure { took, cpu: cpu(std::process::id()) + self.cpu_of_sshd() - before }
    }

    fn known_hosts(&self, port: u16) -> String {
        let line = self.sshd.known_hosts_line();
        let (_, key) = line.split_once(' ').unwrap();
        format!("[{}]:{port} {key}\n", self.sshd.host())
    }

    fn bytes(&self) -> u64 {
        (self.mib as u64) << 20
    }
}

/// The program, told to reach the node at this port and to take this way into containers.
struct Server {
    stage: Stage,
    program: Program,
    base: String,
    ca: String,
}

impl Server {
    async fn start(ground: &Ground, port: u16, route: &str) -> Self {
        let mut policy = roomy();
        policy["transfers"] = json!({"lxc_route": route});
        let stage = Stage::with_policy(policy).await;
        let sshd = &ground.sshd;
        let key = write_private(stage.dir.path(), "sshd-key", sshd.client_key_pem());
        let known = write_private(stage.dir.path(), "sshd-known-hosts", ground.known_hosts(port));
        let node = json!({"host": sshd.host(), "port": port});
        let ssh = json!({
            "user": sshd.user(), "key_file": key, "known_hosts_file": known,
            "staging_dir": sshd.staging_dir(), "nodes": {"pve1": node, "pve2": node},
        });
        stage.edit_clusters(|file| file["devices"]["alpha"]["ssh"] = ssh);
        let [cert, key] = ground.authority.write_server_files(stage.dir.path());
        let ca = stage.path("ca.pem");
        std::fs::write(&ca, ground.authority.pem()).unwrap();
        let line = stage.command_line(&["--tls-cert", &cert, "--tls-key", &key]);
        let (program, address) = Program::serve(&line);
        Self { stage, program, base: format!("https://{address}"), ca: ca.display().to_string() }
    }

    fn curl(&self, arguments: &[&str], url: &str) -> Value {
        let output = Command::new("curl")
            .args(["-sS", "--noproxy", "*", "--max-time", "600", "--cacert", &self.ca])
            .args(arguments)
            .arg(url)
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// One upload, from curl's start to the answer that the file is verified and in its place.
    fn upload(&self, ground: &Ground, route: &str) -> Figure {
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
            "name": "proxmox_upload_link", "arguments": {"cluster": "alpha", "vmid": VMID, "dest": "/root/up.bin"},
        }});
        let bearer = format!("Authorization: Bearer {}", self.stage.bearer("agent"));
        let lines = ["-H", &bearer, "-H", "Content-Type: application/json", "-d", &call.to_string()];
        let minted = self.curl(&lines, &format!("{}/mcp", self.base));
        let url = minted["result"]["structuredContent"]["url"].as_str().unwrap().to_owned();
        settle();
        let cpu_now = || cpu(std::process::id()) + ground.cpu_of_sshd() + cpu(self.program.pid());
        let before = cpu_now();
        let started = Instant::now();
        let receipt = self.curl(&["-T", ground.file.to_str().unwrap()], &url);
        let took = started.elapsed();
        assert_eq!(receipt["bytes"], ground.bytes(), "{receipt}");
        assert_eq!(
            (&receipt["checksum_verified"], &receipt["route"]),
            (&json!(true), &json!(route)),
            "{receipt}"
        );
        let figure = Figure { took, cpu: cpu_now() - before };
        let landed = ground.sshd.guest_root(VMID).join("root/up.bin");
        if ground.mib <= 64 {
            assert!(std::fs::read(&landed).unwrap() == std::fs::read(&ground.file).unwrap());
        }
        std::fs::remove_file(landed).unwrap();
        figure
    }
}

/// Wall time, and CPU time of every process that took part: client, program, server, commands in the container.
#[derive(Clone, Copy)]
struct Figure {
    took: Duration,
    cpu: f64,
}

fn write_private(dir: &Path, name: &str, text: String) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&path, mode).unwrap();
    path.display().to_string()
}

/// CPU seconds of a process, and of those children of it that have ended.
fn cpu(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name in parentheses may hold spaces; the times are the 14th to 17th field, in hundredths of a second.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').skip(11).take(4).map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// What an earlier turn has left to be written to disk is not this one's.
fn settle() {
    assert!(Command::new("sync").status().unwrap().success());
}

/// Takes turns, and prints the medians with the quotient to the last of them, which is OpenSSH's. Returns the quotients.
fn compare(mib: usize, names: &[&str], mut turn: impl FnMut(usize) -> Figure) -> Vec<f64> {
    let rounds = setting("PROXWARD_COMPARE_ROUNDS", 1);
    let mut figures = vec![Vec::new(); names.len()];
    for _ in 0..rounds {
        for (which, figures) in figures.iter_mut().enumerate() {
            figures.push(turn(which));
        }
    }
    let medians: Vec<Figure> = figures
        .into_iter()
        .map(|mut figures| {
            figures.sort_by_key(|figure| figure.took);
            figures[figures.len() / 2]
        })
        .collect();
    let openssh = medians.last().unwrap().took.as_secs_f64();
    let gib = mib as f64 / 1024.0;
    let mut quotients = Vec::new();
    for (name, figure) in names.iter().zip(&medians) {
        let took = figure.took.as_secs_f64();
        let quotient = took / openssh;
        println!(
            "{name}: {mib} MiB in {took:.2} s ({:.0} MiB/s), {quotient:.2} of OpenSSH's, {:.1} CPU-s per GiB; median of {rounds}",
            mib as f64 / took,
            figure.cpu / gib,
        );
        quotients.push(quotient);
    }
    quotients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_way_carries_the_file_and_its_cost_is_printed_beside_openssh_sftp() {
    let Some(ground) = Ground::new() else { return };
    let port = ground.sshd.port();
    let stream = Server::start(&ground, port, "stream").await;
    let staged = Server::start(&ground, port, "sftp+pct_push").await;
    let names = ["curl -T, stream", "curl -T, sftp+pct_push", "OpenSSH sftp put, to the node only"];
    let quotients = compare(ground.mib, &names, |which| match which {
        0 => stream.upload(&ground, "stream"),
        1 => staged.upload(&ground, "sftp+pct_push"),
        _ => ground.put(port),
    });
    assert_eq!(quotients.len(), names.len());
    assert!(ground.sshd.residue().is_empty(), "{:?}", ground.sshd.residue());
}

/// The distance is between the program and the node: 25 ms each way, and OpenSSH's client goes through the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_distant_node_is_reached_and_its_cost_is_printed_beside_openssh_sftp() {
    let Some(ground) = Ground::new() else { return };
    let delay = Delay::before(ground.sshd.port(), Duration::from_millis(25));
    let stream = Server::start(&ground, delay.port(), "stream").await;
    let names = ["curl -T, stream, 25 ms each way", "OpenSSH sftp put, 25 ms each way"];
    compare(ground.mib, &names, |which| match which {
        0 => stream.upload(&ground, "stream"),
        _ => ground.put(delay.port()),
    });
    assert!(ground.sshd.residue().is_empty(), "{:?}", ground.sshd.residue());
}
