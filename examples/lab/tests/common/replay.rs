//! Sending recorded requests to the lab, and comparing what comes back with what PVE answered.

use std::collections::{BTreeMap, BTreeSet};

use lab::LabCluster;
use serde::Deserialize;
use serde_json::Value;

/// Fields whose values, and not only their types, are the cluster's and not the moment's.
const SAME_VALUE: &[&str] = &[
    "id",
    "vmid",
    "name",
    "node",
    "type",
    "status",
    "tags",
    "template",
    "pool",
    "lock",
    "storage",
    "shared",
    "poolid",
    "comment",
    "parent",
    "description",
    "snaptime",
    "volid",
    "format",
    "subtype",
    "plugintype",
    "release",
    "version",
    "ostype",
    "memory",
    "cores",
    "protection",
    "onboot",
    "agent",
    "boot",
    "net0",
    "scsi0",
    "rootfs",
    "unprivileged",
    "vmgenid",
    "user",
    "tokenid",
    "running",
    "quorate",
    "online",
    "local",
    "level",
    "nodeid",
    "network",
    "maxmem",
    "maxdisk",
    "hostname",
    "managed",
    "qmpstatus",
];

/// One recorded request with its answer.
#[derive(Deserialize)]
pub(crate) struct Recording {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) token: String,
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) body: Value,
    /// The status of the task that was started, once it had ended.
    #[serde(default)]
    pub(crate) task: Option<Value>,
    #[serde(default)]
    pub(crate) task_log: Option<Vec<String>>,
}

/// One listed difference.
#[derive(Deserialize)]
struct Known {
    request: String,
    difference: String,
    why: String,
}

/// Fails on a difference that is not listed, and on a listed one that is gone.
pub(crate) fn only_known(found: &BTreeSet<(String, String)>, listed: &str) {
    let known: Vec<Known> = serde_json::from_str(listed).unwrap();
    assert!(known.iter().all(|known| !known.why.is_empty()));
    let known: BTreeSet<_> = known.into_iter().map(|known| (known.request, known.difference)).collect();
    let new: Vec<_> = found.difference(&known).collect();
    let gone: Vec<_> = known.difference(found).collect();
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}\nlisted and gone: {gone:#?}");
}

/// Names of files that the lab gave where PVE had given others: recorded name to the lab's.
pub(crate) type Names = BTreeMap<String, String>;

fn to_lab(text: &str, names: &Names) -> String {
    names.iter().fold(text.to_owned(), |text, (pve, lab)| text.replace(pve, lab))
}

fn to_pve(text: &str, names: &Names) -> String {
    names.iter().fold(text.to_owned(), |text, (pve, lab)| text.replace(lab, pve))
}

/// A line that names a request.
pub(crate) fn name(recording: &Recording, cluster: &LabCluster) -> String {
    let query: Vec<String> = recording.params.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    format!("{} {}{query} as {} on {}", recording.method, recording.path, recording.token, cluster.name())
}

/// Sends a request as it was recorded; also gives the body of the answer.
pub(crate) async fn replay(
    cluster: &LabCluster,
    recording: &Recording,
    names: &Names,
) -> (BTreeSet<String>, Value) {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(&to_lab(text, names), percent_encoding::NON_ALPHANUMERIC)
            .to_string()
    };
    let pairs: Vec<String> =
        recording.params.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value))).collect();
    let path = to_lab(&recording.path, names);
    let (path, body) = match recording.method.as_str() {
        "GET" | "DELETE" if !pairs.is_empty() => (format!("{path}?{}", pairs.join("&")), String::new()),
        _ => (path, pairs.join("&")),
    };
    let secret = cluster.secret_of(&recording.token).unwrap_or("00000000-0000-0000-0000-000000000000");
    let authorization = format!("PVEAPIToken={}={secret}", recording.token);
    let sent = super::send(cluster, Some(&authorization), &recording.method, &path, &body).await;
    let mut got = sent.unwrap();
    got.text = timeless(&to_pve(&got.text, names));
    let mut differences = BTreeSet::new();
    let body = if got.text.is_empty() { Value::String(String::new()) } else { got.json() };
    if (got.status, &got.reason) == (recording.status, &recording.reason) {
        let recorded: Value = serde_json::from_str(&timeless(&recording.body.to_string())).unwrap();
        compare(&recorded, &body, "", &mut differences);
    } else {
        differences.insert(format!("answered {} {}", got.status, got.reason));
    }
    (differences, body)
}

