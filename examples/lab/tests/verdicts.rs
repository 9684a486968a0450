//! The lab judges recorded parameters as PVE did: the same ones are accepted, and the refused ones are refused with
//! the same words.
//!
//! What differs is listed with its reason in `tests/data/verdict-differences.json`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use lab::{Lab, LabCluster};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Verdict {
    method: String,
    path: String,
    params: Value,
    ok: bool,
    status: u16,
    errors: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Known {
    request: String,
    why: String,
}

#[tokio::test]
async fn recorded_parameters_get_the_same_verdicts() {
    let (Some(cluster), Some(verdicts)) =
        (common::shared("pve-exchange-cluster.json"), common::shared("pve-9.2-parameter-verdicts.jsonl"))
    else {
        return;
    };
    let lab = Lab::start(common::exchange::lab_config(&cluster)).await.unwrap();
    let alpha = lab.cluster("alpha");
    let mut found = BTreeMap::new();
    let mut compared = 0;
    for line in verdicts.lines() {
        let verdict: Verdict = serde_json::from_str(line).unwrap();
        let Some(query) =
            query(&verdict.params).filter(|_| lab::facts::has_endpoint(&verdict.method, &verdict.path))
        else {
            continue;
        };
        compared += 1;
        if let Some(difference) = judge(&alpha, &verdict, &query).await {
            found.insert(format!("{} {} {query}", verdict.method, verdict.path), difference);
        }
        alpha.idle().await;
    }
    assert!(compared > 200, "only {compared} verdicts concern the lab");
    let known: Vec<Known> = serde_json::from_str(include_str!("data/verdict-differences.json")).unwrap();
    assert!(known.iter().all(|known| !known.why.is_empty()));
    let known: BTreeSet<String> = known.into_iter().map(|known| known.request).collect();
    let new: Vec<_> = found.iter().filter(|(request, _)| !known.contains(*request)).collect();
    let gone: Vec<_> = known.iter().filter(|request| !found.contains_key(*request)).collect();
    assert!(new.is_empty() && gone.is_empty(), "not listed: {new:#?}\nlisted and gone: {gone:#?}");
}

/// The parameters as a form; `None` for those that are no plain text.
fn query(params: &Value) -> Option<String> {
    let encode = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let pairs: Option<Vec<String>> = params
        .as_object()?
        .iter()
        .map(|(key, value)| Some(format!("{}={}", encode(key), encode(value.as_str()?))))
        .collect();
    pairs.map(|pairs| pairs.join("&"))
}

/// How the lab's verdict differs, if it does. The verdicts are about the schema alone: a call that passed it may
/// still fail for another reason, only not as a wrong parameter.
async fn judge(alpha: &LabCluster, verdict: &Verdict, query: &str) -> Option<String> {
    let (path, body) = match verdict.method.as_str() {
        "GET" | "DELETE" if !query.is_empty() => (format!("{}?{query}", verdict.path), ""),
        _ => (verdict.path.clone(), query),
    };
    let got = common::call(alpha, &verdict.method, &path, body).await;
    let refused = got.status == 400 && got.reason == "Parameter verification failed.";
    if verdict.ok {
        // A parameter that only root may use passes the schema.
        return (refused && !got.text.contains("Only root")).then(|| got.text.clone());
    }
    if got.status != verdict.status {
        return Some(format!("answered {} {}", got.status, got.reason));
    }
    let errors: Option<BTreeMap<String, String>> =
        serde_json::from_value(got.json()["errors"].clone()).unwrap();
    (errors != verdict.errors).then(|| format!("{errors:?} and not {:?}", verdict.errors))
}
