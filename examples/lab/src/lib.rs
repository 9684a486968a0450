//! Simulated Proxmox VE clusters and nodes: HTTPS API, tasks, SSH, SFTP and pct
