//! What a request asks of the embedder's service, read from its parameters.

use serde_json::{Map, Value};

use crate::{
    Era, RpcError,
    filter::Filter,
    input::MAX_QUESTIONS,
    log::Level,
    offers::Offers,
    prompt::{CompletionRequest, Reference},
};

/// What a call asks of the embedder's service.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Method {
    /// `tools/call`
    ToolsCall {
        /// The tool's name, as sent: unknown names arrive here too.
        name: String,
        /// The arguments; empty when the client left them out.
        arguments: Map<String, Value>,
    },
    /// `tools/list`
    ToolsList {
        /// Where to go on, for servers that page.
        cursor: Option<String>,
    },
    /// `resources/list`
    ResourcesList {
        /// Where to go on.
        cursor: Option<String>,
    },
    /// `resources/templates/list`
    ResourceTemplatesList {
        /// Where to go on.
        cursor: Option<String>,
    },
    /// `resources/read`
    ResourcesRead {
        /// Which resource, as sent.
        uri: String,
    },
    /// `resources/subscribe`, in a legacy session. Answer [`Reply::Done`](crate::Reply::Done) if the caller may
    /// watch the resource; the crate keeps the subscription.
    ResourcesSubscribe {
        /// Which resource, as sent.
        uri: String,
    },
    /// `resources/unsubscribe`, in a legacy session. The transports answer it themselves.
    ResourcesUnsubscribe {
        /// Which resource, as sent.
        uri: String,
    },
    /// `prompts/list`
    PromptsList {
        /// Where to go on.
        cursor: Option<String>,
    },
    /// `prompts/get`
    PromptsGet {
        /// The prompt's name, as sent.
        name: String,
        /// The arguments, all strings.
        arguments: Map<String, Value>,
    },
    /// `completion/complete`
    Complete(CompletionRequest),
    /// `subscriptions/listen`. Answer [`Reply::Listening`](crate::Reply::Listening) with the part of the filter
    /// that the caller may hear; the crate keeps the stream.
    Listen(Filter),
    /// `logging/setLevel`, in a legacy session. The transports answer it themselves.
    SetLevel(Level),
    /// `tasks/get`. The transports answer it from the task store, as the two below.
    TasksGet {
        /// Which task, as sent.
        id: String,
    },
    /// `tasks/update`
    TasksUpdate {
        /// Which task, as sent.
        id: String,
        /// Answers to its questions.
        responses: Map<String, Value>,
    },
    /// `tasks/cancel`
    TasksCancel {
        /// Which task, as sent.
        id: String,
    },
}

impl Method {
    /// The method's name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::ToolsCall { .. } => "tools/call",
            Self::ToolsList { .. } => "tools/list",
            Self::ResourcesList { .. } => "resources/list",
            Self::ResourceTemplatesList { .. } => "resources/templates/list",
            Self::ResourcesRead { .. } => "resources/read",
            Self::ResourcesSubscribe { .. } => "resources/subscribe",
            Self::ResourcesUnsubscribe { .. } => "resources/unsubscribe",
            Self::PromptsList { .. } => "prompts/list",
            Self::PromptsGet { .. } => "prompts/get",
            Self::Complete(_) => "completion/complete",
            Self::Listen(_) => "subscriptions/listen",
            Self::SetLevel(_) => "logging/setLevel",
            Self::TasksGet { .. } => "tasks/get",
            Self::TasksUpdate { .. } => "tasks/update",
            Self::TasksCancel { .. } => "tasks/cancel",
        }
    }

    /// Whether its answer may be a question back.
    #[must_use]
    pub const fn may_ask(&self) -> bool {
        matches!(self, Self::ToolsCall { .. } | Self::PromptsGet { .. } | Self::ResourcesRead { .. })
    }

    /// The parameters that say what is asked: what a sealed state is bound to.
    #[must_use]
    pub fn subject(&self) -> Map<String, Value> {
        let (key, name, arguments) = match self {
            Self::ToolsCall { name, arguments } | Self::PromptsGet { name, arguments } => {
                ("name", name, Some(arguments))
            }
            Self::ResourcesRead { uri } => ("uri", uri, None),
            _ => return Map::new(),
        };
        let mut subject = Map::from_iter([(key.to_owned(), Value::String(name.clone()))]);
        if let Some(arguments) = arguments {
            subject.insert("arguments".to_owned(), Value::Object(arguments.clone()));
        }
        subject
    }
}

/// What a modern client brings back after it was asked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retry {
    /// Its answers by key, each an object.
    pub responses: Map<String, Value>,
    /// The sealed state, unopened.
    pub state: Option<String>,
}

impl Retry {
    pub(crate) fn take(params: &mut Map<String, Value>) -> Result<Self, RpcError> {
        let responses = match params.remove("inputResponses") {
            None => Map::new(),
            Some(Value::Object(responses)) => responses,
            Some(_) => return Err(RpcError::invalid_params("`params.inputResponses` must be an object")),
        };
        check_responses(&responses)?;
        let state = match params.remove("requestState") {
            None => None,
            Some(Value::String(state)) => Some(state),
            Some(_) => return Err(RpcError::invalid_params("`params.requestState` must be a string")),
        };
        Ok(Self { responses, state })
    }
}

fn check_responses(responses: &Map<String, Value>) -> Result<(), RpcError> {
    if responses.values().all(Value::is_object) && responses.len() <= 4 * MAX_QUESTIONS {
        Ok(())
    } else {
        let message = format!(
            "`params.inputResponses` must hold at most {} answers, each an object",
            4 * MAX_QUESTIONS
        );
        Err(RpcError::invalid_params(message))
    }
}

