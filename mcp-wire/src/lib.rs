#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod builtin;
#[cfg(any(feature = "http", feature = "stdio"))]
pub mod call;
pub mod content;
pub mod era;
#[cfg(feature = "http")]
pub mod http;
pub mod jsonrpc;
pub mod ladder;
pub mod reply;

#[cfg(feature = "schema")]
pub mod schema;
#[cfg(feature = "stdio")]
pub mod stdio;
pub mod tool;

pub use builtin::{Identity, Method, ServerInfo};
#[cfg(any(feature = "http", feature = "stdio"))]
pub use call::{CancelHandle, CancelSignal, Progress, Request};
pub use content::{Content, ToolResult};
pub use era::{Era, Revision};
pub use jsonrpc::{Message, RequestId, RpcError};
pub use ladder::Meta;
pub use reply::Reply;
pub use tool::{Annotations, ToolDescriptor};
