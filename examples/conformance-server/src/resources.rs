//! The resources: a text, a picture, and a template.

use mcp_wire::{Era, Reply, Resource, ResourceContents, ResourceTemplate, RpcError};
use serde_json::json;

/// One blue pixel.
pub(crate) const PIXEL: &[u8] = include_bytes!("../data/pixel.png");

const TEXT: &str = "test://static-text";
const BINARY: &str = "test://static-binary";

pub(crate) fn list() -> Reply {
    let resources = vec![
        Resource::new(TEXT, "static-text", "text/plain").description("A text that does not change."),
        Resource::new(BINARY, "static-binary", "image/png").description("A picture that does not change."),
    ];
    Reply::Resources { resources, next_cursor: None }
}

pub(crate) fn templates() -> Reply {
    let template = ResourceTemplate::new("test://template/{id}/data", "template", "application/json")
        .description("Data for any id.");
    Reply::ResourceTemplates { templates: vec![template], next_cursor: None }
}

pub(crate) fn read(era: Era, uri: &str) -> Result<Reply, RpcError> {
    let contents = match uri {
        TEXT => ResourceContents::text(uri, "text/plain", "This is the content of the static text resource."),
        BINARY => ResourceContents::blob(uri, "image/png", PIXEL),
        _ => {
            let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
            let id = id.filter(|id| !id.is_empty() && !id.contains('/'));
            let id = id.ok_or_else(|| RpcError::resource_not_found(era, uri))?;
            let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
            ResourceContents::text(uri, "application/json", data.to_string())
        }
    };
    Ok(Reply::Contents(vec![contents]))
}
