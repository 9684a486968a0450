//! The configuration of a server that uses the lab, as files.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::LabError;
use crate::handle::LabCluster;

/// Writes everything and returns the path of `clusters.json`.
pub(crate) fn write_config(clusters: &[LabCluster], dir: &Path) -> Result<PathBuf, LabError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(LabError::io("make the folder", dir))?;
    let dir = dir.canonicalize().map_err(LabError::io("resolve", dir))?;
    let mut devices = Map::new();
    for cluster in clusters {
        devices.insert(cluster.name().to_owned(), device(cluster, &dir)?);
    }
    let path = dir.join("clusters.json");
    let envelope = json!({ "version": 1, "devices": devices, "policy": { "resource_cache_ttl_secs": 10 } });
    write(&path, &format!("{envelope:#}\n"))?;
    Ok(path)
}

fn device(cluster: &LabCluster, dir: &Path) -> Result<Value, LabError> {
    let name = cluster.name();
    let secret = dir.join(format!("{name}.token"));
    write(&secret, cluster.token_secret())?;
    let ca = dir.join(format!("{name}-ca.pem"));
    write(&ca, cluster.ca_pem())?;
    let key = dir.join(format!("{name}-ssh-key"));
    write(&key, cluster.client_key_pem())?;
    let hosts = dir.join(format!("{name}-known-hosts"));
    let lines: Vec<String> = cluster.nodes().iter().map(|node| node.host_key_line() + "\n").collect();
    write(&hosts, &lines.concat())?;
    let nodes: Map<String, Value> = cluster
        .nodes()
        .iter()
        .map(|node| (node.name().to_owned(), json!({ "host": node.ssh_host(), "port": node.ssh_port() })))
        .collect();
    Ok(json!({
        "endpoint": cluster.endpoint(),
        "token_id": cluster.token_id(),
        "token_secret_file": secret,
        "ca_pem_path": ca,
        "protected_tags": ["protected"],
        "ssh": {
            "user": "root",
            "key_file": key,
            "known_hosts_file": hosts,
            "port": cluster.nodes().first().map_or(22, |node| node.ssh_port()),
            "staging_dir": "/var/tmp/proxward",
            "nodes": nodes,
        },
    }))
}

/// Writes one file that only its owner may read; an older one of the same name is replaced.
fn write(path: &Path, text: &str) -> Result<(), LabError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(LabError::io("replace", path)(error));
        }
        _ => {}
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(LabError::io("write", path))
}
