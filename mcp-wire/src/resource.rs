//! Resources as lists show them and as `resources/read` gives them.

use serde::Serialize;

/// An entry of `resources/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Which resource.
    pub uri: String,
    /// A short name, for programs.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is in it, for models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its size in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}

impl Resource {
    /// A resource of that address, name and type.
    pub fn new(uri: impl Into<String>, name: impl Into<String>, mime_type: impl Into<String>) -> Self {
        let mime_type = Some(mime_type.into());
        Self { uri: uri.into(), name: name.into(), title: None, description: None, mime_type, size: None }
    }

    /// The same with a description.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }
}

/// An entry of `resources/templates/list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// The addresses, as an RFC 6570 template.
    pub uri_template: String,
    /// A short name, for programs.
    pub name: String,
    /// A name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What is in them, for models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Their type, if all have the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
}

impl ResourceTemplate {
    /// A template of that form, name and type.
    pub fn new(template: impl Into<String>, name: impl Into<String>, mime_type: impl Into<String>) -> Self {
        let mime_type = Some(mime_type.into());
        Self { uri_template: template.into(), name: name.into(), title: None, description: None, mime_type }
    }

    /// The same with a description.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = Some(text.into());
        self
    }
}

/// What a resource holds. A resource that is not there is an error
/// ([`RpcError::resource_not_found`](crate::RpcError::resource_not_found)), never an empty list of contents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum ResourceContents {
    /// Text.
    Text {
        /// Which resource.
        uri: String,
        /// Its type.
        mime_type: String,
        /// Its text.
        text: String,
    },
    /// Bytes.
    Blob {
        /// Which resource.
        uri: String,
        /// Its type.
        mime_type: String,
        /// Base64.
        blob: String,
    },
}

impl ResourceContents {
    /// Text of a type.
    pub fn text(uri: impl Into<String>, mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Text { uri: uri.into(), mime_type: mime_type.into(), text: text.into() }
    }

    /// Bytes of a type.
    pub fn blob(uri: impl Into<String>, mime_type: impl Into<String>, bytes: &[u8]) -> Self {
        let blob = data_encoding::BASE64.encode(bytes);
        Self::Blob { uri: uri.into(), mime_type: mime_type.into(), blob }
    }
}
