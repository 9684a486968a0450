//! `transfers`: the headers of a tus client.

use transfers::tus::{self, Checksum, TusError};

/// The first byte says which header: even a number, odd a checksum.
pub fn tus_headers(data: &[u8]) {
    let Some((which, rest)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    if which % 2 == 0 { number(text) } else { checksum(text) }
}

/// A number has one spelling: what is read is what would be written.
fn number(text: &str) {
    match tus::number(text) {
        Ok(value) => assert_eq!(value.to_string(), text),
        Err(error) => {
            assert_eq!(error, TusError::Number);
            let spelt = text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
            let small = text.len() < 20 && (text == "0" || !text.starts_with('0'));
            assert!(!(spelt && small), "{text:?} is a number");
        }
    }
}

/// The same for a checksum, by a base64 of this file's own.
fn checksum(text: &str) {
    match tus::checksum(text) {
        Ok(Checksum::Sha1(sum)) => assert_eq!(text, format!("sha1 {}", base64(&sum))),
        Ok(Checksum::Sha256(sum)) => assert_eq!(text, format!("sha256 {}", base64(&sum))),
        Err(TusError::TooLong) => assert!(text.len() > 4096),
        Err(TusError::Algorithm) => {
            let algorithm = text.split(' ').next().unwrap_or_default();
            assert!(!matches!(algorithm, "sha1" | "sha256"), "{text:?}");
        }
        Err(TusError::Checksum) => {
            // Nothing that is well-formed is refused: the text's own bytes, taken for a digest, are read back.
            let mut sum = [0x5a; 32];
            for (to, from) in sum.iter_mut().zip(text.bytes()) {
                *to = from;
            }
            assert_eq!(tus::checksum(&format!("sha256 {}", base64(&sum))), Ok(Checksum::Sha256(sum)));
        }
        Err(other) => panic!("{other:?} of {text:?}"),
    }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let at = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}
