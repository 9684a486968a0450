//! A real OpenSSH server on a free loopback port, with a stub `pct` whose containers are folders.
//!
//! Self-contained (`std`, `tempfile` and the crate itself), so that other crates' tests can include the file with `#[path]`. The stub
//! enters a container with `chroot` and Debian's static busybox, hence needs root; [`Sshd::start`] prints
//! `skipped: …` and returns `None` where something it needs is missing.
#![allow(dead_code, unreachable_pub, reason = "each test crate that includes this file uses a part of it")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use guest_push::{Deadlines, Identity, KnownHosts, Pusher, SshTarget};
use tempfile::TempDir;

const SSHD: &str = "/usr/sbin/sshd";
const STUB: &str = include_str!("pct.sh");
/// What the guests can run, each a link to busybox.
const APPLETS: [&str; 18] = [
    "sh",
    "cat",
    "chmod",
    "chown",
    "ln",
    "mkdir",
    "mv",
    "rm",
    "wc",
    "sha256sum",
    "stat",
    "mkfifo",
    "find",
    "timeout",
    "true",
    "df",
    "dd",
    "sleep",
];

/// A running server; killed, and its files removed, on drop.
pub struct Sshd {
    dir: TempDir,
    child: Child,
    port: u16,
    host_key: String,
}

impl Sshd {
    /// Starts a server with the default settings. `None` when this machine lacks something.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts a server with further lines for its `sshd_config`, which go first and therefore win.
    pub fn start_with(settings: &str) -> Option<Self> {
        if let Some(missing) = missing() {
            println!("skipped: {missing} is missing");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        for name in ["bin", "faults", "guests", "running"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        write_script(&base.join("bin/pct"), &STUB.replace("@BASE@", base.to_str().unwrap()));
        keygen(&base.join("host_key"));
        keygen(&base.join("user_key"));
        fs::copy(base.join("user_key.pub"), base.join("authorized_keys")).unwrap();
        let host_key = fs::read_to_string(base.join("host_key.pub")).unwrap().trim().to_owned();
        // Root's sshd wants this directory of the package's service unit.
        fs::create_dir_all("/run/sshd").unwrap();
        // The port is free now and may be taken a moment later: then another.
        for _attempt in 0..10 {
            let port = free_port();
            let config = base.join("sshd_config");
            fs::write(&config, sshd_config(base, port, settings)).unwrap();
            let log = fs::File::create(base.join("log")).unwrap();
            let mut child = Command::new(SSHD)
                .args(["-D", "-e", "-f"])
                .arg(&config)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            if came_up(&mut child, port) {
                return Some(Self { dir, child, port, host_key });
            }
        }
        panic!("sshd did not start: {}", fs::read_to_string(base.join("log")).unwrap_or_default());
    }

    /// `127.0.0.1`.
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    /// The process that listens.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The login user whose `authorized_keys` has our key.
    pub fn user(&self) -> &'static str {
        "root"
    }

    /// The server's line for a `known_hosts` file.
    pub fn known_hosts_line(&self) -> String {
        format!("[{}]:{} {}", self.host(), self.port, self.host_key)
    }

    /// The server's fingerprint, `SHA256:…`, by `ssh-keygen`.
    pub fn fingerprint(&self) -> String {
        let output =
            Command::new("ssh-keygen").arg("-lf").arg(self.dir.path().join("host_key.pub")).output().unwrap();
        let line = String::from_utf8(output.stdout).unwrap();
        line.split(' ').nth(1).unwrap().to_owned()
    }

    /// The private key that may log in, as OpenSSH writes it.
    pub fn client_key_pem(&self) -> String {
        fs::read_to_string(self.dir.path().join("user_key")).unwrap()
    }

    /// Where to stage; not made yet.
    pub fn staging_dir(&self) -> PathBuf {
        self.dir.path().join("staging")
    }

    /// Names in the staging directory; empty when it does not exist.
    pub fn staged(&self) -> Vec<String> {
        names(&self.staging_dir())
    }

    /// Makes a running container and returns its root folder.
    pub fn add_guest(&self, vmid: u32) -> PathBuf {
        let root = self.guest_root(vmid);
        for name in ["bin", "dev", "etc", "root", "tmp"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/:/bin/sh\n")
            .unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\napp:x:1001:\n").unwrap();
        fs::write(root.join("dev/null"), "").unwrap();
        fs::set_permissions(root.join("dev/null"), fs::Permissions::from_mode(0o666)).unwrap();
        fs::copy(busybox().unwrap(), root.join("bin/busybox")).unwrap();
        for applet in APPLETS {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        self.start_guest(vmid);
        root
    }

    /// Gives a container `openssl`, which most distributions have and which hashes fastest, with the libraries it needs.
    /// `false` when this machine has none to give.
    pub fn add_openssl(&self, vmid: u32) -> bool {
        let program = Path::new("/usr/bin/openssl");
        let Ok(needed) = Command::new("ldd").arg(program).output() else { return false };
        if !needed.status.success() {
            return false;
        }
        let listed = String::from_utf8(needed.stdout).unwrap();
        let libraries = listed.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
        let root = self.guest_root(vmid);
        for file in libraries.chain([program]) {
            let inside = root.join(file.strip_prefix("/").unwrap());
            fs::create_dir_all(inside.parent().unwrap()).unwrap();
            fs::copy(file, inside).unwrap();
        }
        // The search path of the stub's shells is the machine's; the root has no other folder for programs.
        symlink("../usr/bin/openssl", root.join("bin/openssl")).unwrap();
        true
    }

    /// A client of this server that holds its host key, and waits as long as it is told to.
    pub fn pusher(&self, deadlines: Deadlines) -> Pusher {
        let target = SshTarget {
            port: self.port(),
            staging_dir: self.staging_dir().to_str().unwrap().to_owned(),
            ..SshTarget::new(self.host())
        };
        let identity = Arc::new(Identity::from_openssh(&self.client_key_pem()).unwrap());
        let known_hosts = Arc::new(KnownHosts::parse(&self.known_hosts_line()).unwrap());
        Pusher::new(target, identity, known_hosts, deadlines)
    }

    /// The root folder of a container.
    pub fn guest_root(&self, vmid: u32) -> PathBuf {
        self.dir.path().join("guests").join(vmid.to_string())
    }

    /// Marks a container as running.
    pub fn start_guest(&self, vmid: u32) {
        fs::write(self.running_mark(vmid), "").unwrap();
    }

    /// Marks a container as stopped.
    pub fn stop_guest(&self, vmid: u32) {
        fs::remove_file(self.running_mark(vmid)).unwrap();
    }

    /// The file whose presence means "running".
    pub fn running_mark(&self, vmid: u32) -> PathBuf {
        self.dir.path().join("running").join(vmid.to_string())
    }

    /// Switches a fault of the stub on; see `pct.sh` for their names.
    pub fn fault(&self, name: &str, value: &str) {
        // Renamed into place: the stub never sees a fault without its value.
        let part = self.dir.path().join("fault.part");
        fs::write(&part, value).unwrap();
        fs::rename(part, self.dir.path().join("faults").join(name)).unwrap();
    }

    /// Switches a fault off.
    pub fn no_fault(&self, name: &str) {
        fs::remove_file(self.dir.path().join("faults").join(name)).unwrap();
    }

    /// One line per call of `pct` so far: its verb, container and number of arguments.
    pub fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Every file of ours, staged or temporary, that exists anywhere on the node or in its guests.
    pub fn residue(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.dir.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for name in names(&folder) {
                let path = folder.join(&name);
                if name.contains("pxw-") {
                    found.push(path.display().to_string());
                } else if path.is_dir() && !path.is_symlink() {
                    folders.push(path);
                }
            }
        }
        found
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Commands that a fault keeps hanging end with it.
        for name in names(&self.dir.path().join("faults")) {
            let _gone = fs::remove_file(self.dir.path().join("faults").join(name));
        }
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Waits for something that another task or process brings about, and fails after twenty seconds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < patience, "still not: {what}");
        std::thread::yield_now();
    }
}

/// Names in a directory, sorted; empty when it does not exist.
pub fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else {
        return Vec::new();
    };
    let mut names: Vec<String> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A directory with mode 0700.
pub fn private_dir(path: &Path) {
    fs::DirBuilder::new().mode(0o700).create(path).unwrap();
}

fn missing() -> Option<&'static str> {
    let has_tool = |name: &str| Command::new(name).arg("-?").output().is_ok();
    if !Path::new(SSHD).exists() {
        return Some(SSHD);
    }
    if !has_tool("ssh-keygen") {
        return Some("ssh-keygen");
    }
    if busybox().is_none() {
        return Some("a static busybox (Debian's busybox-static)");
    }
    let id = Command::new("id").arg("-u").output().ok()?;
    (id.stdout != b"0\n").then_some("root (for chroot)")
}

