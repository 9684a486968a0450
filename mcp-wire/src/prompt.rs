//! Prompts, and completions of their arguments.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::Content;

/// Most values in one completion.
pub const MAX_COMPLETIONS: usize = 100;

/// An entry of `prompts/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Prompt {
    /// The name to ask for it by.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<PromptArgument>,
}

impl Prompt {
    /// A prompt without arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), title: None, description: Some(description.into()), arguments: Vec::new() }
    }

    /// The same with an argument that must be given.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, description: impl Into<String>) -> Self {
        self.arguments.push(PromptArgument {
            name: name.into(),
            description: Some(description.into()),
            required: true,
        });
        self
    }
}

/// An argument of a prompt: always a string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What to give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether it must be given.
    pub required: bool,
}

/// Who says a prompt's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptMessage {
    /// Who says it.
    pub role: Role,
    /// What.
    pub content: Content,
}

impl PromptMessage {
    /// Something the person says.
    #[must_use]
    pub const fn user(content: Content) -> Self {
        Self { role: Role::User, content }
    }
}

/// The answer to `prompts/get`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptResult {
    /// What it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The messages in order.
    pub messages: Vec<PromptMessage>,
}

impl PromptResult {
    /// These messages.
    #[must_use]
    pub const fn new(messages: Vec<PromptMessage>) -> Self {
        Self { description: None, messages }
    }
}

/// What a completion is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reference {
    /// An argument of this prompt.
    Prompt(String),
    /// A variable of this resource template.
    Resource(String),
}

/// What `completion/complete` asks.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRequest {
    /// What is completed.
    pub reference: Reference,
    /// Which argument or variable of it.
    pub argument: String,
    /// What was typed so far.
    pub value: String,
    /// The arguments that are settled already.
    pub context: Map<String, Value>,
}

/// The answer to `completion/complete`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Completion {
    values: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
    has_more: bool,
}

impl Completion {
    /// The candidates, best first. More than [`MAX_COMPLETIONS`] are cut, and said to be more.
    #[must_use]
    pub fn of(mut values: Vec<String>) -> Self {
        let total = values.len();
        values.truncate(MAX_COMPLETIONS);
        Self { has_more: values.len() < total, values, total: Some(total) }
    }
}
