//! Faults of the SSH side of a node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What goes wrong with `pct push`, and with bytes streamed into `pct exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushFault {
    /// Only this many bytes arrive, and the command still exits 0, as PVE's own copy loop may do.
    Short(u64),
    /// Nothing is written and the command fails.
    Fail,
}

/// Switches for what one node's SSH does wrong. Clones share the switches; all are off at the start.
#[derive(Debug, Clone)]
pub struct SshFaults {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    switches: Mutex<Switches>,
    hanging: watch::Sender<bool>,
    commands: Mutex<Vec<Vec<String>>>,
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Switches {
    pub(crate) refuse: bool,
    pub(crate) hang_connect: bool,
    pub(crate) push: Option<PushFault>,
    pub(crate) no_sha256: bool,
    pub(crate) space: Option<u64>,
    pub(crate) remove_fails: bool,
    pub(crate) guest_space: Option<u64>,
}

impl Default for SshFaults {
    fn default() -> SshFaults {
        let inner = Inner {
            switches: Mutex::default(),
            hanging: watch::Sender::new(false),
            commands: Mutex::default(),
        };
        SshFaults { inner: Arc::new(inner) }
    }
}

impl SshFaults {
    fn lock(&self) -> MutexGuard<'_, Switches> {
        self.inner.switches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn switches(&self) -> Switches {
        *self.lock()
    }

    /// New connections are closed before a byte is exchanged.
    pub fn refuse_connections(&self, on: bool) {
        self.lock().refuse = on;
    }

    /// New connections are accepted and never answered.
    pub fn hang_connections(&self, on: bool) {
        self.lock().hang_connect = on;
    }

    /// Commands are accepted and do nothing until this is switched off again.
    pub fn hang_exec(&self, on: bool) {
        self.inner.hanging.send_replace(on);
    }

    /// `pct push` goes wrong.
    pub fn push(&self, fault: Option<PushFault>) {
        self.lock().push = fault;
    }

    /// The guests have no program that computes SHA-256: the hash script answers `none`.
    pub fn no_sha256(&self, on: bool) {
        self.lock().no_sha256 = on;
    }

    /// The node's file system has this many bytes left for SFTP, and says so to statvfs; `None` for plenty.
    pub fn space(&self, bytes: Option<u64>) {
        self.lock().space = bytes;
    }

    /// The guests' file systems have this many bytes left for what is streamed into them, and say so when asked; `None` for
    /// plenty.
    pub fn guest_space(&self, bytes: Option<u64>) {
        self.lock().guest_space = bytes;
    }

    /// SFTP refuses to remove files.
    pub fn remove_fails(&self, on: bool) {
        self.lock().remove_fails = on;
    }

    /// Every command received so far, as its words. A command line that did not parse is one word.
    pub fn commands(&self) -> Vec<Vec<String>> {
        self.inner.commands.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note(&self, words: Vec<String>) {
        self.inner.commands.lock().unwrap_or_else(PoisonError::into_inner).push(words);
    }

    pub(crate) async fn wait_while_exec_hangs(&self) {
        let mut hanging = self.inner.hanging.subscribe();
        let _ = hanging.wait_for(|hanging| !*hanging).await;
    }

    /// Takes `bytes` from the space that is left; false when there is not enough.
    pub(crate) fn take_space(&self, bytes: u64) -> bool {
        let mut switches = self.lock();
        match switches.space {
            None => true,
            Some(left) if left >= bytes => {
                switches.space = Some(left - bytes);
                true
            }
            Some(_) => false,
        }
    }
}
