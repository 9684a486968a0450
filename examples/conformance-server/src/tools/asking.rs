//! Tools that ask the client before they answer. Each is written once; `mcp-wire` carries its questions in the way
//! of whatever revision the client speaks.

use mcp_wire::{Input, InputRequest, InputRequired, Reply, RpcError};
use serde_json::{Value, json};

use super::{Shelf, text};

/// A form with one field.
pub(super) fn form(message: &str, field: &str, kind: &str) -> InputRequest {
    let schema = json!({
        "type": "object",
        "properties": {field: {"type": kind}},
        "required": [field],
    });
    InputRequest::form(message, schema)
}

/// One field of a form that was accepted, as text.
pub(super) fn field<'a>(input: &'a Input, key: &str, field: &str) -> Option<&'a str> {
    input.accepted(key)?.get(field)?.as_str()
}

/// What a person did with a form, in words.
fn outcome(input: &Input, key: &str) -> String {
    let action = input.action(key).unwrap_or("none");
    let content = input.accepted(key).map_or_else(|| json!({}), |fields| json!(fields));
    format!("action={action}, content={content}")
}

fn ask(key: &str, request: InputRequest) -> Result<Reply, RpcError> {
    Ok(InputRequired::new().ask(key, request).into())
}

pub(super) fn fill(shelf: &mut Shelf) -> anyhow::Result<()> {
    anyone(shelf)?;
    forms(shelf)?;
    rounds(shelf)
}

/// Tools that ask one question of each kind.
fn anyone(shelf: &mut Shelf) -> anyhow::Result<()> {
    let prompt = json!({"prompt": {"type": "string"}});
    shelf.tool("test_sampling", "Asks the client's model.", prompt, &["prompt"], |call| async move {
        match call.request.input.response("answer") {
            None => ask("answer", InputRequest::sampling(call.text("prompt"), 100)),
            Some(_) => {
                let said = call.request.input.sampled("answer").unwrap_or("no text");
                text(format!("LLM response: {said}"))
            }
        }
    })?;
    let message = json!({"message": {"type": "string"}});
    shelf.tool("test_elicitation", "Asks the person.", message, &["message"], |call| async move {
        let input = &call.request.input;
        if input.response("user").is_some() {
            return text(format!("User response: {}", outcome(input, "user")));
        }
        let schema = json!({
            "type": "object",
            "properties": {
                "username": {"type": "string", "description": "User's response"},
                "email": {"type": "string", "description": "User's email address"},
            },
            "required": ["username", "email"],
        });
        ask("user", InputRequest::form(call.text("message"), schema))
    })?;
    shelf.tool(
        "test_missing_capability",
        "Needs the client's model.",
        json!({}),
        &[],
        |call| async move {
            match call.request.input.sampled("needed") {
                None => ask("needed", InputRequest::sampling("Say something.", 10)),
                Some(said) => text(said),
            }
        },
    )?;
    shelf.tool("test_streaming_elicitation", "Asks the person.", json!({}), &[], |call| async move {
        match field(&call.request.input, "answer", "text") {
            None => ask("answer", form("Say something.", "text", "string")),
            Some(said) => text(said),
        }
    })
}

/// Tools whose forms use what a form's schema may hold.
fn forms(shelf: &mut Shelf) -> anyhow::Result<()> {
    let ask_form = |schema: Value| {
        move |input: &Input| match input.response("form") {
            None => ask("form", InputRequest::form("Please fill in the form.", schema.clone())),
            Some(_) => text(format!("Elicitation completed: {}", outcome(input, "form"))),
        }
    };
    let defaults = ask_form(json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "User name", "default": "John Doe"},
            "age": {"type": "integer", "description": "User age", "default": 30},
            "score": {"type": "number", "description": "User score", "default": 95.5},
            "status": {
                "type": "string",
                "description": "User status",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": {"type": "boolean", "description": "Verification status", "default": true},
        },
        "required": [],
    }));
    shelf.tool(
        "test_elicitation_sep1034_defaults",
        "Asks with a default in every field.",
        json!({}),
        &[],
        move |call| std::future::ready(defaults(&call.request.input)),
    )?;
    let option = |value: &str, title: &str| json!({"const": value, "title": title});
    let enums = ask_form(json!({
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
            "titledSingle": {
                "type": "string",
                "oneOf": [option("value1", "First"), option("value2", "Second"), option("value3", "Third")],
            },
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array",
                "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
            },
            "titledMulti": {
                "type": "array",
                "items": {"anyOf": [option("value1", "First"), option("value2", "Second"), option("value3", "Third")]},
            },
        },
        "required": [],
    }));
    shelf.tool(
        "test_elicitation_sep1330_enums",
        "Asks with every kind of choice.",
        json!({}),
        &[],
        move |call| std::future::ready(enums(&call.request.input)),
    )
}

