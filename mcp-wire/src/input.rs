//! Questions back to the client: what a call may need before it can be answered, and what came back.
//!
//! One way of asking serves both eras. In revision 2026-07-28 the reply carries the questions and the client
//! repeats its request with the answers; in the older revisions the crate sends them as requests on the reply's
//! stream and calls the service again with the answers. The service cannot tell the two apart.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// The capability key of the tasks extension.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Most questions in one reply.
pub const MAX_QUESTIONS: usize = 16;

/// One question to the client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum InputRequest {
    /// A form for the person (`elicitation/create`). Never ask for secrets this way.
    Form {
        /// What the person reads.
        message: String,
        /// A flat object schema of strings, numbers, booleans and enums.
        schema: Value,
    },
    /// A page for the person to open (`elicitation/create` in URL mode). Modern era only. Consent to open it is
    /// all that comes back; the page itself must find out who opened it.
    Url {
        /// What the person reads.
        message: String,
        /// Where: HTTPS, without credentials and without personal data.
        url: String,
    },
    /// A completion by the client's model (`sampling/createMessage`).
    Sampling {
        /// The request's parameters: `messages`, `maxTokens` and so on.
        params: Map<String, Value>,
    },
    /// The client's roots (`roots/list`).
    Roots,
}

impl InputRequest {
    /// A form.
    pub fn form(message: impl Into<String>, schema: Value) -> Self {
        Self::Form { message: message.into(), schema }
    }

    /// A question to the client's model, answered in at most `max_tokens`.
    pub fn sampling(prompt: impl Into<String>, max_tokens: u32) -> Self {
        let message = json!({"role": "user", "content": {"type": "text", "text": prompt.into()}});
        let params = Map::from_iter([
            ("messages".to_owned(), json!([message])),
            ("maxTokens".to_owned(), json!(max_tokens)),
        ]);
        Self::Sampling { params }
    }

    /// The method that carries it.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Form { .. } | Self::Url { .. } => "elicitation/create",
            Self::Sampling { .. } => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// The method's parameters.
    #[must_use]
    pub fn params(&self) -> Value {
        match self {
            // Without `mode`: absent means "form" where modes exist, and older clients know none.
            Self::Form { message, schema } => json!({"message": message, "requestedSchema": schema}),
            Self::Url { message, url } => json!({"mode": "url", "message": message, "url": url}),
            Self::Sampling { params } => json!(params),
            Self::Roots => json!({}),
        }
    }

    /// The capability without which it may not be sent, as an object of capabilities.
    #[must_use]
    pub fn needs(&self) -> Value {
        match self {
            Self::Form { .. } => json!({"elicitation": {"form": {}}}),
            Self::Url { .. } => json!({"elicitation": {"url": {}}}),
            Self::Sampling { .. } => json!({"sampling": {}}),
            Self::Roots => json!({"roots": {}}),
        }
    }

    fn allowed_by(&self, client: &ClientCapabilities) -> bool {
        match self {
            Self::Form { .. } => client.forms(),
            Self::Url { .. } => client.urls(),
            Self::Sampling { .. } => client.sampling(),
            Self::Roots => client.roots(),
        }
    }

    pub(crate) fn to_value(&self) -> Value {
        json!({"method": self.method(), "params": self.params()})
    }
}

/// What a client declared it can do: with the request in the modern era, at `initialize` before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientCapabilities(Map<String, Value>);

impl ClientCapabilities {
    /// From the object as it was declared.
    #[must_use]
    pub fn new(declared: Map<String, Value>) -> Self {
        Self(declared)
    }

    fn object(&self, key: &str) -> Option<&Map<String, Value>> {
        self.0.get(key)?.as_object()
    }

    /// Whether forms may be sent. An empty `elicitation` object means forms.
    #[must_use]
    pub fn forms(&self) -> bool {
        self.object("elicitation")
            .is_some_and(|modes| modes.contains_key("form") || !modes.contains_key("url"))
    }

    /// Whether pages to open may be sent.
    #[must_use]
    pub fn urls(&self) -> bool {
        self.object("elicitation").is_some_and(|modes| modes.get("url").is_some_and(Value::is_object))
    }

    /// Whether the client's model may be asked.
    #[must_use]
    pub fn sampling(&self) -> bool {
        self.object("sampling").is_some()
    }

    /// Whether the client's roots may be asked for.
    #[must_use]
    pub fn roots(&self) -> bool {
        self.object("roots").is_some()
    }

    /// Whether the client understands the tasks extension.
    #[must_use]
    pub fn tasks(&self) -> bool {
        self.object("extensions")
            .is_some_and(|known| known.get(TASKS_EXTENSION).is_some_and(Value::is_object))
    }

