//! `Content-Digest` and `Repr-Digest` (RFC 9530) of an upload: what the sender says its bytes hash to.

use http::{HeaderMap, HeaderName};

const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// A header value for a known hash.
pub(crate) fn header(sha256: &[u8; 32]) -> String {
    format!("sha-256=:{}:", data_encoding::BASE64.encode(sha256))
}

/// The SHA-256 that the headers declare. Other algorithms are ignored, as the RFC has it; without a content encoding both
/// headers speak of the same bytes, so they must agree.
///
/// # Errors
/// A text for the sender, where a header is malformed or the two differ.
pub(super) fn declared(headers: &HeaderMap) -> Result<Option<[u8; 32]>, String> {
    let mut found = None;
    for name in [CONTENT_DIGEST, REPR_DIGEST] {
        for value in headers.get_all(&name) {
            let text = value.to_str().map_err(|_| format!("{name} is not ASCII text"))?;
            for member in text.split(',') {
                let member = member.trim_matches([' ', '\t']);
                let Some(value) = member.strip_prefix("sha-256=") else {
                    if member.is_empty() || !member.contains('=') {
                        return Err(format!("{name} is malformed: expected sha-256=:<base64>:"));
                    }
                    continue;
                };
                let hash = parse(value)
                    .ok_or_else(|| format!("{name} is malformed: expected sha-256=:<base64 of 32 bytes>:"))?;
                if found.is_some_and(|earlier| earlier != hash) {
                    return Err("the digests that were declared differ from each other".to_owned());
                }
                found = Some(hash);
            }
        }
    }
    Ok(found)
}

/// A structured-field byte sequence of 32 bytes.
fn parse(value: &str) -> Option<[u8; 32]> {
    let base64 = value.strip_prefix(':')?.strip_suffix(':')?;
    transfers::base64::decode(base64)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        map
    }

    #[test]
    fn digests_are_read_strictly_and_must_agree() {
        let (one, two) = (header(&[1; 32]), header(&[2; 32]));
        let read = |lines: &[(&'static str, &str)]| declared(&headers(lines));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("content-digest", &one)]), Ok(Some([1; 32])));
        assert_eq!(read(&[("repr-digest", &format!("sha-512=:AA==:, {one}"))]), Ok(Some([1; 32])));
        assert_eq!(read(&[("content-digest", "md5=:AA==:")]), Ok(None));
        assert_eq!(read(&[("content-digest", &one), ("repr-digest", &one)]), Ok(Some([1; 32])));
        assert!(read(&[("content-digest", &one), ("repr-digest", &two)]).is_err());
        assert!(read(&[("content-digest", &one), ("content-digest", &two)]).is_err());
        for bad in ["sha-256=", "sha-256=:AA==:", "sha-256=AAAA", "sha-256", "", "sha-256=:%%:", "sha-256=::"]
        {
            assert!(read(&[("content-digest", bad)]).is_err(), "{bad:?}");
        }
    }
}
