use std::{borrow::Cow, fmt};

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Field, Listing, flag, float, integer};
use crate::ids::Tags;

/// A JSON object as PVE sent it.
pub type JsonMap = serde_json::Map<String, serde_json::Value>;

/// Fields an object may have; PVE's largest, a guest's configuration with all its indexed keys, has some hundreds.
const FIELDS_CAP: usize = 10_000;

/// A JSON object whose fields are read one by one, so that one odd field never costs the record. Of a repeated key
/// the last one counts, as in Perl.
pub(crate) struct Record<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

/// A JSON value that is not an object or an array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    /// The digits as they came: no width is lost by reading them.
    Number(String),
    Text(String),
    /// An object, an array, or a string that is no Unicode text.
    Other,
}

impl Scalar {
    pub(crate) fn read(raw: &RawValue) -> Self {
        Self::of(raw.get())
    }

    /// Reads the text of one JSON value.
    pub(crate) fn of(text: &str) -> Self {
        match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str(text).map_or(Self::Other, Self::Text),
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'n') => Self::Null,
            Some(b'-' | b'0'..=b'9') => Self::Number(text.to_owned()),
            _ => Self::Other,
        }
    }

    /// The value as PVE would print it into a configuration file; `None` for null, objects and arrays.
    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text),
            Self::Bool(value) => Some(if value { "1" } else { "0" }.to_owned()),
            Self::Null | Self::Other => None,
        }
    }
}

impl<'a> Record<'a> {
    /// Reads the object; `None` when the value is something else.
    pub(crate) fn parse(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    pub(crate) fn raw(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, raw)| *raw)
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    pub(crate) fn scalar(&self, key: &str) -> Field<Scalar> {
        self.raw(key).map_or(Field::Absent, |raw| Field::Value(Scalar::read(raw)))
    }

    /// A text; numbers and booleans are spelt out.
    pub(crate) fn text(&self, key: &str) -> Field<String> {
        self.scalar(key).and_then(Scalar::into_text)
    }

    /// A text that is there and not empty.
    pub(crate) fn filled(&self, key: &str) -> Option<String> {
        self.text(key).value().filter(|text| !text.is_empty()).cloned()
    }

    pub(crate) fn flag(&self, key: &str) -> Field<bool> {
        self.scalar(key).and_then(|value| flag(&value))
    }

    pub(crate) fn tags(&self, key: &str) -> Field<Tags> {
        self.text(key).and_then(|text| Some(Tags::parse(&text)))
    }

    pub(crate) fn integer(&self, key: &str) -> Option<u64> {
        self.scalar(key).value().and_then(integer)
    }

    /// A whole number that may be negative.
    pub(crate) fn signed(&self, key: &str) -> Option<i64> {
        self.filled(key)?.trim().parse().ok()
    }

    pub(crate) fn float(&self, key: &str) -> Option<f64> {
        self.scalar(key).value().and_then(float)
    }

    /// A text that parses as `T`; anything else counts as not there.
    pub(crate) fn id<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.text(key).value()?.parse().ok()
    }

    pub(crate) fn record(&self, key: &str) -> Option<Record<'a>> {
        Record::parse(self.raw(key)?)
    }

    /// The readable numbers of a list; none when there is no list.
    pub(crate) fn floats(&self, key: &str) -> Vec<f64> {
        let list = self.raw(key).and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        list.unwrap_or_default().into_iter().filter_map(|raw| float(&Scalar::read(raw))).collect()
    }

    /// The texts of a list, or of one text that PVE separates by `,`, `;` or white space.
    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        if let Some(text) = self.filled(key) {
            let parts = text.split(|c: char| matches!(c, ',' | ';' | '\0') || c.is_whitespace());
            return parts.filter(|part| !part.is_empty()).map(str::to_owned).collect();
        }
        let list = self.raw(key).and_then(|raw| serde_json::from_str::<Vec<&RawValue>>(raw.get()).ok());
        list.unwrap_or_default().into_iter().filter_map(|raw| Scalar::read(raw).into_text()).collect()
    }

    /// A list of objects within the object, read entry by entry; an empty one when it is not there.
    pub(crate) fn listing<T>(
        &self,
        key: &str,
        row: impl FnMut(&Record<'_>) -> Option<T>,
    ) -> Option<Listing<T>> {
        match self.raw(key) {
            None => Some(Listing::default()),
            Some(raw) if raw.get() == "null" => Some(Listing::default()),
            Some(raw) => Listing::read(raw, row).ok(),
        }
    }

    /// The whole object, for passing on. A value that JSON can spell and this crate's JSON type cannot hold (a
    /// number beyond all bounds, nesting beyond 128) is there as its own JSON text.
    pub(crate) fn json(&self) -> JsonMap {
        let value = |raw: &RawValue| {
            serde_json::from_str(raw.get())
                .unwrap_or_else(|_| serde_json::Value::String(raw.get().to_owned()))
        };
        self.0.iter().map(|(key, raw)| (key.clone().into_owned(), value(raw))).collect()
    }
}

impl<'de> Deserialize<'de> for Record<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Record<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Key(name), raw)) = map.next_entry()? {
                    if fields.len() == FIELDS_CAP {
                        return Err(serde::de::Error::custom(format!("more than {FIELDS_CAP} fields")));
                    }
                    fields.push((name, raw));
                }
                Ok(Record(fields))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }

        deserializer.deserialize_str(Text)
    }
}
