//! Answers with something wrong in them. One odd field never loses an entry, and one odd entry never a list.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use proptest::{
    sample::Index,
    strategy::{Strategy, ValueTree},
    test_runner::TestRunner,
};
use proxmox_api::Client;
use serde_json::Value;

use crate::{
    recorded::call,
    support::{Answer, http, pair},
};

/// Answers written for these tests, one to a line.
const FIXTURES: &str = include_str!("fixtures.jsonl");

/// What a field can turn into, as JSON.
const ODD: [&str; 17] = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1e400",
    "18446744073709551616",
    "99999999999999999999999999999999999999999999999999",
    "0.5",
    "\"\"",
    "\"x y\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[]",
    "[null,{\"a\":[1]}]",
    "{}",
    "{\"result\":[]}",
];

/// Fields that tell what an entry is. Without one of them it cannot be used, and is counted instead.
const IDENTIFYING: [&str; 14] = [
    "cidr", "group", "id", "key", "n", "name", "node", "poolid", "ref", "rule", "sid", "storage", "type",
    "upid",
];
const IDENTIFYING_TOO: [&str; 2] = ["vmid", "volid"];

/// Fields without which an answer that is one object says nothing.
const NEEDED: [&str; 5] = ["exitstatus", "members", "result", "status", "version"];

fn identifies(field: &str) -> bool {
    IDENTIFYING.contains(&field) || IDENTIFYING_TOO.contains(&field)
}

/// An answer: the path it is to, and its data.
struct Given {
    path: String,
    pool: Option<String>,
    data: Value,
}

fn fixtures() -> Vec<Given> {
    let given = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        Given { path: line["path"].as_str().unwrap().to_owned(), pool: None, data: line["data"].clone() }
    };
    FIXTURES.lines().map(given).collect()
}

/// The answers to reads that were recorded, where they are at hand.
fn recordings() -> Vec<Given> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/pve-9.2-reads.jsonl");
    let Ok(text) = std::fs::read_to_string(&file) else {
        println!("not applicable: no recorded answers at {}", file.display());
        return Vec::new();
    };
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter(|line| line["method"] == "GET" && line["status"] == 200)
        .map(|line| Given {
            path: line["path"].as_str().unwrap().to_owned(),
            pool: line["params"]
                .as_array()
                .and_then(|params| params.iter().find(|pair| pair[0] == "poolid"))
                .and_then(|pair| pair[1].as_str())
                .map(str::to_owned),
            data: line["body"]["data"].clone(),
        })
        .collect()
}

/// Writes JSON with `odd`, which need not be JSON that can be held, in the place of the marker.
fn with(data: &Value, odd: &str) -> String {
    data.to_string().replace("\"\u{1}MARK\"", odd).replace("\"\\u0001MARK\"", odd)
}

const MARK: &str = "\u{1}MARK";

