//! The text of a bearer token: `pxw_<id>_<secret>_<checksum>`.
//!
//! `<id>` is 10 characters of `[a-z2-7]` and public, `<secret>` is 32 random bytes in 43 characters of
//! unpadded base64url, `<checksum>` is CRC-32 (IEEE) of everything before the last `_` in 8 lower-case hex
//! digits. The secret's alphabet holds `_`, so the parts are told apart by position.

use std::fmt;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use zeroize::Zeroizing;

/// Length of a whole token.
pub(crate) const TOKEN_LEN: usize = 67;
/// Length of a bare secret, as tokens of other servers are.
pub(crate) const BARE_LEN: usize = 43;
const ID_LEN: usize = 10;
const ID_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Why a bearer was refused. To the caller all of them are one answer; the difference is for the audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("the bearer token is not valid: present a token this server has minted and that has not expired")]
pub enum TokenRefusal {
    /// Wrong length, alphabet or form.
    Malformed,
    /// The checksum does not match: a damaged copy or a guess.
    BadChecksum,
    /// No entry matches.
    Unknown,
    /// The id is known, the secret is not its own.
    WrongSecret,
    /// The entry has run out.
    Expired,
}

impl TokenRefusal {
    /// The stable word for audit records. Not for the caller.
    pub const fn code(self) -> &'static str {
        match self {
            TokenRefusal::Malformed => "malformed",
            TokenRefusal::BadChecksum => "bad_checksum",
            TokenRefusal::Unknown => "unknown",
            TokenRefusal::WrongSecret => "wrong_secret",
            TokenRefusal::Expired => "expired",
        }
    }
}

/// The form of a presented bearer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form<'b> {
    /// A token with this id and a checksum that fits.
    Full(&'b str),
    /// 43 characters of base64url and nothing else.
    Bare,
}

/// Judges the form of a bearer; costs no hashing beyond the checksum.
pub(crate) fn parse(bearer: &str) -> Result<Form<'_>, TokenRefusal> {
    match bearer.len() {
        BARE_LEN if is_secret(bearer) => Ok(Form::Bare),
        TOKEN_LEN => parse_full(bearer).ok_or(TokenRefusal::Malformed)?,
        _ => Err(TokenRefusal::Malformed),
    }
}

fn parse_full(bearer: &str) -> Option<Result<Form<'_>, TokenRefusal>> {
    let rest = bearer.strip_prefix("pxw_")?;
    let (id, rest) = rest.split_at_checked(ID_LEN)?;
    let (secret, rest) = rest.strip_prefix('_')?.split_at_checked(BARE_LEN)?;
    let checksum = rest.strip_prefix('_')?;
    let covered = bearer.get(..bearer.len().checked_sub(checksum.len())?.checked_sub(1)?)?;
    if !is_id(id) || !is_secret(secret) || !checksum.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let sum = checksum_of(covered);
    Some(match sum.as_slice() == checksum.as_bytes() {
        true => Ok(Form::Full(id)),
        false => Err(TokenRefusal::BadChecksum),
    })
}

/// Whether `text` is a token id.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == ID_LEN && text.bytes().all(|b| ID_ALPHABET.contains(&b))
}

/// Whether `text` is the one spelling of 32 bytes in unpadded base64url.
fn is_secret(text: &str) -> bool {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    text.len() == BARE_LEN
        && BASE64URL_NOPAD.decode_mut(text.as_bytes(), bytes.as_mut_slice()).is_ok_and(|len| len == 32)
}

/// The checksum's eight hex digits.
fn checksum_of(text: &str) -> [u8; 8] {
    let mut digits = [b'0'; 8];
    HEXLOWER.encode_mut(&crc32(text.as_bytes()).to_be_bytes(), &mut digits);
    digits
}

/// CRC-32 as in IEEE 802.3, reflected.
fn crc32(bytes: &[u8]) -> u32 {
    let crc = bytes.iter().fold(u32::MAX, |crc, byte| {
        let [low, ..] = (crc ^ u32::from(*byte)).to_le_bytes();
        (crc >> 8) ^ CRC_TABLE.get(usize::from(low)).copied().unwrap_or_default()
    });
    !crc
}

/// The remainders of all bytes. Every presented token pays for this sum before anything else is known of it.
static CRC_TABLE: [u32; 256] = crc_table();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    reason = "runs in the compiler only, where a panic is an error"
)]
const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0xedb8_8320 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// A new token. The text is shown once and kept nowhere.
pub struct MintedToken {
    /// The whole token; wiped when dropped.
    pub text: Zeroizing<String>,
    /// Its public id, to be written into the entry.
    pub id: String,
}

