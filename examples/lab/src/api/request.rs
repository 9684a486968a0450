//! What a request asks, before it is checked: path, parameters, credentials.

use std::collections::BTreeMap;

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::api::reply::Refusal;

/// The value of a parameter as it came.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Raw {
    /// Text of a form or a query, or a string or number of JSON.
    Text(String),
    /// A boolean of JSON.
    Bool(bool),
    /// A repeated key or an array of JSON.
    Many(Vec<String>),
    /// An object of JSON.
    Object,
}

impl Raw {
    /// For the record of requests.
    pub(crate) fn display(&self) -> String {
        match self {
            Raw::Text(text) => text.clone(),
            Raw::Bool(value) => value.to_string(),
            Raw::Many(values) => values.join(","),
            Raw::Object => "{…}".to_owned(),
        }
    }
}

/// Parameters by name.
pub(crate) type Parameters = BTreeMap<String, Raw>;

/// The path below `/api2/json`, decoded; `None` for anything else.
pub(crate) fn api_path(raw: &str) -> Option<String> {
    let decoded = percent_decode_str(raw).decode_utf8().ok()?;
    let path = decoded.strip_prefix("/api2/json")?;
    let trimmed = path.trim_end_matches('/');
    (path.is_empty() || path.starts_with('/')).then(|| trimmed.to_owned())
}

/// Splits a query or a form as PVE does: at `&` and at `;`, and each part at its `=` signs, of which the second
/// cuts the value.
pub(crate) fn form(text: &str) -> Parameters {
    let mut parameters = Parameters::new();
    for item in text.split(['&', ';']).filter(|item| !item.is_empty()) {
        let mut pieces = item.split('=');
        let name = decode(pieces.next().unwrap_or_default());
        let value = decode(pieces.next().unwrap_or_default());
        let merged = match parameters.remove(&name) {
            None => Raw::Text(value),
            Some(Raw::Many(mut values)) => {
                values.push(value);
                Raw::Many(values)
            }
            Some(earlier) => Raw::Many(vec![earlier.display(), value]),
        };
        parameters.insert(name, merged);
    }
    parameters
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Reads a body by its content type.
pub(crate) fn body(headers: &HeaderMap, body: &[u8]) -> Result<Parameters, Refusal> {
    if body.is_empty() {
        return Ok(Parameters::new());
    }
    let full = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match full.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "" | "application/x-www-form-urlencoded" => Ok(form(&String::from_utf8_lossy(body))),
        "application/json" => json(body),
        other => Err(Refusal::Bare(506, format!("upload 'Content-Type '{other}' not implemented"))),
    }
}

fn json(body: &[u8]) -> Result<Parameters, Refusal> {
    let malformed = || Refusal::Bare(500, "malformed JSON string".to_owned());
    let Value::Object(object) = serde_json::from_slice(body).map_err(|_| malformed())? else {
        return Err(malformed());
    };
    Ok(of_json(&object))
}

/// The parameters of a JSON object; null is as good as absent.
pub(crate) fn of_json(object: &serde_json::Map<String, Value>) -> Parameters {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let parameters = object.iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let raw = match value {
            Value::Bool(value) => Raw::Bool(*value),
            Value::Array(values) => Raw::Many(values.iter().map(text).collect()),
            Value::Object(_) => Raw::Object,
            other => Raw::Text(text(other)),
        };
        (name.clone(), raw)
    });
    parameters.collect()
}

/// The token id and secret of `Authorization: PVEAPIToken=USER@REALM!ID=UUID`; everything up to a `;`.
pub(crate) fn token(headers: &HeaderMap) -> Option<(String, String)> {
    let header = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let start = header
        .find("PVEAPIToken")
        .filter(|at| *at == 0 || header.as_bytes().get(at - 1).is_some_and(u8::is_ascii_whitespace))?;
    let rest = header[start..].strip_prefix("PVEAPIToken")?;
    let rest = rest.strip_prefix(['=', ' '])?;
    let value = percent_decode_str(rest.split(';').next()?).decode_utf8().ok()?;
    let (id, secret) = value.rsplit_once('=')?;
    Some((id.to_owned(), secret.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_splits_and_a_second_equals_sign_cuts() {
        let parameters = form("tags=a;b&net0=virtio=AA&x=%3B%3D+");
        assert_eq!(parameters["tags"], Raw::Text("a".into()));
        assert_eq!(parameters["b"], Raw::Text(String::new()));
        assert_eq!(parameters["net0"], Raw::Text("virtio".into()));
        assert_eq!(parameters["x"], Raw::Text(";= ".into()));
    }

    #[test]
    fn a_token_is_read_after_either_separator_and_up_to_a_semicolon() {
        for header in ["PVEAPIToken=a@pve!t=s", "PVEAPIToken a@pve!t=s", "x PVEAPIToken=a@pve!t=s; y=z"] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]);
            assert_eq!(token(&headers), Some(("a@pve!t".into(), "s".into())), "{header}");
        }
    }
}
