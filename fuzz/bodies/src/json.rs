//! JSON read the plain way, for comparison: nothing dropped, not even a key that stands twice.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// `None` where the bytes are no JSON text, or nested deeper than serde_json goes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Json> {
        serde_json::from_slice(bytes).ok()
    }

    /// Whether some object, at any depth, holds a key twice.
    pub(crate) fn repeats_a_key(&self) -> bool {
        match self {
            Json::Array(items) => items.iter().any(Json::repeats_a_key),
            Json::Object(members) => {
                let twice =
                    |(n, (key, _)): (usize, &(String, Json))| members[..n].iter().any(|(k, _)| k == key);
                members.iter().enumerate().any(twice)
                    || members.iter().any(|(_, value)| value.repeats_a_key())
            }
            _ => false,
        }
    }

    /// Whether it holds a number that is no 64-bit integer.
    pub(crate) fn has_a_fraction(&self) -> bool {
        match self {
            Json::Number(number) => number.is_f64(),
            Json::Array(items) => items.iter().any(Json::has_a_fraction),
            Json::Object(members) => members.iter().any(|(_, value)| value.has_a_fraction()),
            _ => false,
        }
    }

    /// The member of that name; `null` counts as not there.
    pub(crate) fn get(&self, name: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
            .filter(|value| **value != Json::Null)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The member of that name as a list of texts; `None` where it is anything else.
    pub(crate) fn texts(&self, name: &str) -> Option<Vec<&str>> {
        match self.get(name)? {
            Json::Array(items) => items.iter().map(Json::text).collect(),
            _ => None,
        }
    }

    /// Every text in it, keys included.
    pub(crate) fn all_texts<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Json::Text(text) => into.push(text),
            Json::Array(items) => items.iter().for_each(|item| item.all_texts(into)),
            Json::Object(members) => {
                for (key, value) in members {
                    into.push(key);
                    value.all_texts(into);
                }
            }
            _ => {}
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Plain)
    }
}

struct Plain;

impl<'de> Visitor<'de> for Plain {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(serde_json::Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element()? {
            array.push(item);
        }
        Ok(Json::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = entries.next_entry()? {
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}
