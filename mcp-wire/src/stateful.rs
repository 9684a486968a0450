//! What a server keeps between requests: sessions of the legacy era, the key of sealed states, tasks,
//! subscriptions. Nothing of it unless the embedder gives a transport a [`Stateful`].

use std::{fmt, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    Changes, ClientCapabilities, Filter, Identity, Input, Level, Method, Reply, Request, RpcError,
    builtin::Call,
    events::Events,
    legacy::{Session, SessionLimits, Sessions},
    state_seal::{Binding, StateSeal},
    tasks::{self, Tasks},
};

/// Most subscriptions at once.
const MAX_LISTENERS: usize = 1024;

/// Keeps state for callers of type `C`, each known by the name that `owner` gives: what is kept for one name is
/// out of every other's reach, so the name must stand for one principal.
///
/// ```
/// use std::sync::Arc;
/// use mcp_wire::{Changes, Stateful, events::Events, legacy::SessionLimits, state_seal::StateSeal};
/// use mcp_wire::tasks::MemoryStore;
///
/// let events = Events::new();
/// let stateful = Stateful::new(|caller: &String| caller.clone())
///     .sessions(SessionLimits::default())
///     .seal(StateSeal::new([7; 32])) // 32 random bytes
///     .tasks(Arc::new(MemoryStore::default()))
///     .events(events.clone(), Changes::ALL)
///     .logging();
/// events.tools_changed();
/// # let _ = stateful;
/// ```
pub struct Stateful<C> {
    owner: Arc<dyn Fn(&C) -> String + Send + Sync>,
    again: fn(&C) -> C,
    pub(crate) sessions: Option<Sessions>,
    seal: Option<Arc<StateSeal>>,
    pub(crate) desk: Option<tasks::Desk>,
    pub(crate) events: Option<Events>,
    changes: Changes,
    logging: bool,
    pub(crate) listeners: Arc<Semaphore>,
}

impl<C> Clone for Stateful<C> {
    fn clone(&self) -> Self {
        Self {
            owner: Arc::clone(&self.owner),
            again: self.again,
            sessions: self.sessions.clone(),
            seal: self.seal.clone(),
            desk: self.desk.clone(),
            events: self.events.clone(),
            changes: self.changes,
            logging: self.logging,
            listeners: Arc::clone(&self.listeners),
        }
    }
}

impl<C> fmt::Debug for Stateful<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stateful")
            .field("sessions", &self.sessions.is_some())
            .field("seal", &self.seal)
            .field("tasks", &self.desk.is_some())
            .field("changes", &self.changes)
            .field("logging", &self.logging)
            .finish_non_exhaustive()
    }
}

impl<C: Clone> Stateful<C> {
    /// Keeps nothing yet.
    #[must_use]
    pub fn new(owner: impl Fn(&C) -> String + Send + Sync + 'static) -> Self {
        Self {
            owner: Arc::new(owner),
            again: C::clone,
            sessions: None,
            seal: None,
            desk: None,
            events: None,
            changes: Changes::default(),
            logging: false,
            listeners: Arc::new(Semaphore::new(MAX_LISTENERS)),
        }
    }
}

impl<C> Stateful<C> {
    /// Keeps sessions of legacy clients, within these limits. Their calls may then ask back, and they hear of
    /// changes. Clients that begin none are served without.
    #[must_use]
    pub fn sessions(mut self, limits: SessionLimits) -> Self {
        self.sessions = Some(Sessions::new(limits));
        self
    }

    /// Seals what [`InputRequired::keep`](crate::InputRequired::keep) keeps.
    #[must_use]
    pub fn seal(mut self, seal: StateSeal) -> Self {
        self.seal = Some(Arc::new(seal));
        self
    }

    /// Keeps tasks.
    #[must_use]
    pub fn tasks(mut self, store: Arc<dyn tasks::Store>) -> Self {
        self.desk = Some(tasks::Desk::new(store, self.events.clone()));
        self
    }

    /// Tells clients about `changes`, which come through `events`; also about their tasks.
    #[must_use]
    pub fn events(mut self, events: Events, changes: Changes) -> Self {
        if let Some(desk) = &mut self.desk {
            desk.tell(events.clone());
        }
        self.events = Some(events);
        self.changes = changes;
        self
    }

    /// Sends log messages to clients that want them.
    #[must_use]
    pub const fn logging(mut self) -> Self {
        self.logging = true;
        self
    }

    /// The identity that declares what is kept.
    pub(crate) fn declared(&self, mut identity: Identity) -> Identity {
        identity.offers.asks = true;
        identity.offers.changes = self.changes;
        identity.offers.logging = self.logging;
        identity.offers.tasks = self.desk.is_some();
        identity.offers.sessions = self.sessions.is_some();
        identity
    }

    /// The filter without the tasks that are not `owner`'s.
    pub(crate) fn own_tasks(&self, owner: &str, mut filter: Filter) -> Filter {
        filter.tasks.retain(|id| self.desk.as_ref().is_some_and(|desk| desk.owns(owner, id)));
        filter
    }

    pub(crate) fn owner(&self, caller: &C) -> String {
        (self.owner)(caller)
    }
}