/// A text in which the moments in the names of backups are one and the same; those of the cluster's own files stay.
pub(crate) fn timeless(text: &str) -> String {
    let moment = |text: &str| {
        let fits =
            |(char, want): (char, char)| if want == '0' { char.is_ascii_digit() } else { char == want };
        text.chars().count() >= 19 && text.chars().zip("0000_00_00-00_00_00".chars()).all(fits)
    };
    let mut out = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        if char.is_ascii_digit() && moment(rest) && !rest.starts_with("2026_01_02-03_04_05") {
            out.push_str("0000_00_00-00_00_00");
            rest = &rest[19..];
        } else {
            out.push(char);
            rest = &rest[char.len_utf8()..];
        }
    }
    out
}

/// The value of a NIC without the MAC address that was made up for it; those of the cluster's own files stay.
fn without_mac(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    let parts = text.split(',').map(|part| match part.split_once("=BC:24:11:") {
        Some((key, mac)) if !mac.starts_with("00:00:") => key,
        _ => part,
    });
    parts.collect::<Vec<_>>().join(",")
}

fn compare(pve: &Value, lab: &Value, at: &str, differences: &mut BTreeSet<String>) {
    match (pve, lab) {
        (Value::Object(pve), Value::Object(lab)) => {
            for (key, value) in pve {
                match lab.get(key) {
                    Some(other) => compare(value, other, &format!("{at}.{key}"), differences),
                    None => {
                        differences.insert(format!("{at}.{key} is missing"));
                    }
                }
            }
            for key in lab.keys().filter(|key| !pve.contains_key(*key)) {
                differences.insert(format!("{at}.{key} is too much"));
            }
        }
        (Value::Array(pve), Value::Array(lab)) => {
            let (pve, lab) = (by_identity(pve), by_identity(lab));
            for (identity, value) in &pve {
                match lab.get(identity) {
                    Some(other) => compare(value, other, &format!("{at}[{identity}]"), differences),
                    None => {
                        differences.insert(format!("{at}[{identity}] is missing"));
                    }
                }
            }
            for identity in lab.keys().filter(|identity| !pve.contains_key(*identity)) {
                differences.insert(format!("{at}[{identity}] is too much"));
            }
        }
        _ if std::mem::discriminant(pve) != std::mem::discriminant(lab) => {
            differences.insert(format!("{at} is {lab} and not {pve}"));
        }
        _ => {
            let field = at.rsplit(['.', ']']).next().unwrap_or_default();
            // How big the node of the recordings was, and what kernel it had, is no fact about PVE.
            let hardware = at.starts_with(".data.cpuinfo")
                || at.starts_with(".data.current-kernel")
                || at.starts_with(".data[node/") && matches!(field, "maxmem" | "maxdisk");
            // A snapshot that was taken during the recording.
            let moment = field == "snaptime" && pve.as_i64() > Some(1_790_000_000);
            if field.starts_with("net") && without_mac(pve) == without_mac(lab) {
                return;
            }
            if (SAME_VALUE.contains(&field) && !hardware && !moment || at == ".total") && pve != lab {
                differences.insert(format!("{at} is {lab} and not {pve}"));
            }
        }
    }
}

/// The elements of an array by what names them, since PVE's order is not defined.
fn by_identity(array: &[Value]) -> BTreeMap<String, &Value> {
    let name = |index: usize, value: &Value| {
        if let (Some(kind), Some(id), true) =
            (value["type"].as_str(), value["id"].as_str(), value["upid"].is_string())
        {
            return format!("{kind}:{id}");
        }
        for key in [
            "id", "volid", "poolid", "storage", "name", "node", "sid", "vmid", "key", "group", "macro",
            "cidr", "rule",
        ] {
            match &value[key] {
                Value::String(text) => return text.clone(),
                Value::Number(number) => return number.to_string(),
                _ => {}
            }
        }
        index.to_string()
    };
    array.iter().enumerate().map(|(index, value)| (name(index, value), value)).collect()
}
