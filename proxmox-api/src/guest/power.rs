use super::{GuestKind, GuestRef};
use crate::{
    client::Client,
    error::Error,
    ids::{StorageId, Upid},
    wire::{Form, Path},
};

/// How to stop a guest at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StopOptions {
    /// Gives up a shutdown that is under way, behind which the stop would wait (PVE 8 and later). Refused for a guest
    /// under HA.
    pub overrule_shutdown: bool,
}

/// How to shut a guest down.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShutdownOptions {
    /// How many seconds it has; PVE's default is what the guest's `startup` says, or 60.
    pub timeout: Option<u32>,
    /// Stops it at once when the time is over. Otherwise the task fails and the guest goes on.
    pub force_stop: bool,
}

/// How to suspend a virtual machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Suspend {
    /// Pauses it; its memory stays.
    #[default]
    ToRam,
    /// Writes its memory to a volume and stops it; a start resumes it.
    ToDisk {
        /// The storage of the volume; PVE chooses when there is none.
        statestorage: Option<StorageId>,
    },
}

impl Client {
    /// Starts the guest (`POST …/status/start`; needs `VM.PowerMgmt`; PVE 7 to 9). A running virtual machine gives a
    /// task that fails, a running container an error at once. A guest under HA gives a `hastart` task, which ends OK
    /// when the request is queued: look at the guest then, not at the task.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the guest may be starting.
    pub async fn start(&self, guest: &GuestRef) -> Result<Upid, Error> {
        self.post(status(guest, "start"), Form::new()).await?.upid()
    }

    /// Stops the guest at once, like pulling the plug (`POST …/status/stop`; needs `VM.PowerMgmt`; PVE 7 to 9). A
    /// stopped virtual machine gives a task that does nothing, a stopped container an error.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the guest may be stopping.
    pub async fn stop(&self, guest: &GuestRef) -> Result<Upid, Error> {
        self.stop_with(guest, StopOptions::default()).await
    }

    /// As [`Client::stop`], with options.
    ///
    /// # Errors
    /// As for [`Client::stop`].
    pub async fn stop_with(&self, guest: &GuestRef, options: StopOptions) -> Result<Upid, Error> {
        let form = Form::new().put_if("overrule-shutdown", options.overrule_shutdown);
        self.post(status(guest, "stop"), form).await?.upid()
    }

    /// Asks the guest to shut down (`POST …/status/shutdown`; needs `VM.PowerMgmt`; PVE 7 to 9). The task ends when
    /// the guest is down, and fails when it is not in time.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the guest may be shutting down.
    pub async fn shutdown(&self, guest: &GuestRef, options: ShutdownOptions) -> Result<Upid, Error> {
        let form = Form::new().put_some("timeout", options.timeout).put_if("forceStop", options.force_stop);
        self.post(status(guest, "shutdown"), form).await?.upid()
    }

    /// Shuts the guest down and starts it again, whereby changes that wait take effect (`POST …/status/reboot`;
    /// needs `VM.PowerMgmt`; PVE 7 to 9). The task ends when it is down; PVE then starts it by itself. `timeout`:
    /// seconds for the shutdown.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the guest may be rebooting.
    pub async fn reboot(&self, guest: &GuestRef, timeout: Option<u32>) -> Result<Upid, Error> {
        self.post(status(guest, "reboot"), Form::new().put_some("timeout", timeout)).await?.upid()
    }

    /// Resets a virtual machine, like its reset button (`POST …/status/reset`; needs `VM.PowerMgmt`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may have been reset. A container is refused
    /// before anything is sent.
    pub async fn reset(&self, guest: &GuestRef) -> Result<Upid, Error> {
        guest.must_be(GuestKind::Qemu, "a container cannot be reset; stop and start it")?;
        self.post(status(guest, "reset"), Form::new()).await?.upid()
    }

    /// Suspends a virtual machine (`POST …/status/suspend`; needs `VM.PowerMgmt`, to disk also `VM.Config.Disk` and
    /// `Datastore.AllocateSpace`; PVE 7 to 9).
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may be suspended. A container is refused
    /// before anything is sent: what PVE has for it is a broken experiment.
    pub async fn suspend(&self, guest: &GuestRef, how: &Suspend) -> Result<Upid, Error> {
        guest.must_be(GuestKind::Qemu, "suspending works for virtual machines only")?;
        let form = match how {
            Suspend::ToRam => Form::new(),
            Suspend::ToDisk { statestorage } => {
                Form::new().put_flag("todisk", true).put_some("statestorage", statestorage.as_ref())
            }
        };
        self.post(status(guest, "suspend"), form).await?.upid()
    }

    /// Resumes a virtual machine that was paused (`POST …/status/resume`; needs `VM.PowerMgmt`; PVE 7 to 9). One
    /// suspended to disk is resumed by [`Client::start`].
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) it may run. A container is refused before
    /// anything is sent.
    pub async fn resume(&self, guest: &GuestRef) -> Result<Upid, Error> {
        guest.must_be(GuestKind::Qemu, "suspending works for virtual machines only")?;
        self.post(status(guest, "resume"), Form::new()).await?.upid()
    }
}

fn status(guest: &GuestRef, action: &'static str) -> Path {
    guest.path().word("status").word(action)
}