impl<C> Stateful<C> {
    /// Answers the methods that are about what is kept; `None` for all others.
    pub(crate) fn answer(
        &self,
        caller: &C,
        call: &mut Call,
        session: Option<&Session>,
    ) -> Option<Result<Reply, RpcError>> {
        let no_session = || {
            RpcError::invalid_request("this needs a session; send `initialize` and then its `Mcp-Session-Id`")
        };
        Some(match &mut call.method {
            Method::SetLevel(level) => {
                let level = *level;
                session.map(|session| session.set_level(level)).ok_or_else(no_session).map(|()| Reply::Done)
            }
            Method::ResourcesUnsubscribe { uri } => {
                session.map(|session| session.unwatch(uri)).ok_or_else(no_session).map(|()| Reply::Done)
            }
            Method::ResourcesSubscribe { .. } if session.is_none() => Err(no_session()),
            Method::TasksGet { .. } | Method::TasksUpdate { .. } | Method::TasksCancel { .. } => {
                let client = call.meta.client_capabilities().cloned().unwrap_or_default();
                let desk = self.desk.as_ref()?;
                desk.answer(&self.owner(caller), &ClientCapabilities::new(client), call.method.clone())
            }
            _ => return None,
        })
    }
}

/// Whether a transport keeps state for its callers: `()` keeps none, [`Stateful`] does.
pub trait Backing<C>: Clone + Send + Sync + 'static {
    /// What is kept.
    fn stateful(&self) -> Option<&Stateful<C>>;
}

impl<C> Backing<C> for () {
    fn stateful(&self) -> Option<&Stateful<C>> {
        None
    }
}

impl<C: 'static> Backing<C> for Stateful<C> {
    fn stateful(&self) -> Option<&Self> {
        Some(self)
    }
}

/// What one call may use beyond answering.
pub(crate) struct Means<C> {
    pub(crate) input: Input,
    pub(crate) client: ClientCapabilities,
    pub(crate) tasks: Option<Tasks>,
    pub(crate) log_from: Option<Level>,
    session: Option<Arc<Session>>,
    seal: Option<Arc<StateSeal>>,
    owner: String,
    again: Option<fn(&C) -> C>,
}

impl<C> Means<C> {
    /// What `call` of `caller` may use. Opens the state it brings back.
    ///
    /// # Errors
    /// -32602 for a state that is not this call's.
    pub(crate) fn of(
        identity: &Identity,
        stateful: Option<&Stateful<C>>,
        caller: &C,
        call: &mut Call,
        session: Option<Arc<Session>>,
    ) -> Result<Self, RpcError> {
        let mut means = Self {
            input: Input::default(),
            client: ClientCapabilities::default(),
            tasks: None,
            log_from: None,
            session,
            seal: None,
            owner: String::new(),
            again: None,
        };
        if !identity.offers.asks {
            return Ok(means);
        }
        let modern = call.era.is_modern();
        means.client = match &means.session {
            Some(session) if !modern => session.client.clone(),
            _ => ClientCapabilities::new(call.meta.client_capabilities().cloned().unwrap_or_default()),
        };
        means.input.responses = std::mem::take(&mut call.retry.responses);
        if let Some(stateful) = stateful {
            means.owner = stateful.owner(caller);
            means.again = Some(stateful.again);
            means.seal.clone_from(&stateful.seal);
            if stateful.logging {
                means.log_from = if modern {
                    call.meta.log_level()
                } else {
                    means.session.as_ref().map(|session| session.level())
                };
            }
            if modern && means.client.tasks() {
                means.tasks = stateful.desk.as_ref().map(|desk| desk.for_call(&means.owner, &means.client));
            }
        }
        if let Some(sealed) = call.retry.state.take() {
            let Some(seal) = &means.seal else {
                return Err(RpcError::invalid_params("`params.requestState` was not given by this server"));
            };
            let binding = Binding::new(&means.owner, call.method.as_str(), &call.method.subject());
            let opened = seal.open(&sealed, &binding, since_1970());
            means.input.state = Some(opened.map_err(|error| RpcError::invalid_params(error.to_string()))?);
        }
        Ok(means)
    }

    /// Whether the call could say anything beside progress.
    pub(crate) const fn talks(&self) -> bool {
        self.log_from.is_some() || self.session.is_some()
    }

    /// What a state kept by this call is bound to, where states can be kept.
    pub(crate) fn binding(&self, method: &Method) -> Option<Binding> {
        (self.seal.is_some() && method.may_ask())
            .then(|| Binding::new(&self.owner, method.as_str(), &method.subject()))
    }

    pub(crate) fn seal(
        &self,
        state: Option<&Value>,
        binding: Option<&Binding>,
    ) -> Result<Option<String>, RpcError> {
        match (state, &self.seal, binding) {
            (Some(state), Some(seal), Some(binding)) => {
                let sealed = seal.seal(state, binding, since_1970());
                sealed.map(Some).map_err(|error| RpcError::internal(error.to_string()))
            }
            _ => Ok(None),
        }
    }

    /// The same call once more, and the session to ask in; `None` where there is nobody to ask.
    pub(crate) fn again(&self, request: &Request<C>) -> Option<(Request<C>, Arc<Session>)> {
        let (session, again) = (self.session.clone()?, self.again?);
        let next = Request {
            caller: again(&request.caller),
            era: request.era,
            id: request.id.clone(),
            method: request.method.clone(),
            meta: request.meta.clone(),
            cancel: request.cancel.clone(),
            progress: request.progress.clone(),
            input: Input::default(),
            client: request.client.clone(),
            line: request.line.clone(),
            tasks: None,
        };
        Some((next, session))
    }
}

/// The wall clock, which sealed states are compared with: they outlive the process.
fn since_1970() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
