//! The property, and that no method is without an entry.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use lab::facts::{self, Verdict};
use percent_encoding::percent_decode_str;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use proxmox_api::ErrorKind;
use serde_json::{Map, Value};

use crate::{
    arguments::args,
    methods::{Entry, all},
    mutations::MUTATIONS,
    support::{Seen, data, pair},
};

/// Calls of each method with other arguments, where `PROPTEST_CASES` does not say how many.
const CASES: u32 = 48;

/// The same cases each time; as many new ones as `PROPTEST_CASES` says, where it is set.
fn runner() -> TestRunner {
    let config = Config { failure_persistence: None, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_some() {
        return TestRunner::new(config);
    }
    TestRunner::new_with_rng(
        Config { cases: CASES, ..config },
        TestRng::deterministic_rng(RngAlgorithm::ChaCha),
    )
}

/// Splits a form as PVE does: at `&` and `;`, names from values at the first `=`, of which a value has none.
fn form(text: &str) -> Result<Map<String, Value>, String> {
    let mut parameters = Map::new();
    for pair in text.split(['&', ';']).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} has no value"))?;
        if value.contains('=') || pair.contains('+') {
            return Err(format!("{pair:?} would be read as something else"));
        }
        let decode =
            |text| percent_decode_str(text).decode_utf8().map(String::from).map_err(|e| e.to_string());
        let (key, value) = (decode(key)?, Value::String(decode(value)?));
        match parameters.remove(&key) {
            None => parameters.insert(key, value),
            Some(Value::Array(mut list)) => {
                list.push(value);
                parameters.insert(key, Value::Array(list))
            }
            Some(first) => parameters.insert(key, Value::Array(vec![first, value])),
        };
    }
    Ok(parameters)
}

/// Reads the fields of an upload; the file has to be the last of them.
fn multipart(seen: &Seen, content_type: &str) -> Result<Map<String, Value>, String> {
    let boundary = content_type.split_once("boundary=").ok_or("no boundary")?.1;
    let body: String = seen.body.iter().copied().map(char::from).collect();
    let body = body.strip_suffix(&format!("\r\n--{boundary}--\r\n")).ok_or("no closing boundary")?;
    let mut parameters = Map::new();
    for part in format!("\r\n{body}").split(&format!("\r\n--{boundary}\r\n")).skip(1) {
        if parameters.contains_key("filename") {
            return Err("a field after the file".to_owned());
        }
        let (head, value) = part.split_once("\r\n\r\n").ok_or("a part without an empty line")?;
        let name = head.split("name=\"").nth(1).and_then(|rest| rest.split('"').next()).ok_or("no name")?;
        let filename = head.split("filename=\"").nth(1).and_then(|rest| rest.split('"').next());
        let value = filename.unwrap_or(value).to_owned();
        parameters.insert(name.to_owned(), Value::String(value));
    }
    Ok(parameters)
}

/// What a request is to PVE: method, path and parameters.
pub(crate) fn call(seen: &Seen) -> Result<(String, String, Map<String, Value>), String> {
    let mut line = seen.line.split(' ');
    let method = line.next().unwrap_or_default().to_owned();
    let target = line.next().and_then(|target| target.strip_prefix("/api2/json")).ok_or("not the API")?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = percent_decode_str(path).decode_utf8().map_err(|error| error.to_string())?.into_owned();
    let body = std::str::from_utf8(&seen.body);
    let parameters = match (method.as_str(), seen.header("content-type")) {
        ("GET" | "DELETE", None) if seen.body.is_empty() && seen.header("content-length").is_none() => {
            form(query)?
        }
        ("POST" | "PUT", Some("application/x-www-form-urlencoded")) if query.is_empty() => {
            form(body.map_err(|error| error.to_string())?)?
        }
        ("POST", Some(kind)) if query.is_empty() && kind.starts_with("multipart/form-data") => {
            multipart(seen, kind)?
        }
        _ => return Err("parameters where PVE does not look for them".to_owned()),
    };
    Ok((method, path, parameters))
}

fn judge(seen: &Seen) -> Result<(), String> {
    let (method, path, parameters) = call(seen)?;
    // B35: open to root@pam alone, and no shell either: nothing may be built on it.
    if path.ends_with("/execute") {
        return Err(format!("{method} {path}: no API token may call it"));
    }
    match facts::judge(&method, &path, &parameters) {
        Verdict::Accepted => Ok(()),
        other => Err(format!("{method} {path} {parameters:?}: {other:?}")),
    }
}

