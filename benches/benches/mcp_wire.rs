//! Reading a request, and checking its arguments.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench: it may stop, and criterion writes its functions"
)]

use std::hint::black_box;

use benches::{compare, time};
use criterion::{Criterion, Throughput, criterion_group};
use mcp_wire::Message;
use mcp_wire::jsonrpc::Limits;
use mcp_wire::schema::Validator;
use serde_json::{Value, json};

/// A `tools/call` as clients send it, with `extra` bytes in one argument.
fn call(extra: usize) -> Vec<u8> {
    let mut arguments =
        json!({"cluster": "alpha", "vmid": 905, "snapname": "before-upgrade", "vmstate": false});
    if extra > 0 {
        arguments["description"] = json!("x".repeat(extra));
    }
    serde_json::to_vec(&json!({
        "jsonrpc": "2.0", "id": 17, "method": "tools/call",
        "params": {
            "name": "proxmox_create_snapshot", "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "progressToken": "p1",
            },
        },
    }))
    .unwrap()
}

fn parsing(c: &mut Criterion) {
    let limits = Limits::default();
    for (name, text) in [("small", call(0)), ("with_64_KiB_text", call(64 * 1024))] {
        let mut group = c.benchmark_group(format!("mcp_wire/tools_call_{name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("message", |b| b.iter(|| Message::parse(black_box(&text), &limits)));
        group.bench_function("serde_json_value", |b| {
            b.iter(|| serde_json::from_slice::<Value>(black_box(&text)))
        });
    }
}

/// Arguments against a compiled input schema, as every call of a tool is.
fn validating(c: &mut Criterion) {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["vmid", "snapname"],
        "properties": {
            "cluster": {"type": "string"},
            "vmid": {"type": "integer", "minimum": 100, "maximum": 999_999_999},
            "snapname": {"type": "string", "maxLength": 40},
            "vmstate": {"type": "boolean"},
        },
    });
    let validator = Validator::new(&schema).unwrap();
    let arguments = json!({"cluster": "alpha", "vmid": 905, "snapname": "before-upgrade", "vmstate": false});
    let arguments = arguments.as_object().unwrap();
    c.bench_function("mcp_wire/validate_arguments", |b| {
        b.iter(|| validator.validate(black_box(arguments).clone()).unwrap())
    });
}

criterion_group!(groups, parsing, validating);

fn main() {
    groups();
    let (text, limits) = (call(0), Limits::default());
    let repeat = |call: &dyn Fn() -> bool| time(|| (0..1_000).filter(|_| call()).count()) / 1_000;
    compare(
        500,
        ("Message::parse of a tools/call", || repeat(&|| Message::parse(black_box(&text), &limits).is_ok())),
        ("serde_json to Value", || repeat(&|| serde_json::from_slice::<Value>(black_box(&text)).is_ok())),
    );
    Criterion::default().configure_from_args().final_summary();
}
