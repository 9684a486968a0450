//! Base64 with one spelling for every content (RFC 4648 §3.5, §4).

use data_encoding::BASE64;

/// Reads base64 with padding. `None` for anything that an encoder would not write: other characters, line ends, left-over bits,
/// and padding in the middle, which decoders take for two texts joined together.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let padded_inside = text.trim_end_matches('=').contains('=');
    if padded_inside { None } else { BASE64.decode(text.as_bytes()).ok() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_an_encoder_writes_is_read() {
        assert_eq!(decode("AAEC"), Some(vec![0, 1, 2]));
        assert_eq!(decode(""), Some(vec![]));
        for joined in
            ["AA==AAEC", "AAE=AAE=", "AAAAAAA=A7040737095184451515", "AA==\n", "AAE", "AB==", "=", "===="]
        {
            assert_eq!(decode(joined), None, "{joined:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_would_be_written(text in "[A-Za-z0-9+/=]{0,24}") {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(BASE64.encode(&bytes), text);
            }
        }
    }
}
