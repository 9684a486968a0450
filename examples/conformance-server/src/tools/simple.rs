//! Tools that answer at once.

use mcp_wire::{Content, Reply, ToolDescriptor, ToolResult, content::ResourceText};
use serde_json::json;

use super::{Shelf, text};
use crate::resources::PIXEL;

/// A moment of silence.
const SILENCE: &[u8] = include_bytes!("../../data/silence.wav");

fn image() -> Content {
    Content::Image { data: data_encoding::BASE64.encode(PIXEL), mime_type: "image/png".to_owned() }
}

fn resource(uri: &str, mime_type: &str, text: &str) -> Content {
    let (uri, mime_type, text) = (uri.to_owned(), mime_type.to_owned(), text.to_owned());
    Content::Resource { resource: ResourceText { uri, mime_type, text } }
}

fn blocks(content: Vec<Content>) -> Reply {
    ToolResult { content, structured: None, is_error: false }.into()
}

pub(super) fn fill(shelf: &mut Shelf) -> anyhow::Result<()> {
    // The suite calls the first tool without arguments, so it must need none.
    shelf.tool("test_simple_text", "Answers a text.", json!({}), &[], |_| async {
        text("This is a simple text response for testing.")
    })?;
    shelf.tool("test_image_content", "Answers a picture.", json!({}), &[], |_| async {
        Ok(blocks(vec![image()]))
    })?;
    shelf.tool("test_audio_content", "Answers a sound.", json!({}), &[], |_| async {
        let data = data_encoding::BASE64.encode(SILENCE);
        Ok(blocks(vec![Content::Audio { data, mime_type: "audio/wav".to_owned() }]))
    })?;
    shelf.tool("test_embedded_resource", "Answers a resource.", json!({}), &[], |_| async {
        let text = "This is an embedded resource content.";
        Ok(blocks(vec![resource("test://embedded-resource", "text/plain", text)]))
    })?;
    shelf.tool("test_multiple_content_types", "Answers several blocks.", json!({}), &[], |_| async {
        let data = json!({"test": "data", "value": 123}).to_string();
        Ok(blocks(vec![
            Content::text("Multiple content types test:"),
            image(),
            resource("test://mixed-content-resource", "application/json", &data),
        ]))
    })?;
    shelf.tool("test_error_handling", "Fails.", json!({}), &[], |_| async {
        Ok(ToolResult::error("This tool intentionally returns an error for testing").into())
    })?;
    shelf.tool(
        "greet",
        "Greets by name.",
        json!({"name": {"type": "string"}}),
        &["name"],
        |call| async move { text(format!("Hello, {}!", call.text("name"))) },
    )?;
    let value = json!({"value": {"type": "string", "x-mcp-header": "Value"}});
    shelf.tool(
        "test_custom_header",
        "Repeats its argument, which a header repeats too.",
        value,
        &["value"],
        |call| async move { text(call.text("value")) },
    )?;
    // Everything that most clients cannot read in a schema.
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            },
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    });
    let descriptor = ToolDescriptor::verbatim(
        "json_schema_2020_12_tool",
        "Takes what a schema with every keyword allows.",
        schema.clone(),
    )?;
    shelf.described(descriptor, &schema, |call| async move {
        text(format!("JSON Schema 2020-12 tool called with: {}", json!(call.arguments)))
    })
}