/// An answer and a client that gets it.
struct Bench {
    client: Client,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Bench {
    async fn start() -> Self {
        let answer = Arc::new(Mutex::new(Vec::new()));
        let given = Arc::clone(&answer);
        let (_server, client) = pair(move |_, _| Answer::Keep(given.lock().unwrap().clone())).await;
        Self { client, answer }
    }

    /// How many entries of the answer were read and skipped; `None` when no method reads the path.
    async fn read(&self, given: &Given, data: &str) -> Option<Result<(usize, usize), proxmox_api::Error>> {
        *self.answer.lock().unwrap() = http("200 OK", &format!("{{\"data\":{data}}}"));
        call(&self.client, "GET", &given.path, given.pool.as_deref(), false).await
    }
}

/// Checks one answer in which one field of one entry is odd.
fn check(
    given: &Given,
    rows: usize,
    field: &str,
    data: &str,
    read: Result<(usize, usize), proxmox_api::Error>,
) {
    let told = || format!("{} with an odd `{field}`: {data}", given.path);
    let (read, skipped) = read.unwrap_or_else(|error| panic!("{}: {error}", told()));
    // The entry for the present state is not counted by name here.
    let slack = usize::from(given.path.ends_with("/snapshot"));
    assert!((read + skipped).abs_diff(rows) <= slack, "{read} and {skipped} of {rows}: {}", told());
    assert!(skipped <= 1, "{skipped} skipped: {}", told());
    if !identifies(field) {
        assert_eq!(skipped, 0, "{}", told());
    }
}

/// Makes every field odd in `ways` ways, other ones from field to field.
async fn every_field(all: Vec<Given>, ways: usize) -> usize {
    let bench = Bench::start().await;
    let mut tried = 0;
    for given in &all {
        if bench.read(given, &given.data.to_string()).await.is_none() {
            continue;
        }
        // A pool is a list of one, which has to be the one asked for.
        let Some(rows) = given.data.as_array().filter(|_| given.pool.is_none()) else { continue };
        for (index, row) in rows.iter().enumerate() {
            for field in row.as_object().unwrap().keys() {
                let mut odd = given.data.clone();
                odd[index][field] = Value::String(MARK.to_owned());
                let mut texts: Vec<String> =
                    ODD.iter().cycle().skip(tried).take(ways).map(|value| with(&odd, value)).collect();
                odd[index].as_object_mut().unwrap().remove(field);
                texts.push(odd.to_string());
                for data in texts {
                    tried += 1;
                    let read = bench.read(given, &data).await.unwrap();
                    check(given, rows.len(), field, &data, read);
                }
            }
            for odd in ODD.iter().filter(|odd| !odd.starts_with('{')) {
                let mut data = given.data.clone();
                data[index] = Value::String(MARK.to_owned());
                let (read, skipped) = bench.read(given, &with(&data, odd)).await.unwrap().unwrap();
                let slack = usize::from(given.path.ends_with("/snapshot"));
                assert!(
                    (read + skipped).abs_diff(rows.len()) <= slack && skipped == 1,
                    "{}: {odd}",
                    given.path
                );
            }
        }
    }
    tried
}

#[tokio::test]
async fn px_06_an_odd_field_never_loses_an_entry_of_any_list() {
    let tried = every_field(fixtures(), ODD.len()).await;
    assert!(tried > 2000, "{tried}");
}

#[tokio::test]
async fn px_06_an_odd_field_never_loses_an_entry_of_a_recorded_list() {
    let recordings = recordings();
    if recordings.is_empty() {
        return;
    }
    let tried = every_field(recordings, 3).await;
    println!("{tried} answers");
    assert!(tried > 2000, "{tried}");
}

#[tokio::test]
async fn px_06_an_odd_field_never_loses_an_object() {
    let bench = Bench::start().await;
    let mut tried = 0;
    for given in fixtures().into_iter().chain(recordings()) {
        let Some(object) = given.data.as_object() else { continue };
        if bench.read(&given, &given.data.to_string()).await.is_none() {
            continue;
        }
        for field in object.keys() {
            for value in ODD {
                let mut odd = given.data.clone();
                odd[field] = Value::String(MARK.to_owned());
                let data = with(&odd, value);
                tried += 1;
                let read = bench.read(&given, &data).await.unwrap();
                assert!(read.is_ok() || NEEDED.contains(&field.as_str()), "{}: {data}: {read:?}", given.path);
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

/// Several fields of several entries at once, as a broken version or a proxy would have it.
#[tokio::test]
async fn px_06_odd_fields_all_over_lose_nothing_else() {
    let bench = Bench::start().await;
    let all: Vec<Given> = fixtures().into_iter().filter(|given| given.data.is_array()).collect();
    let mut runner = TestRunner::deterministic();
    let places = proptest::collection::vec(
        (proptest::arbitrary::any::<(Index, Index)>(), proptest::sample::select(&ODD[..])),
        1..12,
    );
    for _ in 0..1500 {
        let given = &all
            [proptest::arbitrary::any::<Index>().new_tree(&mut runner).unwrap().current().index(all.len())];
        let rows = given.data.as_array().unwrap().len();
        let mut data = given.data.clone();
        let mut hit = std::collections::BTreeSet::new();
        let mut marks = Vec::new();
        for ((row, field), odd) in places.new_tree(&mut runner).unwrap().current() {
            let row = row.index(rows);
            let keys: Vec<String> = data[row].as_object().unwrap().keys().cloned().collect();
            let key = &keys[field.index(keys.len())];
            data[row][key] = Value::String(format!("MARK{}", marks.len()));
            marks.push(odd);
            if identifies(key) {
                hit.insert(row);
            }
        }
        let mut text = data.to_string();
        for (index, odd) in marks.iter().enumerate().rev() {
            text = text.replace(&format!("\"MARK{index}\""), odd);
        }
        let (read, skipped) = bench.read(given, &text).await.unwrap().unwrap();
        let slack = usize::from(given.path.ends_with("/snapshot"));
        assert!((read + skipped).abs_diff(rows) <= slack, "{}: {text}", given.path);
        assert!(skipped <= hit.len(), "{skipped} skipped: {}: {text}", given.path);
    }
}
