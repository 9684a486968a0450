//! Which part of a list is wanted, and of it which columns. Every list takes these arguments, and takes them here.

use serde_json::{Map, Value, json};

use crate::catalog::Arguments;
use crate::stack::ToolFailure;

/// Items a page holds when the caller does not say.
pub const DEFAULT_LIMIT: u64 = 500;
/// Most items a page may hold; more is refused, so that nobody takes a clamped page for the whole.
pub const MAX_LIMIT: u64 = 700;

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paging {
    /// Index of the first item.
    pub offset: u64,
    /// Largest number of items.
    pub limit: u64,
    /// Columns to keep; all where `None`.
    pub fields: Option<Vec<String>>,
}

impl Paging {
    /// Takes the paging arguments out of a call's arguments, which were checked against [`Paging::properties`].
    ///
    /// # Errors
    /// A limit that is out of range, or an argument of another type.
    pub fn take(arguments: &mut Arguments, default: u64) -> Result<Self, ToolFailure> {
        let offset = match arguments.remove("offset") {
            None => 0,
            Some(value) => value.as_u64().ok_or_else(|| refused("offset", "a whole number from 0 on"))?,
        };
        let limit = match arguments.remove("limit") {
            None => default,
            Some(value) => {
                value.as_u64().filter(|limit| (1..=MAX_LIMIT).contains(limit)).ok_or_else(limit_refused)?
            }
        };
        let fields = match arguments.remove("fields") {
            None => None,
            Some(value) => {
                Some(serde_json::from_value(value).map_err(|_| refused("fields", "a list of column names"))?)
            }
        };
        Ok(Self { offset, limit, fields })
    }

    /// The part that these arguments ask for.
    ///
    /// # Errors
    /// A limit that is out of range.
    pub fn of(
        offset: Option<u64>,
        limit: Option<u64>,
        fields: Option<Vec<String>>,
    ) -> Result<Self, ToolFailure> {
        let limit = limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(limit_refused());
        }
        Ok(Self { offset: offset.unwrap_or(0), limit, fields })
    }

    /// The schema of the paging arguments.
    pub fn properties(default: u64) -> Map<String, Value> {
        let mut out = Map::new();
        let mut put = |name: &str, schema: Value| out.insert(name.to_owned(), schema);
        put("offset", json!({"type": "integer", "minimum": 0, "description": "Index of the first item."}));
        put(
            "limit",
            json!({"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "description": format!("Most items to return; default {default}.")}),
        );
        put(
            "fields",
            json!({"type": "array", "items": {"type": "string"}, "description": "Columns to keep; all when omitted."}),
        );
        out
    }
}

fn limit_refused() -> ToolFailure {
    refused("limit", &format!("1 to {MAX_LIMIT}; for more, ask for the next page by `offset`"))
}

fn refused(name: &'static str, expected: &str) -> ToolFailure {
    ToolFailure::new("invalid_argument", format!("`{name}` is out of range: expected {expected}"))
        .with("field", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(arguments: Value) -> Result<Paging, ToolFailure> {
        let Value::Object(mut arguments) = arguments else { unreachable!("a test's own object") };
        let taken = Paging::take(&mut arguments, DEFAULT_LIMIT)?;
        assert_eq!(Value::Object(arguments), json!({"cluster": "alpha"}));
        Ok(taken)
    }

    #[test]
    fn a_limit_above_the_maximum_is_refused_not_clamped() {
        for limit in [0, MAX_LIMIT + 1, u64::MAX] {
            assert_eq!(
                take(json!({"cluster": "alpha", "limit": limit})).unwrap_err().code(),
                "invalid_argument"
            );
        }
        let most =
            take(json!({"cluster": "alpha", "limit": MAX_LIMIT, "offset": 7, "fields": ["vmid"]})).unwrap();
        assert_eq!(most, Paging { offset: 7, limit: MAX_LIMIT, fields: Some(vec!["vmid".to_owned()]) });
        assert_eq!(take(json!({"cluster": "alpha"})).unwrap().limit, DEFAULT_LIMIT);
    }
}