impl fmt::Debug for MintedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MintedToken").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Makes a token out of randomness the caller drew from the operating system.
pub fn mint_token(entropy: [u8; 32], id_entropy: [u8; 10]) -> MintedToken {
    let entropy = Zeroizing::new(entropy);
    let id: String = id_entropy
        .iter()
        .filter_map(|byte| ID_ALPHABET.get(usize::from(byte & 31)))
        .map(|letter| char::from(*letter))
        .collect();
    let secret = Zeroizing::new(BASE64URL_NOPAD.encode(entropy.as_slice()));
    // Room for everything at once, so that no half-built copy is left behind by a reallocation.
    let mut text = Zeroizing::new(String::with_capacity(TOKEN_LEN));
    for part in ["pxw_", &id, "_", &secret] {
        text.push_str(part);
    }
    let checksum = checksum_of(&text);
    text.push('_');
    text.extend(checksum.map(char::from));
    MintedToken { text, id }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn crc_32_is_the_ieee_one() {
        assert_eq!(crc32(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b"The quick brown fox jumps over the lazy dog"), 0x414f_a339);
    }

    #[test]
    fn a_minted_token_has_its_documented_form() {
        let minted = mint_token([0xff; 32], [0, 1, 25, 26, 31, 32, 63, 64, 255, 2]);
        assert_eq!(minted.id, "abz27a7a7c");
        assert_eq!(minted.text.len(), TOKEN_LEN);
        assert!(minted.text.starts_with("pxw_abz27a7a7c___________"), "{}", *minted.text);
        assert_eq!(parse(&minted.text), Ok(Form::Full("abz27a7a7c")));
        assert_eq!(format!("{minted:?}"), "MintedToken { id: \"abz27a7a7c\", .. }");
    }

    #[test]
    fn tk_03_every_other_spelling_is_malformed_or_fails_its_checksum() {
        let minted = mint_token([7; 32], [3; 10]);
        let good = minted.text.as_str();
        let (body, sum) = good.rsplit_once('_').unwrap();
        for bad in [
            String::new(),
            "pxw_".into(),
            format!("{good} "),
            format!(" {good}"),
            format!("{good}_x"),
            format!("{good}_{sum}"),
            good.to_uppercase(),
            format!("{body}_{}", sum.to_uppercase().replace(|c: char| c.is_ascii_digit(), "A")),
            good.replacen("pxw", "pxv", 1),
            good.replacen("pxw_d", "pxw_1", 1),
            good.replacen("pxw_dddddddddd_", "pxw_ddddddddd__", 1),
            "ü".repeat(33) + "a",
            "\u{1f600}".repeat(16) + "abc",
            "a".repeat(64 * 1024),
            good.replacen('_', "\u{5f}\u{200b}", 1),
        ] {
            assert_eq!(parse(&bad), Err(TokenRefusal::Malformed), "{bad:?}");
        }
        assert_eq!(parse(&format!("{body}_00000000")), Err(TokenRefusal::BadChecksum));
        // The last secret character carries two bits that must be zero.
        let odd = good.get(15..58).unwrap().replace('c', "d");
        assert_eq!(odd.len(), BARE_LEN);
        assert_eq!(parse(&odd).is_ok(), is_secret(&odd));
    }

    #[test]
    fn a_bare_secret_has_one_spelling() {
        let bare = BASE64URL_NOPAD.encode(&[7; 32]);
        assert_eq!(parse(&bare), Ok(Form::Bare));
        let last = bare.chars().next_back().unwrap();
        let next = char::from_u32(u32::from(last) + 1).unwrap();
        assert_eq!(parse(&(bare[..42].to_owned() + &next.to_string())), Err(TokenRefusal::Malformed));
        assert_eq!(parse(&bare[..42]), Err(TokenRefusal::Malformed));
        assert_eq!(parse(&(bare[..42].to_owned() + "=")), Err(TokenRefusal::Malformed));
        assert_eq!(parse(&(bare[..42].to_owned() + "+")), Err(TokenRefusal::Malformed));
    }

    #[test]
    fn every_refusal_has_a_word_of_its_own_for_audits_and_reads_the_same() {
        let all = [
            (TokenRefusal::Malformed, "malformed"),
            (TokenRefusal::BadChecksum, "bad_checksum"),
            (TokenRefusal::Unknown, "unknown"),
            (TokenRefusal::WrongSecret, "wrong_secret"),
            (TokenRefusal::Expired, "expired"),
        ];
        for (refusal, word) in all {
            assert_eq!(refusal.code(), word);
            assert_eq!(refusal.to_string(), TokenRefusal::Unknown.to_string());
        }
    }

    proptest! {
        #[test]
        fn every_minted_token_reads_back(entropy: [u8; 32], id: [u8; 10]) {
            let minted = mint_token(entropy, id);
            prop_assert_eq!(parse(&minted.text), Ok(Form::Full(&minted.id)));
        }

        #[test]
        fn tk_03_one_changed_byte_never_passes(entropy: [u8; 32], id: [u8; 10], at in 0..TOKEN_LEN, with in 0x20..0x7fu8) {
            let minted = mint_token(entropy, id);
            let mut bytes = minted.text.as_bytes().to_vec();
            prop_assume!(bytes[at] != with);
            bytes[at] = with;
            prop_assert!(parse(std::str::from_utf8(&bytes).unwrap()).is_err());
        }

        #[test]
        fn tk_03_no_text_panics(text in "\\PC{0,80}") {
            let _ = parse(&text);
        }
    }
}
