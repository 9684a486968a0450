#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod builtin;
#[cfg(any(feature = "http", feature = "stdio"))]
pub mod call;
pub mod content;
pub mod era;
#[cfg(any(feature = "http", feature = "stdio"))]
pub mod events;
pub mod filter;
#[cfg(feature = "http")]
pub mod http;
pub mod input;
pub mod jsonrpc;
pub mod ladder;
#[cfg(any(feature = "http", feature = "stdio"))]
#[cfg_attr(
    not(feature = "http"),
    allow(dead_code, reason = "over stdio there is one session and no choosing")
)]
pub mod legacy;
pub mod log;
pub mod method;
pub mod offers;
pub mod prompt;
pub mod reply;
pub mod resource;

#[cfg(feature = "schema")]
pub mod schema;
pub mod state_seal;
#[cfg(any(feature = "http", feature = "stdio"))]
pub mod stateful;
#[cfg(feature = "stdio")]
pub mod stdio;
#[cfg(any(feature = "http", feature = "stdio"))]
pub mod tasks;
pub mod tool;

pub use builtin::{Identity, Method, ServerInfo};
#[cfg(any(feature = "http", feature = "stdio"))]
pub use call::{CancelHandle, CancelSignal, Line, Progress, Request};
pub use content::{Content, ToolResult};
pub use era::{Era, Revision};
pub use filter::Filter;
pub use input::{ClientCapabilities, Input, InputRequest, InputRequired};
pub use jsonrpc::{Message, RequestId, RpcError};
pub use ladder::Meta;
pub use log::Level;
pub use offers::{Changes, Offers};
pub use prompt::{Completion, Prompt, PromptMessage, PromptResult};
pub use reply::Reply;
pub use resource::{Resource, ResourceContents, ResourceTemplate};
#[cfg(any(feature = "http", feature = "stdio"))]
pub use stateful::Stateful;
pub use tool::{Annotations, ToolDescriptor};
