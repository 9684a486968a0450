//! Which node, and how long each step may take.

use std::time::Duration;

/// A Proxmox VE node reached over SSH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshTarget {
    /// Host name or IP address, without brackets; also the name looked up in the known hosts.
    pub host: String,
    /// TCP port, usually 22.
    pub port: u16,
    /// Login user, `root` unless `sudo` is set.
    pub user: String,
    /// Prefix every command with `sudo -n`, for a login user that is not root.
    pub sudo: bool,
    /// Absolute path of a directory on the node for files on their way. Made with mode 0700 when it is missing
    /// (its parent must exist); refused when it is a symlink, open to others, or another user's.
    pub staging_dir: String,
}

impl SshTarget {
    /// `root` at port 22 of a host, with `/var/tmp/proxward` as staging directory.
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            port: 22,
            user: "root".to_owned(),
            sudo: false,
            staging_dir: "/var/tmp/proxward".to_owned(),
        }
    }
}

/// How long each step of a push may take. No step is without an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// Name resolution and TCP connect.
    pub connect: Duration,
    /// Version exchange, key exchange and host key check.
    pub handshake: Duration,
    /// Public key authentication.
    pub auth: Duration,
    /// One short command or one SFTP request other than the bytes.
    pub step: Duration,
    /// No acknowledgement for any written byte for this long.
    pub idle: Duration,
    /// Fixed part of the time for work whose length grows with the file: `fsync`, `pct push`, the hash in the guest.
    pub copy_base: Duration,
    /// Bytes per second assumed for that work at the least; adds `bytes / copy_rate` to `copy_base`.
    pub copy_rate: u64,
    /// How often a node that has said nothing is asked whether it is still there. The fourth question that would go
    /// without an answer ends the connection instead; a source that pauses does not.
    pub keepalive: Duration,
    /// How long a guest waits for the end of a stream whose length and pace are the source's own.
    pub receive: Duration,
    /// How long a container whose configuration is locked is asked again.
    pub busy: Duration,
    /// Removing what a failed push left behind, a new connection included.
    pub cleanup: Duration,
    /// Age from which a staging file counts as forgotten and is swept at the first contact with a node. A file that
    /// is being written to never ages.
    pub stale_after: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            handshake: Duration::from_secs(15),
            auth: Duration::from_secs(15),
            step: Duration::from_secs(60),
            idle: Duration::from_secs(60),
            copy_base: Duration::from_secs(120),
            copy_rate: 1024 * 1024,
            keepalive: Duration::from_secs(15),
            receive: Duration::from_secs(24 * 3600),
            busy: Duration::from_secs(30),
            cleanup: Duration::from_secs(30),
            stale_after: Duration::from_secs(6 * 3600),
        }
    }
}

impl Deadlines {
    /// The time for copying, syncing or hashing this many bytes on the node or in the guest.
    pub fn copy(&self, bytes: u64) -> Duration {
        self.copy_base.saturating_add(Duration::from_secs(bytes / self.copy_rate.max(1)))
    }
}
