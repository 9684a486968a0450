//! Bytes into a Proxmox VE guest, verified inside the guest: SSH, SFTP, pct push
