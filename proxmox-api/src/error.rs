//! What can go wrong with a call, and whether it may have changed anything.

use std::{collections::BTreeMap, error::Error as StdError, fmt};

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Whether a failed call may have changed something at PVE. Decides if a change may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing left this process: refused locally, or no connection could be made.
    NotSent,
    /// The call changed nothing: PVE answered with an error of its own, or the call was a read.
    Refused,
    /// The request may have been carried out: the link or the deadline broke after it could have been written, or
    /// the answer could not be understood. Look at the task list; never send it again blindly.
    Unknown,
}

/// The cause of an [`Error`], coarse enough to branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another operation holds the lock file right now (`can't lock file … - got timeout`); it may be tried later.
    Busy,
    /// The configuration changed since its digest was read.
    Changed,
    /// The client was built with something unusable; says which.
    Config,
    /// The connection broke after it had been made.
    Disconnected,
    /// What is to be made is there already: the guest number, the name. The call changed nothing; nothing that has the
    /// number or name may be taken for what the call would have made.
    Exists,
    /// The guest carries a lock (`VM is locked (backup)`) that ends with the operation holding it.
    Locked,
    /// The answer is not what PVE answers.
    Malformed,
    /// The cluster has no quorum, so nothing can be written.
    NoQuorum,
    /// The node asked could not reach the node concerned (HTTP 595 to 599).
    NodeUnreachable,
    /// Something the call names does not exist. PVE says so with HTTP 500, so this is read from its text.
    NotFound,
    /// Too many calls wait for this cluster already; nothing was sent.
    Overloaded,
    /// A parameter is refused: by PVE, or with the effect [`Effect::NotSent`] by this crate before anything went out.
    /// See [`Error::parameter_errors`].
    Parameter,
    /// The token lacks a privilege (HTTP 403); the text names path and privilege.
    PermissionDenied,
    /// The endpoint answered with a redirect, which is never followed.
    Redirected,
    /// A change in a [rehearsal](crate::Client::rehearsal): nothing was sent.
    Rehearsed,
    /// Any other error of PVE's own.
    Server,
    /// The bytes to be uploaded could not be read, or were not as many as was said.
    Source,
    /// The deadline of the call passed.
    Timeout,
    /// The TLS handshake failed: wrong authority, name, date or fingerprint.
    Tls,
    /// A request or an answer above the size limits.
    TooLarge,
    /// The token was not accepted (HTTP 401).
    Unauthorized,
    /// No endpoint could be connected to.
    Unreachable,
    /// This version of PVE has no such API path (HTTP 501).
    Unsupported,
}

impl ErrorKind {
    /// What PVE's own text for it does not say.
    fn remark(self) -> Option<&'static str> {
        Some(match self {
            Self::Busy => "another operation holds the lock right now; it may be tried again later",
            Self::NodeUnreachable => "the node that was asked could not reach the node concerned",
            Self::NoQuorum => "the cluster has no majority of its nodes, so it can be read but not changed",
            Self::Unsupported => "this version of PVE has no such API path",
            _ => return None,
        })
    }

    /// A stable word for it, for metrics and machine-readable answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Changed => "changed",
            Self::Config => "config",
            Self::Disconnected => "disconnected",
            Self::Exists => "exists",
            Self::Locked => "locked",
            Self::Malformed => "malformed",
            Self::NoQuorum => "no_quorum",
            Self::NodeUnreachable => "node_unreachable",
            Self::NotFound => "not_found",
            Self::Overloaded => "overloaded",
            Self::Parameter => "parameter",
            Self::PermissionDenied => "permission_denied",
            Self::Redirected => "redirected",
            Self::Rehearsed => "rehearsed",
            Self::Server => "server",
            Self::Source => "source",
            Self::Timeout => "timeout",
            Self::Tls => "tls",
            Self::TooLarge => "too_large",
            Self::Unauthorized => "unauthorized",
            Self::Unreachable => "unreachable",
            Self::Unsupported => "unsupported",
        }
    }
}

/// A failed call.
///
/// [`fmt::Display`] prints the call, the status and the message; it is for people and not part of the API. The text
/// never holds the token's secret: it is cut out of everything PVE says.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    effect: Effect,
    status: Option<u16>,
    message: String,
    parameter_errors: BTreeMap<String, String>,
    call: Option<String>,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, effect: Effect, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            effect,
            status: None,
            message: message.into(),
            parameter_errors: BTreeMap::new(),
            call: None,
            source: None,
        }))
    }

    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, Effect::NotSent, message)
    }

    /// An argument that cannot be sent, found before anything was.
    pub(crate) fn argument(name: &str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        let errors = BTreeMap::from([(name.to_owned(), problem)]);
        let message = "nothing was sent: an argument cannot be sent as it is";
        Self::new(ErrorKind::Parameter, Effect::NotSent, message).with_parameter_errors(errors)
    }

    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }

    pub(crate) fn with_parameter_errors(mut self, errors: BTreeMap<String, String>) -> Self {
        self.0.parameter_errors = errors;
        self
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    pub(crate) fn with_call(mut self, call: impl Into<String>) -> Self {
        self.0.call = Some(call.into());
        self
    }

    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the call may have changed something.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// The HTTP status, when an answer came. 595 to 599 are made by the node that was asked.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// PVE's own text where it gave one, otherwise what this crate found.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What PVE said about single parameters, by parameter name. Nested ones are spelt as PVE does,
    /// `oneOf[node-affinity].nodes`.
    #[must_use]
    pub fn parameter_errors(&self) -> &BTreeMap<String, String> {
        &self.0.parameter_errors
    }

    /// The node whose part of the API the call was for, `pve2` of `GET /nodes/pve2/qemu`. Of
    /// [`ErrorKind::NodeUnreachable`] it is the one that did not answer the node that was asked.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        let (_, path) = self.0.call.as_deref()?.split_once(" /nodes/")?;
        path.split('/').next()
    }

    /// Whether PVE said that a guest's configuration is not on the node asked. The guest is gone or has moved:
    /// resolve it anew.
    #[must_use]
    pub fn is_missing_guest(&self) -> bool {
        self.0.kind == ErrorKind::NotFound && self.0.message.starts_with("Configuration file 'nodes/")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(call) = &self.0.call {
            write!(f, "{call}: ")?;
        }
        if let Some(status) = self.0.status {
            write!(f, "{status} ")?;
        }
        f.write_str(&self.0.message)?;
        for (at, (parameter, problem)) in self.0.parameter_errors.iter().enumerate() {
            f.write_str(if at == 0 { " (" } else { "; " })?;
            write!(f, "{parameter}: {problem}")?;
        }
        if !self.0.parameter_errors.is_empty() {
            f.write_str(")")?;
        }
        match self.0.kind.remark() {
            Some(remark) => write!(f, "; {remark}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("effect", &self.0.effect)
            .field("text", &format_args!("{self}"))
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
