//! The prompts and their completions.

use mcp_wire::{
    Completion, Content, Input, InputRequest, InputRequired, Prompt, PromptMessage, PromptResult, Reply,
    RpcError,
    content::ResourceText,
    prompt::{CompletionRequest, Reference},
};
use serde_json::{Map, Value, json};

use crate::resources::PIXEL;

pub(crate) fn list() -> Reply {
    let prompts = vec![
        Prompt::new("test_simple_prompt", "A prompt without arguments."),
        Prompt::new("test_prompt_with_arguments", "A prompt that repeats its arguments.")
            .argument("arg1", "The first.")
            .argument("arg2", "The second."),
        Prompt::new("test_prompt_with_embedded_resource", "A prompt with a resource in it.")
            .argument("resourceUri", "The resource's address."),
        Prompt::new("test_prompt_with_image", "A prompt with a picture in it."),
        Prompt::new("test_input_required_result_prompt", "A prompt that asks before it is given."),
    ];
    Reply::Prompts { prompts, next_cursor: None }
}

pub(crate) fn get(name: &str, arguments: &Map<String, Value>, input: &Input) -> Result<Reply, RpcError> {
    let argument = |key: &str| {
        let given = arguments.get(key).and_then(Value::as_str);
        given.ok_or_else(|| RpcError::invalid_params(format!("the prompt's argument `{key}` is missing")))
    };
    let contents = match name {
        "test_simple_prompt" => vec![Content::text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1")?, argument("arg2")?);
            vec![Content::text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))]
        }
        "test_prompt_with_embedded_resource" => {
            let resource = ResourceText {
                uri: argument("resourceUri")?.to_owned(),
                mime_type: "text/plain".to_owned(),
                text: "Embedded resource content for testing.".to_owned(),
            };
            vec![Content::Resource { resource }, Content::text("Please process the embedded resource above.")]
        }
        "test_prompt_with_image" => {
            let data = data_encoding::BASE64.encode(PIXEL);
            let image = Content::Image { data, mime_type: "image/png".to_owned() };
            vec![image, Content::text("Please analyze the image above.")]
        }
        "test_input_required_result_prompt" => {
            let Some(answer) = input.accepted("user_context") else {
                let schema = json!({
                    "type": "object",
                    "properties": {"context": {"type": "string"}},
                    "required": ["context"],
                });
                let form = InputRequest::form("What context should the prompt use?", schema);
                return Ok(InputRequired::new().ask("user_context", form).into());
            };
            let context = answer.get("context").and_then(Value::as_str).unwrap_or("none");
            vec![Content::text(format!("Use this context: {context}"))]
        }
        _ => return Err(RpcError::unknown_prompt(name)),
    };
    Ok(Reply::Prompt(PromptResult::new(contents.into_iter().map(PromptMessage::user).collect())))
}

/// Words to complete the first argument with.
const WORDS: [&str; 4] = ["paris", "park", "party", "test"];

pub(crate) fn complete(asked: &CompletionRequest) -> Completion {
    let known = matches!(&asked.reference, Reference::Prompt(name) if name == "test_prompt_with_arguments");
    let fitting = WORDS.into_iter().filter(|word| known && word.starts_with(&asked.value));
    Completion::of(fitting.map(str::to_owned).collect())
}
