//! Reading of request headers: the three routing headers, `Content-Type`, `Accept`.

use http::{HeaderMap, HeaderName, header};

use crate::ladder::{Field, RoutingHeaders};

/// What a client lets us answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepts {
    /// JSON, or a stream when there is something to stream.
    Either,
    /// JSON only; also what is assumed of a client that names neither.
    Json,
    /// A stream only.
    Sse,
}

pub(super) fn routing(headers: &HeaderMap) -> RoutingHeaders<'_> {
    RoutingHeaders {
        protocol_version: field(headers, &HeaderName::from_static("mcp-protocol-version")),
        method: field(headers, &HeaderName::from_static("mcp-method")),
        name: field(headers, &HeaderName::from_static("mcp-name")),
    }
}

pub(super) fn field<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Field<'a> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Field::Absent,
        (Some(_), Some(_)) => Field::Repeated,
        (Some(value), None) => value.to_str().map_or(Field::Unreadable, Field::One),
    }
}

/// Whether the body is declared as JSON in UTF-8, uncompressed. Insisting on it also keeps browsers from
/// posting across origins without asking first.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let (Some(Ok(text)), None) = (types.next().map(http::HeaderValue::to_str), types.next()) else {
        return false;
    };
    let mut parts = text.split(';').map(str::trim);
    let essence = parts.next().is_some_and(|e| e.eq_ignore_ascii_case("application/json"));
    let utf8 = parts.filter_map(|p| p.split_once('=')).all(|(key, value)| {
        !key.trim().eq_ignore_ascii_case("charset")
            || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
    });
    let plain = headers
        .get_all(header::CONTENT_ENCODING)
        .iter()
        .all(|v| v.as_bytes().eq_ignore_ascii_case(b"identity"));
    essence && utf8 && plain
}

/// Reads `Accept`; `None` when neither form will do.
pub(super) fn accepts(headers: &HeaderMap) -> Option<Accepts> {
    // The most specific range that matches decides, whatever the order.
    let (mut json, mut sse): ((u8, bool), (u8, bool)) = ((0, false), (0, false));
    let mut named = false;
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|r| !r.is_empty()) {
            named = true;
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let refused = parts.filter_map(|p| p.split_once('=')).any(|(key, weight)| {
                key.trim().eq_ignore_ascii_case("q") && weight.trim().parse::<f32>().is_ok_and(|q| q <= 0.0)
            });
            let note = |slot: &mut (u8, bool), rank: u8| {
                if rank >= slot.0 {
                    *slot = (rank, !refused);
                }
            };
            match media.as_str() {
                "application/json" => note(&mut json, 3),
                "text/event-stream" => note(&mut sse, 3),
                "application/*" => note(&mut json, 2),
                "text/*" => note(&mut sse, 2),
                // A wildcard is no wish for a stream.
                "*/*" => note(&mut json, 1),
                _ => {}
            }
        }
    }
    let explicit_sse = sse.1 && sse.0 >= 2;
    match (json.1 || !named, explicit_sse) {
        (true, true) => Some(Accepts::Either),
        (true, false) => Some(Accepts::Json),
        (false, true) => Some(Accepts::Sse),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn with(name: HeaderName, values: &[&'static str]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for value in values {
            map.append(name.clone(), HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn accept_is_lenient() {
        let cases: [(&[&'static str], Option<Accepts>); 12] = [
            (&[], Some(Accepts::Json)),
            (&["*/*"], Some(Accepts::Json)),
            (&["application/json"], Some(Accepts::Json)),
            (&["application/*"], Some(Accepts::Json)),
            (&["text/event-stream"], Some(Accepts::Sse)),
            (&["application/json, text/event-stream"], Some(Accepts::Either)),
            (&["text/event-stream", "Application/JSON;q=0.5"], Some(Accepts::Either)),
            (&["application/json, text/event-stream;q=0"], Some(Accepts::Json)),
            (&["*/*, application/json;q=0.0, text/event-stream"], Some(Accepts::Sse)),
            (&["text/html"], None),
            (&["application/json;q=0"], None),
            (&[""], Some(Accepts::Json)),
        ];
        for (values, expected) in cases {
            assert_eq!(accepts(&with(header::ACCEPT, values)), expected, "{values:?}");
        }
    }

    #[test]
    fn content_type_is_strict() {
        for fine in
            ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\""]
        {
            assert!(is_json(&with(header::CONTENT_TYPE, &[fine])), "{fine}");
        }
        for bad in ["text/plain", "application/json-patch+json", "application/json; charset=utf-16", ""] {
            assert!(!is_json(&with(header::CONTENT_TYPE, &[bad])), "{bad}");
        }
        assert!(!is_json(&HeaderMap::new()));
        assert!(!is_json(&with(header::CONTENT_TYPE, &["application/json", "application/json"])));
        let mut packed = with(header::CONTENT_TYPE, &["application/json"]);
        packed.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(!is_json(&packed));
    }
}
