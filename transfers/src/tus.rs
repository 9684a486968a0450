//! What a tus 1.0 client says in its headers, judged without a transport. <https://tus.io/protocols/resumable-upload>

/// The one version that is spoken.
pub const VERSION: &str = "1.0.0";
/// The extensions that an embedder of these functions can offer.
pub const EXTENSIONS: &str = "creation,expiration,checksum,termination";
/// The checksum algorithms, as `Tus-Checksum-Algorithm` names them.
pub const ALGORITHMS: &str = "sha1,sha256";
/// The media type of every `PATCH`.
pub const CONTENT_TYPE: &str = "application/offset+octet-stream";

/// Why a header is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TusError {
    /// Not a plain decimal number.
    #[error("expected a plain decimal number such as 1048576")]
    Number,
    /// Not `algorithm base64`.
    #[error("expected Upload-Checksum: sha1 or sha256, a space, and the digest in base64")]
    Checksum,
    /// An algorithm that is not offered.
    #[error("the checksum's algorithm is not offered; use sha1 or sha256")]
    Algorithm,
    /// The length is to be told later.
    #[error("Upload-Defer-Length is not offered; tell the length at once in Upload-Length")]
    Deferred,
    /// Longer than headers of this kind need to be.
    #[error("the header is longer than 4096 bytes")]
    TooLong,
}

/// Reads `Upload-Length` or `Upload-Offset`: canonical decimal, no sign, no leading zero.
///
/// # Errors
/// [`TusError::Number`].
pub fn number(text: &str) -> Result<u64, TusError> {
    let canonical = text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if !canonical || text.is_empty() {
        return Err(TusError::Number);
    }
    text.parse().map_err(|_| TusError::Number)
}

/// A checksum of one `PATCH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checksum {
    /// SHA-1, which the protocol requires; good against accidents only.
    Sha1([u8; 20]),
    /// SHA-256.
    Sha256([u8; 32]),
}

/// Reads `Upload-Checksum`.
///
/// # Errors
/// [`TusError::TooLong`], [`TusError::Checksum`], [`TusError::Algorithm`].
pub fn checksum(text: &str) -> Result<Checksum, TusError> {
    if text.len() > 4096 {
        return Err(TusError::TooLong);
    }
    let (algorithm, digest) = text.split_once(' ').ok_or(TusError::Checksum)?;
    let bytes = || crate::base64::decode(digest).ok_or(TusError::Checksum);
    match algorithm {
        "sha1" => bytes()?.try_into().map(Checksum::Sha1).map_err(|_| TusError::Checksum),
        "sha256" => bytes()?.try_into().map(Checksum::Sha256).map_err(|_| TusError::Checksum),
        _ => Err(TusError::Algorithm),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        assert_eq!(number("0"), Ok(0));
        assert_eq!(number("18446744073709551615"), Ok(u64::MAX));
        for bad in ["", "00", "01", "+1", "-1", " 1", "1 ", "1.0", "1e3", "0x1", "18446744073709551616", "١"]
        {
            assert_eq!(number(bad), Err(TusError::Number), "{bad:?}");
        }
    }

    #[test]
    fn checksums_are_read_strictly() {
        assert_eq!(checksum("sha1 AAAAAAAAAAAAAAAAAAAAAAAAAAA="), Ok(Checksum::Sha1([0; 20])));
        let sha256 = format!("sha256 {}", data_encoding::BASE64.encode(&[7; 32]));
        assert_eq!(checksum(&sha256), Ok(Checksum::Sha256([7; 32])));
        assert_eq!(checksum("md5 AAAA"), Err(TusError::Algorithm));
        for bad in [
            "",
            "sha1",
            "sha1 ",
            "sha1 AAAA",
            "sha1  AAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "sha256 AAAA",
            "sha1 %",
            "sha1 AAAAAAA=A7040737095184451515",
        ] {
            assert_eq!(checksum(bad), Err(TusError::Checksum), "{bad:?}");
        }
        assert_eq!(checksum(&"x".repeat(4096)), Err(TusError::Checksum), "the longest that is looked at");
        assert_eq!(checksum(&"x".repeat(4097)), Err(TusError::TooLong));
    }

    proptest! {
        #[test]
        fn whatever_a_header_holds_is_read_or_refused(text in "\\PC{0,80}") {
            if let Ok(value) = number(&text) {
                prop_assert_eq!(value.to_string(), text.clone());
            }
            let _judged = checksum(&text);
        }
    }
}
