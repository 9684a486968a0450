//! What a server tells its clients unasked: that a list, a resource or a task has changed.

use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};

use crate::{
    Filter, Identity, RequestId,
    reply::{self, notification},
    tasks::TaskRecord,
};

/// Events that a slow listener may be behind.
const BACKLOG: usize = 256;

/// The key of a notification's `_meta` that says which subscription it is for.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// Where the embedder says what changed. Clones tell the same listeners.
#[derive(Clone, Debug)]
pub struct Events(broadcast::Sender<Event>);

impl Default for Events {
    fn default() -> Self {
        Self(broadcast::channel(BACKLOG).0)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Tools,
    Prompts,
    Resources,
    Updated(String),
    Task(Box<TaskRecord>),
    End,
}

impl Events {
    /// A place without listeners.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `tools/list` answers something else now.
    pub fn tools_changed(&self) {
        self.say(Event::Tools);
    }

    /// `prompts/list` answers something else now.
    pub fn prompts_changed(&self) {
        self.say(Event::Prompts);
    }

    /// `resources/list` answers something else now.
    pub fn resources_changed(&self) {
        self.say(Event::Resources);
    }

    /// The resource at `uri` has changed.
    pub fn resource_updated(&self, uri: impl Into<String>) {
        self.say(Event::Updated(uri.into()));
    }

    /// The server stops: every subscription ends in good order.
    pub fn end(&self) {
        self.say(Event::End);
    }

    pub(crate) fn task(&self, task: TaskRecord) {
        self.say(Event::Task(Box::new(task)));
    }

    fn say(&self, event: Event) {
        // Nobody listening is no error.
        let _ = self.0.send(event);
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }
}

/// One listener: turns events into notifications for it.
pub(crate) struct Listener {
    /// `None` in the legacy era, whose notifications name no subscription.
    pub(crate) subscription: Option<RequestId>,
    pub(crate) identity: std::sync::Arc<Identity>,
}

impl Listener {
    fn params(&self, mut params: Value) -> Value {
        if let Some(id) = &self.subscription {
            params["_meta"] = json!({SUBSCRIPTION_ID: id});
        }
        params
    }

    /// The first message of a modern subscription.
    pub(crate) fn acknowledged(&self, filter: &Filter) -> Vec<u8> {
        let params = self.params(json!({"notifications": filter.to_value()}));
        notification("notifications/subscriptions/acknowledged", &params)
    }

    /// The last message of a modern subscription that the server ends.
    pub(crate) fn ended(&self) -> Vec<u8> {
        let Some(id) = &self.subscription else { return Vec::new() };
        let result = self.params(json!({"resultType": "complete"}));
        reply::encode_value(id, &Ok(result))
    }

    /// The notification for one event, if the filter has it.
    fn told(&self, event: &Event, filter: &Filter) -> Option<Vec<u8>> {
        let (method, params) = match event {
            Event::Tools if filter.changes.tools => ("notifications/tools/list_changed", json!({})),
            Event::Prompts if filter.changes.prompts => ("notifications/prompts/list_changed", json!({})),
            Event::Resources if filter.changes.resources => {
                ("notifications/resources/list_changed", json!({}))
            }
            Event::Updated(uri) if filter.resources.contains(uri) => {
                ("notifications/resources/updated", json!({"uri": uri}))
            }
            Event::Task(task) if filter.tasks.contains(&task.id) => {
                ("notifications/tasks", task.view(&self.identity))
            }
            _ => return None,
        };
        Some(notification(method, &self.params(params)))
    }

    /// Hands every event the filter has to `out`, until the other side is gone or no more can come. The filter is
    /// read anew for each event. Says whether it ended because no more events can come.
    pub(crate) async fn pump(
        &self,
        mut events: broadcast::Receiver<Event>,
        filter: impl Fn() -> Filter + Send,
        out: &mpsc::Sender<Vec<u8>>,
    ) -> bool {
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                () = out.closed() => return false,
            };
            let frames = match event {
                Ok(Event::End) | Err(broadcast::error::RecvError::Closed) => return true,
                Ok(event) => self.told(&event, &filter()).into_iter().collect(),
                // Events were lost: say that everything watched may have changed. Tasks are polled anyway.
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    let filter = filter();
                    let lost = [Event::Tools, Event::Prompts, Event::Resources].into_iter();
                    lost.chain(filter.resources.iter().cloned().map(Event::Updated))
                        .filter_map(|event| self.told(&event, &filter))
                        .collect::<Vec<_>>()
                }
            };
            for frame in frames {
                if out.send(frame).await.is_err() {
                    return false;
                }
            }
        }
    }
}
