use super::GuestRef;
use crate::{
    client::Client,
    error::Error,
    ids::Tags,
    wire::{Field, Form, JsonMap, Record},
};

/// Whether a guest runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunState {
    /// It runs. A paused virtual machine runs too; see [`GuestStatus::qmp_status`].
    Running,
    /// It does not run.
    Stopped,
    /// PVE said something else, or nothing.
    Unknown(String),
}

/// The state of a guest right now (`GET …/status/current`). A number that is missing or odd is `None`, never 0.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestStatus {
    /// Whether it runs.
    pub state: RunState,
    /// Its name, or a container's host name.
    pub name: Option<String>,
    /// The state as QEMU tells it, `paused` for one; virtual machines only.
    pub qmp_status: Option<String>,
    /// The lock on its configuration, such as `backup`.
    pub lock: Option<String>,
    /// Whether HA manages it: start, stop and migrate then only queue a request.
    pub ha_managed: Field<bool>,
    /// Whether it is a template.
    pub template: Field<bool>,
    /// Its tags.
    pub tags: Field<Tags>,
    /// The process id on the node.
    pub pid: Option<u64>,
    /// Seconds since the start.
    pub uptime: Option<u64>,
    /// Share of its processors in use, 0 to 1.
    pub cpu: Option<f64>,
    /// How many processors it has; containers may have fractions.
    pub cpus: Option<f64>,
    /// Memory in use, bytes.
    pub mem: Option<u64>,
    /// Memory it may use, bytes.
    pub maxmem: Option<u64>,
    /// Root disk in use, bytes; containers only, virtual machines say 0.
    pub disk: Option<u64>,
    /// Size of the root disk, bytes.
    pub maxdisk: Option<u64>,
    /// The whole answer as PVE sent it.
    pub json: JsonMap,
}

impl GuestStatus {
    pub(crate) fn read(status: &Record<'_>) -> Self {
        let state = match status.filled("status").as_deref() {
            Some("running") => RunState::Running,
            Some("stopped") => RunState::Stopped,
            other => RunState::Unknown(other.unwrap_or_default().to_owned()),
        };
        Self {
            state,
            name: status.filled("name"),
            qmp_status: status.filled("qmpstatus"),
            lock: status.filled("lock"),
            ha_managed: status.record("ha").map_or(Field::Absent, |ha| ha.flag("managed")),
            template: status.flag("template"),
            tags: status.tags("tags"),
            pid: status.integer("pid"),
            uptime: status.integer("uptime"),
            cpu: status.float("cpu"),
            cpus: status.float("cpus"),
            mem: status.integer("mem"),
            maxmem: status.integer("maxmem"),
            disk: status.integer("disk"),
            maxdisk: status.integer("maxdisk"),
            json: status.json(),
        }
    }
}

impl Client {
    /// Reads the guest's current state (`GET …/status/current`; needs `VM.Audit`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn guest_status(&self, guest: &GuestRef) -> Result<GuestStatus, Error> {
        let path = guest.path().word("status").word("current");
        self.read(path, Form::new()).await?.record(|status| Ok(GuestStatus::read(status)))
    }
}