    /// The capabilities that `requests` need and the client lacks, as one object; `None` when it lacks none.
    #[must_use]
    pub fn lacks<'a>(&self, requests: impl IntoIterator<Item = &'a InputRequest>) -> Option<Value> {
        let mut missing: Map<String, Value> = Map::new();
        for request in requests.into_iter().filter(|request| !request.allowed_by(self)) {
            let Value::Object(needs) = request.needs() else { continue };
            for (key, value) in needs {
                let Value::Object(value) = value else { continue };
                match missing.entry(key).or_insert_with(|| json!({})) {
                    Value::Object(known) => known.extend(value),
                    other => *other = Value::Object(value),
                }
            }
        }
        (!missing.is_empty()).then_some(Value::Object(missing))
    }
}

/// A reply that asks before it answers. Only `tools/call`, `prompts/get` and `resources/read` may give it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputRequired {
    pub(crate) requests: BTreeMap<String, InputRequest>,
    pub(crate) state: Option<Value>,
    pub(crate) sealed: Option<String>,
}

impl InputRequired {
    /// A reply that asks nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a question; its answer comes back under `key`.
    #[must_use]
    pub fn ask(mut self, key: impl Into<String>, request: InputRequest) -> Self {
        self.requests.insert(key.into(), request);
        self
    }

    /// The same with something to remember until the answers come. It travels through the client sealed: it
    /// cannot be changed there, nor used for another call or by another caller, but it can be read. Needs a
    /// [`StateSeal`](crate::state_seal::StateSeal).
    ///
    /// Until it expires it may come back more than once: what must happen once needs a record of its own.
    #[must_use]
    pub fn keep(mut self, state: Value) -> Self {
        self.state = Some(state);
        self
    }

    /// The questions by key.
    #[must_use]
    pub fn requests(&self) -> &BTreeMap<String, InputRequest> {
        &self.requests
    }
}

/// What came with a request in answer to an [`InputRequired`]: nothing, the first time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    pub(crate) responses: Map<String, Value>,
    pub(crate) state: Option<Value>,
}

impl Input {
    /// The answer under `key`, as the client sent it: an object. Keys nobody asked for are here too; ignore them.
    #[must_use]
    pub fn response(&self, key: &str) -> Option<&Map<String, Value>> {
        self.responses.get(key)?.as_object()
    }

    /// What a person did with a form or a page: `accept`, `decline` or `cancel`.
    #[must_use]
    pub fn action(&self, key: &str) -> Option<&str> {
        self.response(key)?.get("action")?.as_str()
    }

    /// The fields of a form that was accepted. They are not checked against the form's schema.
    #[must_use]
    pub fn accepted(&self, key: &str) -> Option<&Map<String, Value>> {
        if self.action(key) != Some("accept") {
            return None;
        }
        self.response(key)?.get("content")?.as_object()
    }

    /// The text of a model's answer.
    #[must_use]
    pub fn sampled(&self, key: &str) -> Option<&str> {
        match self.response(key)?.get("content")? {
            Value::Array(blocks) => blocks.iter().find_map(|block| block.get("text")?.as_str()),
            block => block.get("text")?.as_str(),
        }
    }

    /// What was kept with [`InputRequired::keep`] in the round before.
    #[must_use]
    pub fn state(&self) -> Option<&Value> {
        self.state.as_ref()
    }

    /// Whether this is the first round.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.responses.is_empty() && self.state.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(declared: Value) -> ClientCapabilities {
        ClientCapabilities::new(declared.as_object().cloned().unwrap_or_default())
    }

    #[test]
    fn only_declared_capabilities_count() {
        for (declared, forms, urls) in [
            (json!({}), false, false),
            (json!({"elicitation": {}}), true, false),
            (json!({"elicitation": {"url": {}}}), false, true),
            (json!({"elicitation": {"form": {}, "url": {}}}), true, true),
            (json!({"elicitation": true}), false, false),
        ] {
            let client = client(declared.clone());
            assert_eq!((client.forms(), client.urls()), (forms, urls), "{declared}");
        }
        assert!(client(json!({"extensions": {TASKS_EXTENSION: {}}})).tasks());
        assert!(!client(json!({"tasks": {}})).tasks());
    }

    #[test]
    fn what_is_lacking_is_named_as_capabilities() {
        let requests = [
            InputRequest::form("a", json!({})),
            InputRequest::Url { message: "b".into(), url: "https://b.test".into() },
            InputRequest::sampling("c", 1),
            InputRequest::Roots,
        ];
        let lacks = client(json!({"roots": {}})).lacks(&requests);
        assert_eq!(lacks, Some(json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}})));
        let all = json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}});
        assert_eq!(client(all).lacks(&requests), None);
    }

    #[test]
    fn a_declined_form_has_no_fields() {
        let responses = json!({
            "yes": {"action": "accept", "content": {"name": "a"}},
            "no": {"action": "decline", "content": {"name": "a"}},
            "model": {"role": "assistant", "content": {"type": "text", "text": "t"}},
        });
        let input = Input { responses: responses.as_object().cloned().unwrap_or_default(), state: None };
        assert_eq!(input.accepted("yes").and_then(|fields| fields["name"].as_str()), Some("a"));
        assert_eq!((input.accepted("no"), input.action("no")), (None, Some("decline")));
        assert_eq!(input.sampled("model"), Some("t"));
        assert_eq!(input.response("absent"), None);
    }
}
