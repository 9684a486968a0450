//! The two names of a link: the secret token that redeems it and the public id that reads its outcome.
//!
//! They are drawn from separate entropy, so that nothing about the token can be learnt from the id.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::str::FromStr;

use data_encoding::{BASE32_NOPAD, BASE64URL_NOPAD};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The secret half of a link: 256 bits as 43 canonical base64url characters.
///
/// It exists in the answer to a mint and in the URL the client presents, nowhere else: the store keeps the
/// SHA-256 alone. There is no `Display`, no `Clone` and no comparison; `Debug` shows no character of it; the
/// text is wiped on drop.
pub struct LinkToken(Zeroizing<String>);

impl LinkToken {
    /// The length of the text, in characters (all of them ASCII).
    pub const LENGTH: usize = 43;

    /// The token made of 256 random bits.
    pub(crate) fn from_entropy(bits: &[u8; 32]) -> LinkToken {
        LinkToken(Zeroizing::new(BASE64URL_NOPAD.encode(bits)))
    }

    /// Takes a text in the one canonical spelling; `None` for anything else.
    ///
    /// Refused are other lengths, padding, the standard base64 alphabet, percent-encoding, and a last
    /// character whose unused bits are set (four spellings would otherwise redeem one link).
    #[must_use]
    pub fn parse(text: &str) -> Option<LinkToken> {
        decode(text)?;
        Some(LinkToken(Zeroizing::new(text.to_owned())))
    }

    /// The text itself, to be put into a URL and never into a log.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LinkToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkToken(..)")
    }
}

/// Decodes a presented text, or `None` where it is not canonical. The one place that judges a spelling.
fn decode(text: &str) -> Option<Zeroizing<[u8; 32]>> {
    if text.len() != LinkToken::LENGTH {
        return None;
    }
    let mut bits = Zeroizing::new([0_u8; 32]);
    // 43 characters decode to exactly 32 bytes; the decoder also refuses trailing bits that are not zero.
    BASE64URL_NOPAD.decode_mut(text.as_bytes(), bits.as_mut_slice()).ok()?;
    Some(bits)
}

/// The SHA-256 of a token's 256 bits: all that the store keeps of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenHash([u8; 32]);

impl Hash for TokenHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(first_half(&self.0));
    }
}

/// The first eight bytes of something random.
fn first_half(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk))
}

/// Hashes keys that are random already by taking eight bytes of them as they are. Whoever chooses keys could make them
/// collide, so it is for keys of the store alone: drawn from the system's random source, or SHA-256 of that.
#[derive(Default)]
pub(crate) struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        // Not called by the two keys that there are; right for any other.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map whose keys are hashed [`AsIs`].
pub(crate) type RandomKeyed<K, V> = HashMap<K, V, BuildHasherDefault<AsIs>>;

impl TokenHash {
    pub(crate) fn of_entropy(bits: &[u8; 32]) -> TokenHash {
        TokenHash(Sha256::digest(bits).into())
    }

    /// The hash of a presented text; a text that is not canonical is turned away unhashed.
    pub(crate) fn of_presented(text: &str) -> Option<TokenHash> {
        decode(text).map(|bits| TokenHash::of_entropy(&bits))
    }
}

/// The public half of a link: 128 random bits, shown as 26 lower-case base32 characters (RFC 4648 alphabet).
///
/// It may be logged and audited. It redeems nothing, and it reads the outcome only together with the owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId([u8; 16]);

impl Hash for LinkId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(first_half(&self.0));
    }
}

impl LinkId {
    /// The length of the text, in characters.
    pub const LENGTH: usize = 26;

    /// The id made of 128 random bits.
    #[must_use]
    pub fn from_entropy(bits: [u8; 16]) -> LinkId {
        LinkId(bits)
    }

    /// The 128 bits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&BASE32_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkId({self})")
    }
}

/// The text is not a link id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a link id: expected the 26 lower-case characters (a-z, 2-7) that the mint answered; copy link_id from there"
)]
pub struct NotALinkId;

impl FromStr for LinkId {
    type Err = NotALinkId;

    /// Takes the spelling that `Display` writes and no other.
    fn from_str(text: &str) -> Result<LinkId, NotALinkId> {
        if text.len() != LinkId::LENGTH || text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(NotALinkId);
        }
        let mut bits = [0_u8; 16];
        BASE32_NOPAD.decode_mut(text.to_ascii_uppercase().as_bytes(), &mut bits).map_err(|_| NotALinkId)?;
        Ok(LinkId(bits))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_43_characters_and_reads_back() {
        for byte in [0_u8, 1, 0x7f, 0xff] {
            let token = LinkToken::from_entropy(&[byte; 32]);
            assert_eq!(token.expose().len(), LinkToken::LENGTH);
            let parsed = LinkToken::parse(token.expose()).unwrap();
            assert_eq!(parsed.expose(), token.expose());
            assert!(TokenHash::of_presented(token.expose()) == Some(TokenHash::of_entropy(&[byte; 32])));
        }
    }

    /// The stored form is the plain SHA-256 of the 32 bytes (vector computed with `sha256sum`).
    #[test]
    fn the_hash_is_plain_sha_256() {
        let TokenHash(hash) = TokenHash::of_entropy(&[0; 32]);
        assert_eq!(
            data_encoding::HEXLOWER.encode(&hash),
            "66687aadf862bd776c8fc18b8e9f8e20089714856ee233b3902a591d0d5f2925"
        );
    }

    #[test]
    fn random_keys_are_hashed_by_their_first_bytes_and_others_by_all() {
        use std::hash::BuildHasher;

        let hasher = BuildHasherDefault::<AsIs>::default();
        let id = [[7; 8], [8; 8]].concat().try_into().unwrap();
        assert_eq!(hasher.hash_one(LinkId::from_entropy(id)), 0x0707_0707_0707_0707);
        assert_eq!(hasher.hash_one(TokenHash([9; 32])), 0x0909_0909_0909_0909);
        // The last two are longer than the state, so that their ends fall on their beginnings.
        let others =
            ["", "a", "b", "ab", "ba", "aa", "c.......a", "c.......c"].map(|text| hasher.hash_one(text));
        for (n, one) in others.iter().enumerate() {
            assert!(others.iter().skip(n + 1).all(|other| other != one), "{others:x?}");
        }
    }

    #[test]
    fn an_id_reads_back_and_has_one_spelling() {
        let id = LinkId::from_entropy([0xa5; 16]);
        let text = id.to_string();
        assert_eq!(text.len(), LinkId::LENGTH);
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(text.to_uppercase().parse::<LinkId>(), Err(NotALinkId));
        assert_eq!(format!("{text}=").parse::<LinkId>(), Err(NotALinkId));
        // The last character carries three bits; one of the other two set is another spelling of the same id.
        let zero = LinkId::from_entropy([0; 16]).to_string();
        assert_eq!(zero, "a".repeat(26));
        assert_eq!(format!("{}b", "a".repeat(25)).parse::<LinkId>(), Err(NotALinkId));
        assert_eq!("é".repeat(13).parse::<LinkId>(), Err(NotALinkId));
    }
}
