use super::GuestRef;
use crate::{
    client::Client,
    error::Error,
    ids::Upid,
    wire::{Form, Path},
};

impl Client {
    /// Starts the guest (`POST …/status/start`; needs `VM.PowerMgmt`). A running virtual machine gives a task that
    /// fails, a running container an error at once. A guest under HA gives a `hastart` task, which ends OK when
    /// the request is queued: look at the guest then, not at the task.
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the guest may be starting.
    pub async fn start(&self, guest: &GuestRef) -> Result<Upid, Error> {
        self.post(status(guest, "start"), Form::new()).await?.upid()
    }

    /// Stops the guest at once, like pulling the plug (`POST …/status/stop`; needs `VM.PowerMgmt`).
    ///
    /// # Errors
    /// See [`Error`]; with effect [`Unknown`](crate::Effect::Unknown) the guest may be stopping.
    pub async fn stop(&self, guest: &GuestRef) -> Result<Upid, Error> {
        self.post(status(guest, "stop"), Form::new()).await?.upid()
    }
}

fn status(guest: &GuestRef, action: &'static str) -> Path {
    guest.path().word("status").word(action)
}
