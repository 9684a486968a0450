//! What the wire costs a `tools/call`: strict parsing beside a plain serde_json parse of the same bytes, and validation.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a bench stops at the first surprise and documents itself"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use mcp_wire::Message;
use mcp_wire::jsonrpc::Limits;
use mcp_wire::schema::Validator;
use serde_json::{Value, json};

fn parse(c: &mut Criterion) {
    let call = json!({
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {
            "name": "get_guest_status", "arguments": {"cluster": "pve", "vmid": 100},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"}
            }
        }
    })
    .to_string();
    let limits = Limits::default();
    let mut group = c.benchmark_group("mcp_wire/tools_call");
    group.bench_function("strict parse", |b| {
        b.iter(|| Message::parse(black_box(call.as_bytes()), &limits).unwrap())
    });
    group.bench_function("serde_json::Value", |b| {
        b.iter(|| serde_json::from_str::<Value>(black_box(&call)).unwrap())
    });
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["vmid"],
        "properties": {
            "cluster": {"type": "string"},
            "vmid": {"type": "integer", "minimum": 100, "maximum": 999_999_999}
        }
    });
    let validator = Validator::new(&schema).unwrap();
    let arguments = json!({"cluster": "pve", "vmid": 100}).as_object().unwrap().clone();
    group.bench_function("validate arguments", |b| {
        b.iter(|| validator.validate(black_box(&arguments)).unwrap())
    });
    group.finish();
}

criterion_group!(benches, parse);
criterion_main!(benches);
