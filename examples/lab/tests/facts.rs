//! The committed facts are what PVE's API description says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

#[test]
fn the_committed_facts_are_those_of_the_api_description() {
    let Some(text) = common::shared("pve-9.2-api.json") else { return };
    let api = serde_json::from_str(&text).unwrap();
    let facts = lab::facts::project(&api).unwrap();
    assert!(
        lab::facts::render(&facts) == lab::facts::COMMITTED,
        "run the example api_facts and look at the difference"
    );
}
