//! Finding out what a call would send, without sending it.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use http::Method;
use percent_encoding::percent_decode_str;

use super::{Client, call::Call};
use crate::error::{Effect, Error, ErrorKind};

/// Parameters whose value is never told.
const SECRET: [&str; 2] = ["password", "cipassword"];

/// A change as it would go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RehearsedRequest {
    /// `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// The path below `/api2/json`, as it would be sent.
    pub path: String,
    /// The parameters by name, decoded, in the order of sending; a name more than once is an array. A password is
    /// shown as `[redacted]`.
    pub parameters: Vec<(String, String)>,
}

/// Where a rehearsed client notes what it would have sent.
#[derive(Debug, Default)]
pub(super) struct Notes(Mutex<Vec<RehearsedRequest>>);

impl Notes {
    /// Notes the call and refuses it.
    pub(super) fn note(&self, method: &Method, path: &str, form: &str) -> Error {
        let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let parameters = form.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = decode(key);
            let value = if SECRET.contains(&key.as_str()) { "[redacted]".to_owned() } else { decode(value) };
            (key, value)
        });
        let request = RehearsedRequest {
            method: method.to_string(),
            path: path.to_owned(),
            parameters: parameters.collect(),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        Error::new(ErrorKind::Rehearsed, Effect::NotSent, "this is a rehearsal, so nothing was sent")
    }
}

/// A client that reads like its original and sends no change. Every change fails with
/// [`Rehearsed`](ErrorKind::Rehearsed) after everything that would have refused it here has looked at it.
pub struct Rehearsal {
    client: Client,
    notes: Arc<Notes>,
}

impl Rehearsal {
    /// The client to call.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// What it would have sent so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<RehearsedRequest> {
        self.notes.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rehearsal").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Client {
    /// A client for finding out what calls would send: for previews and dry runs that cannot drift from the real
    /// thing, because they run the same code.
    ///
    /// ```
    /// # use proxmox_api::{Client, Error, GuestRef};
    /// # async fn show(client: &Client, guest: &GuestRef) -> Result<(), Error> {
    /// let rehearsal = client.rehearsal();
    /// let refused = rehearsal.client().start(guest).await.unwrap_err();
    /// assert_eq!(refused.kind(), proxmox_api::ErrorKind::Rehearsed);
    /// for request in rehearsal.requests() {
    ///     println!("{} {} {:?}", request.method, request.path, request.parameters);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn rehearsal(&self) -> Rehearsal {
        let notes = Arc::new(Notes::default());
        let client = self.sibling(self.0.endpoints.clone(), Some(notes.clone()));
        Rehearsal { client, notes }
    }
}

impl Call {
    /// Notes this call in a rehearsal, if it is a change.
    pub(super) fn rehearse(&self, notes: &Notes) -> Option<Error> {
        let (method, path, form) = self.parts()?;
        Some(notes.note(method, path, &form))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;
    use crate::{
        ApiToken, Endpoint, Fingerprint, GuestKind, GuestRef, NewLxc, Trust,
        wire::{Form, Path},
    };

    fn client() -> Client {
        // Nothing listens there: whatever were sent would fail otherwise.
        Client::builder()
            .endpoint(Endpoint::parse("https://127.0.0.1:1").unwrap())
            .token(ApiToken::new("root@pam!full", SecretString::from("11111111-2222")).unwrap())
            .trust(Trust::Leaf(Fingerprint::of(b"")))
            .build()
            .unwrap()
    }

    #[tokio::test]
    async fn a_rehearsal_tells_every_change_and_sends_none() {
        let rehearsal = client().rehearsal();
        let client = rehearsal.client();
        let guest =
            GuestRef { node: "pve1".parse().unwrap(), kind: GuestKind::Lxc, vmid: "204".parse().unwrap() };
        let error = client.start(&guest).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Rehearsed, Effect::NotSent));
        let form = Form::new().put("tags", "a;b").put("note", "x=y&z +ä");
        client.put(Path::of("cluster").word("options"), form).await.unwrap_err();
        client.delete(Path::of("pools"), Form::new().put("poolid", "a/b")).await.unwrap_err();
        let said: Vec<_> = rehearsal
            .requests()
            .into_iter()
            .map(|request| format!("{} {} {:?}", request.method, request.path, request.parameters))
            .collect();
        assert_eq!(
            said,
            [
                "POST /nodes/pve1/lxc/204/status/start []",
                r#"PUT /cluster/options [("tags", "a;b"), ("note", "x=y&z +ä")]"#,
                r#"DELETE /pools [("poolid", "a/b")]"#,
            ]
        );
        let read = client.version().await.unwrap_err();
        assert_eq!(read.kind(), ErrorKind::Unreachable, "reads go out");
        assert_eq!(rehearsal.requests().len(), 3);
    }

    #[tokio::test]
    async fn what_is_refused_here_is_refused_in_a_rehearsal_and_secrets_stay_secret() {
        let rehearsal = client().rehearsal();
        let client = rehearsal.client();
        let node = "pve1".parse().unwrap();
        let template = "local:vztmpl/debian-12.tar.zst".parse().unwrap();
        let mut new = NewLxc::new("300".parse().unwrap(), template, "local-lvm".parse().unwrap(), 8);
        new.password = Some(SecretString::from("1234"));
        let refused = client.create_lxc(&node, &new).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Parameter, "{refused}");
        assert_eq!(rehearsal.requests(), []);
        new.password = Some(SecretString::from("hunter2hunter2"));
        client.create_lxc(&node, &new).await.unwrap_err();
        let said = format!("{:?}", rehearsal.requests());
        assert!(said.contains("[redacted]") && !said.contains("hunter2"), "{said}");
    }
}