/// Reads the methods that the embedder's service or a transport answers; gives the parameters of all others back.
pub(crate) fn read(
    offers: Offers,
    era: Era,
    method: &str,
    mut params: Map<String, Value>,
) -> Result<Result<Method, RpcError>, Map<String, Value>> {
    let modern = era.is_modern();
    let tells = offers.tells(era);
    let in_session = !modern && offers.sessions;
    Ok(match method {
        "tools/call" => named(&mut params, "the name of a tool")
            .map(|(name, arguments)| Method::ToolsCall { name, arguments }),
        "tools/list" => cursor(&params).map(|cursor| Method::ToolsList { cursor }),
        "resources/list" if offers.resources => {
            cursor(&params).map(|cursor| Method::ResourcesList { cursor })
        }
        "resources/templates/list" if offers.resources => {
            cursor(&params).map(|cursor| Method::ResourceTemplatesList { cursor })
        }
        "resources/read" if offers.resources => {
            text(&mut params, "uri").map(|uri| Method::ResourcesRead { uri })
        }
        "resources/subscribe" if in_session && tells.updates => {
            text(&mut params, "uri").map(|uri| Method::ResourcesSubscribe { uri })
        }
        "resources/unsubscribe" if in_session && tells.updates => {
            text(&mut params, "uri").map(|uri| Method::ResourcesUnsubscribe { uri })
        }
        "prompts/list" if offers.prompts => cursor(&params).map(|cursor| Method::PromptsList { cursor }),
        "prompts/get" if offers.prompts => prompts_get(&mut params),
        "completion/complete" if offers.completions => complete(params).map(Method::Complete),
        "logging/setLevel" if in_session && offers.logging => set_level(&mut params),
        "subscriptions/listen" if modern && (tells.any() || offers.tasks) => {
            Filter::parse(&params).map(|wanted| Method::Listen(wanted.limited_to(tells)))
        }
        "tasks/get" if modern && offers.tasks => {
            text(&mut params, "taskId").map(|id| Method::TasksGet { id })
        }
        "tasks/update" if modern && offers.tasks => tasks_update(params),
        "tasks/cancel" if modern && offers.tasks => {
            text(&mut params, "taskId").map(|id| Method::TasksCancel { id })
        }
        _ => return Err(params),
    })
}

fn named(params: &mut Map<String, Value>, what: &str) -> Result<(String, Map<String, Value>), RpcError> {
    let Some(Value::String(name)) = params.remove("name") else {
        return Err(RpcError::invalid_params(format!("`params.name` must be {what}")));
    };
    match params.remove("arguments") {
        None | Some(Value::Null) => Ok((name, Map::new())),
        Some(Value::Object(arguments)) => Ok((name, arguments)),
        Some(_) => Err(RpcError::invalid_params("`params.arguments` must be an object")),
    }
}

fn text(params: &mut Map<String, Value>, key: &str) -> Result<String, RpcError> {
    match params.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(RpcError::invalid_params(format!("`params.{key}` must be a string"))),
    }
}

fn prompts_get(params: &mut Map<String, Value>) -> Result<Method, RpcError> {
    let (name, arguments) = named(params, "the name of a prompt")?;
    if arguments.values().all(Value::is_string) {
        Ok(Method::PromptsGet { name, arguments })
    } else {
        Err(RpcError::invalid_params("a prompt's arguments must be strings"))
    }
}

fn set_level(params: &mut Map<String, Value>) -> Result<Method, RpcError> {
    Level::parse(&text(params, "level")?).map(Method::SetLevel).ok_or_else(|| {
        RpcError::invalid_params("`params.level` must be a level of RFC 5424, from `debug` to `emergency`")
    })
}

fn tasks_update(mut params: Map<String, Value>) -> Result<Method, RpcError> {
    let id = text(&mut params, "taskId")?;
    match params.remove("inputResponses") {
        Some(Value::Object(responses)) => {
            check_responses(&responses)?;
            Ok(Method::TasksUpdate { id, responses })
        }
        _ => Err(RpcError::invalid_params("`params.inputResponses` must be an object")),
    }
}

fn complete(mut params: Map<String, Value>) -> Result<CompletionRequest, RpcError> {
    let reference = match params.get("ref").map(|r| (r.get("type").and_then(Value::as_str), r)) {
        Some((Some("ref/prompt"), r)) => {
            r.get("name").and_then(Value::as_str).map(str::to_owned).map(Reference::Prompt)
        }
        Some((Some("ref/resource"), r)) => {
            r.get("uri").and_then(Value::as_str).map(str::to_owned).map(Reference::Resource)
        }
        _ => None,
    };
    let Some(reference) = reference else {
        let message = "`params.ref` must be a `ref/prompt` with a `name` or a `ref/resource` with a `uri`";
        return Err(RpcError::invalid_params(message));
    };
    let Some(Value::Object(mut argument)) = params.remove("argument") else {
        return Err(RpcError::invalid_params("`params.argument` must be an object"));
    };
    let (Some(Value::String(name)), Some(Value::String(value))) =
        (argument.remove("name"), argument.remove("value"))
    else {
        return Err(RpcError::invalid_params("`params.argument` must hold `name` and `value`, both strings"));
    };
    let context = match params.remove("context").map(|mut c| c.get_mut("arguments").map(Value::take)) {
        Some(Some(Value::Object(context))) => context,
        _ => Map::new(),
    };
    Ok(CompletionRequest { reference, argument: name, value, context })
}

pub(crate) fn cursor(params: &Map<String, Value>) -> Result<Option<String>, RpcError> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(cursor)) => Ok(Some(cursor.clone())),
        Some(_) => Err(RpcError::invalid_params("`params.cursor` must be a string")),
    }
}