#[test]
fn what_pve_refuses_is_told_from_what_it_takes() {
    let seen = |line: &str, headers: &[&str], body: &str| Seen {
        line: format!("{line} HTTP/1.1"),
        headers: headers.iter().map(|line| (*line).to_owned()).collect(),
        body: body.as_bytes().to_vec(),
        connection: 0,
    };
    let post = |path: &str, body: &str| {
        let form = ["content-type: application/x-www-form-urlencoded"];
        judge(&seen(&format!("POST /api2/json{path}"), &form, body))
    };
    let clone = "/nodes/pve1/qemu/100/clone";
    post(clone, "newid=101&full=1&name=a.b").unwrap();
    for odd in [
        "",
        "newid=99",
        "newid=101&full=true",
        "newid=101&hostname=a",
        "newid=101&name=a_b",
        "newid=101&format=qed",
        "newid=101&description=a+b",
        "newid=101&description=a=b",
        "newid=101&newid=102",
        "newid=101&snapname=x",
        "newid=101&vmid=102",
    ] {
        assert!(post(clone, odd).is_err(), "{odd}");
    }
    assert!(post("/nodes/pve1/qemu/100/clones", "newid=101").is_err());
    assert!(post("/nodes/pve1/lxc/100/clone", "newid=101&name=a").is_err());
    assert!(post("/nodes/pve1/lxc/100/status/reset", "").is_err());
    assert!(
        post("/cluster/ha/rules", "rule=r1&type=node-affinity&resources=vm:100&affinity=positive").is_err()
    );
    assert!(judge(&seen("DELETE /api2/json/nodes/pve1/qemu/100?purge=1", &[], "")).is_ok());
    assert!(judge(&seen("DELETE /api2/json/nodes/pve1/qemu/100?force=1", &[], "")).is_err());
    assert!(
        judge(&seen("DELETE /api2/json/nodes/pve1/qemu/100", &["content-length: 7"], "purge=1")).is_err()
    );
    assert!(judge(&seen("GET /api2/json/nodes/pve1/config?property=description", &[], "")).is_ok());
    assert!(judge(&seen("GET /api2/json/nodes/pve1/config?property=x", &[], "")).is_err());
    assert!(judge(&seen("GET /api2/json/nodes/pve1/config?x=1", &[], "")).is_err());
    assert!(judge(&seen("GET /api2/json/nodes/pve1/query-url-metadata?url=ftp%3A//h", &[], "")).is_err());
    assert!(judge(&seen("GET /version", &[], "")).is_err());
    let form = ["content-type: application/x-www-form-urlencoded"];
    let batch = judge(&seen("POST /api2/json/nodes/pve1/execute", &form, "commands=%5B%5D")).unwrap_err();
    assert!(batch.contains("no API token"), "{batch}");
}

#[test]
fn every_request_the_client_builds_is_one_pve_accepts() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (server, client) = runtime.block_on(pair(|_, _| data("null")));
    let mut failed = BTreeMap::new();
    for Entry { name, run } in all() {
        let mut runner = runner();
        let outcome = runner.run(&args(), |args| {
            std::mem::take(&mut *server.seen.lock().unwrap());
            let result = runtime.block_on(run(client.clone(), args));
            // The answer is `null`, which many do not take; only a refusal of the arguments is a fault.
            if let Err(error) = result
                && error.kind() == ErrorKind::Parameter
            {
                return Err(TestCaseError::fail(format!("refused by the client: {error}")));
            }
            let seen = server.seen();
            if seen.is_empty() {
                return Err(TestCaseError::fail("no request was sent"));
            }
            seen.iter().try_for_each(|seen| judge(seen).map_err(TestCaseError::fail))
        });
        if let Err(TestError::Fail(why, args)) = outcome {
            failed.insert(*name, format!("{why}\nwith {args:?}"));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn a_mutation_is_sent_once_whatever_becomes_of_it() {
    use crate::support::{Answer, http};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Each answer that could tempt a client to send once more.
    let answers = [
        Answer::Cut(Vec::new()),
        Answer::Cut(b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n{".to_vec()),
        Answer::Close(http("500 can't lock file '/var/lock/x' - got timeout", "")),
        Answer::Close(http("596 Connection timed out", "")),
        Answer::Close(http("503 Service Unavailable", "")),
    ];
    let mut values = TestRunner::deterministic();
    for answer in answers {
        for Entry { name, run } in MUTATIONS {
            // A client of its own for each: one that has seen enough failures sends nothing any more.
            let answer = answer.clone();
            let (server, client) = runtime.block_on(pair(move |_, _| answer.clone()));
            let args = proptest::strategy::ValueTree::current(
                &proptest::strategy::Strategy::new_tree(&args(), &mut values).unwrap(),
            );
            let result = runtime.block_on(run(client, args));
            assert!(result.is_err(), "{name}");
            assert_eq!(server.seen().len(), 1, "{name}: {result:?}");
        }
    }
}

/// The names of the `pub async fn`s in `impl Client` blocks of the crate.
fn methods_of_the_client(dir: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            methods_of_the_client(&path, into);
            continue;
        }
        let mut inside = false;
        for line in std::fs::read_to_string(&path).unwrap().lines() {
            if !line.starts_with([' ', '}', '#', '/']) && !line.is_empty() || line.starts_with('}') {
                inside = line == "impl Client {";
            }
            if let Some(rest) = line.strip_prefix("    pub async fn ").filter(|_| inside) {
                into.insert(rest.split(['(', '<']).next().unwrap().to_owned());
            }
        }
    }
}

#[test]
fn no_method_is_without_an_entry() {
    let mut found = BTreeSet::new();
    methods_of_the_client(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let listed: BTreeSet<String> = all().map(|entry| entry.name.to_owned()).collect();
    assert_eq!(listed.len(), all().count(), "an entry is there twice");
    assert!(found.len() > 100, "{found:?}");
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(missing.is_empty() && gone.is_empty(), "without an entry: {missing:?}; no method: {gone:?}");
}

#[test]
fn every_method_is_in_the_readme() {
    let readme = include_str!("../../README.md");
    let missing: Vec<_> = all()
        .filter(|entry| !readme.contains(&format!("`{}`", entry.name)))
        .map(|entry| entry.name)
        .collect();
    assert!(missing.is_empty(), "add to the table of README.md: {missing:?}");
}
