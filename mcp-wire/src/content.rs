//! What a tool answers.

use serde::Serialize;
use serde_json::Value;

/// One block of a tool's answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Content {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Base64.
        data: String,
        /// For example `image/png`.
        mime_type: String,
    },
    /// A sound.
    Audio {
        /// Base64.
        data: String,
        /// For example `audio/wav`.
        mime_type: String,
    },
    /// A pointer to something the client may read.
    ResourceLink {
        /// Where.
        uri: String,
        /// A short name.
        name: String,
        /// Its type, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A resource's text, in full.
    Resource {
        /// The resource.
        resource: ResourceText,
    },
}

/// The text of an embedded resource.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceText {
    /// Which resource.
    pub uri: String,
    /// Its type.
    pub mime_type: String,
    /// Its text.
    pub text: String,
}

impl Content {
    /// A text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// The result of a `tools/call`.
///
/// Some clients give their model the text, others only the structured data, so both must say the same:
/// [`ToolResult::structured`] makes them from one value.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolResult {
    /// The blocks a model reads.
    pub content: Vec<Content>,
    /// The same as data. Revisions with a handshake allow objects only; other values are left out there.
    pub structured: Option<Value>,
    /// Whether the call failed in a way the model can act on.
    pub is_error: bool,
}

impl ToolResult {
    /// Success: `data` as structured content and as its JSON text.
    #[must_use]
    pub fn structured(data: Value) -> Self {
        Self { content: vec![Content::text(data.to_string())], structured: Some(data), is_error: false }
    }

    /// Success: text alone, for a tool without an output schema.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], structured: None, is_error: false }
    }

    /// Failure that names cause, remedy and who can unblock it. Carries no structured content: clients check
    /// that against the tool's output schema even when the call failed.
    pub fn error(text: impl Into<String>) -> Self {
        Self { content: vec![Content::text(text)], structured: None, is_error: true }
    }
}
