//! The programs that guest agents have started.

use std::collections::BTreeMap;

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: u32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// The programs of all guests, by VMID and PID.
#[derive(Debug, Default)]
pub(crate) struct Programs {
    all: BTreeMap<(u32, u64), Option<Ended>>,
    started: u64,
}

impl Programs {
    /// A program that has just been started.
    pub(crate) fn start(&mut self, vmid: u32) -> u64 {
        self.started += 1;
        let pid = 1000 + self.started;
        self.all.insert((vmid, pid), None);
        pid
    }

    pub(crate) fn end(&mut self, vmid: u32, pid: u64, ended: Ended) {
        if let Some(program) = self.all.get_mut(&(vmid, pid)) {
            *program = Some(ended);
        }
    }

    /// What there is to say of a program: `None` for one that the agent does not know, `Some(None)` for one that runs. The
    /// end is told once.
    pub(crate) fn status(&mut self, vmid: u32, pid: u64) -> Option<Option<Ended>> {
        let status = self.all.get(&(vmid, pid))?.clone();
        if status.is_some() {
            self.all.remove(&(vmid, pid));
        }
        Some(status)
    }

    /// Forgets the programs of a guest that stopped.
    pub(crate) fn forget(&mut self, vmid: u32) {
        self.all.retain(|(owner, _), _| *owner != vmid);
    }
}
