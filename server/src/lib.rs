//! A fail-closed gate between AI agents and Proxmox VE, speaking MCP