/// A busybox that runs in an empty root, that is one without a dynamic loader.
fn busybox() -> Option<&'static Path> {
    let path = ["/usr/bin/busybox", "/bin/busybox"].into_iter().map(Path::new).find(|p| p.exists())?;
    let text = fs::read(path).ok()?;
    let dynamic = text.windows(8).take(4096).any(|w| w == b"ld-linux");
    (!dynamic).then_some(path)
}

fn sshd_config(base: &Path, port: u16, settings: &str) -> String {
    let base = base.display();
    // Of this one setting some versions take the first line and some the last.
    let startups = if settings.contains("MaxStartups") { "" } else { "MaxStartups 200" };
    // The node's login shell finds no start files: those of whoever runs the tests are no part of a node.
    format!(
        "{settings}
{startups}
Port {port}
ListenAddress 127.0.0.1
HostKey {base}/host_key
PidFile none
AuthorizedKeysFile {base}/authorized_keys
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
MaxSessions 50
SetEnv HOME={base}/home PATH={base}/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
Subsystem sftp internal-sftp
"
    )
}

fn keygen(path: &Path) {
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"]).arg(path).status();
    assert!(made.unwrap().success());
}

fn write_script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

/// True once the port answers; false when the process ended first.
fn came_up(child: &mut Child, port: u16) -> bool {
    let patience = Instant::now() + Duration::from_secs(20);
    while Instant::now() < patience {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}