/// Tools that try what asking in rounds allows.
fn rounds(shelf: &mut Shelf) -> anyhow::Result<()> {
    let name = "test_input_required_result_elicitation";
    shelf.tool(name, "Asks for a name.", json!({}), &[], |call| async move {
        match field(&call.request.input, "user_name", "name") {
            None => ask("user_name", form("What is your name?", "name", "string")),
            Some(name) => text(format!("Hello, {name}!")),
        }
    })?;
    let name = "test_input_required_result_sampling";
    shelf.tool(name, "Asks the client's model.", json!({}), &[], |call| async move {
        match call.request.input.sampled("capital_question") {
            None => ask("capital_question", InputRequest::sampling("What is the capital of France?", 100)),
            Some(said) => text(said),
        }
    })?;
    let name = "test_input_required_result_list_roots";
    shelf.tool(name, "Asks for the client's roots.", json!({}), &[], |call| async move {
        match call.request.input.response("client_roots").and_then(|answer| answer.get("roots")) {
            None => ask("client_roots", InputRequest::Roots),
            Some(roots) => text(format!("The client's roots: {roots}")),
        }
    })?;
    for name in ["test_input_required_result_request_state", "test_input_required_result_tampered_state"] {
        shelf.tool(name, "Asks, and remembers that it did.", json!({}), &[], |call| async move {
            let input = &call.request.input;
            match (input.state(), input.response("confirm")) {
                (Some(_), Some(_)) => text("state-ok"),
                _ => {
                    let form = form("Please confirm", "ok", "boolean");
                    Ok(InputRequired::new().ask("confirm", form).keep(json!({"asked": true})).into())
                }
            }
        })?;
    }
    let name = "test_input_required_result_multiple_inputs";
    shelf.tool(name, "Asks three things at once.", json!({}), &[], |call| async move {
        let input = &call.request.input;
        let answered =
            ["user_name", "greeting", "client_roots"].iter().all(|key| input.response(key).is_some());
        if answered && input.state().is_some() {
            let name = field(input, "user_name", "name").unwrap_or("nobody");
            return text(format!("{} {name}", input.sampled("greeting").unwrap_or("Hello,")));
        }
        Ok(InputRequired::new()
            .ask("user_name", form("What is your name?", "name", "string"))
            .ask("greeting", InputRequest::sampling("Generate a greeting", 50))
            .ask("client_roots", InputRequest::Roots)
            .keep(json!({"asked": 3}))
            .into())
    })?;
    let name = "test_input_required_result_multi_round";
    shelf.tool(name, "Asks twice.", json!({}), &[], |call| async move {
        let input = &call.request.input;
        // What was answered before is in the state: only what the state says was asked counts.
        let known = input.state().and_then(|state| state.get("name")).and_then(Value::as_str);
        match (input.state(), known, field(input, "step1", "name"), field(input, "step2", "color")) {
            (Some(_), Some(name), _, Some(color)) => text(format!("{name} likes {color}")),
            (Some(_), None, Some(name), _) => {
                let form = form("Step 2: What is your favorite color?", "color", "string");
                Ok(InputRequired::new().ask("step2", form).keep(json!({"name": name})).into())
            }
            _ => {
                let form = form("Step 1: What is your name?", "name", "string");
                Ok(InputRequired::new().ask("step1", form).keep(json!({"name": null})).into())
            }
        }
    })?;
    let name = "test_input_required_result_capabilities";
    shelf.tool(name, "Asks only what the client can be asked.", json!({}), &[], |call| async move {
        let (client, input) = (&call.request.client, &call.request.input);
        let mut required = InputRequired::new();
        if client.forms() && input.response("form").is_none() {
            required = required.ask("form", form("What is your name?", "name", "string"));
        }
        if client.sampling() && input.response("model").is_none() {
            required = required.ask("model", InputRequest::sampling("Say something.", 10));
        }
        if client.roots() && input.response("roots").is_none() {
            required = required.ask("roots", InputRequest::Roots);
        }
        if required.requests().is_empty() { text("Asked all it could") } else { Ok(required.into()) }
    })
}
