//! A typed client for the Proxmox VE REST API that keeps the error text and never repeats a write
