//! The Model Context Protocol on the wire: JSON-RPC, every deployed revision, Streamable HTTP and stdio
