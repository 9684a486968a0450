//! One pass over JSON text that says where its values are and makes nothing of them.
//!
//! `serde_json` turns a value into a type and gives the whole document up where one does not fit; here a field of the
//! wrong type is a stretch of text that its reader may find unreadable. What is JSON and what is not is the same for
//! both, which tests and a fuzz target compare. The depth is counted on the way.

use std::ops::Range;

use super::ENTRIES_CAP;

/// Objects and arrays an answer may have inside each other. PVE's deepest answers have about ten.
pub(crate) const DEPTH_CAP: u32 = 128;

/// Why a text was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScanError {
    /// Not JSON, from this byte on.
    #[error("the body is not JSON from byte {0} on")]
    Syntax(usize),
    /// More levels than [`DEPTH_CAP`].
    #[error("the body has more than {DEPTH_CAP} levels of lists and objects at byte {0}")]
    Depth(usize),
    /// A list of more than [`ENTRIES_CAP`] entries where a list of entries belongs.
    #[error("the list has more than {ENTRIES_CAP} entries")]
    Entries,
}

/// A position in JSON text.
#[derive(Debug)]
pub(crate) struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
}

type Scanned<T = ()> = Result<T, ScanError>;

impl<'a> Scan<'a> {
    /// At the start of a text.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0, depth: 0 }
    }

    /// Reads a whole text for nothing but whether it can be read.
    pub(crate) fn check(text: &'a str) -> Scanned {
        let mut scan = Self::new(text);
        scan.skip()?;
        scan.end()
    }

    /// Nothing but white space may be left.
    pub(crate) fn end(&mut self) -> Scanned {
        self.space();
        if self.at == self.bytes.len() { Ok(()) } else { self.syntax() }
    }

    /// The first byte of what comes next, white space passed over.
    pub(crate) fn peek(&mut self) -> Scanned<u8> {
        self.space();
        self.bytes.get(self.at).copied().ok_or(ScanError::Syntax(self.at))
    }

    /// Goes through an object. `field` is given the place of each key, quotes included, and must read its value.
    pub(crate) fn object(&mut self, mut field: impl FnMut(&mut Self, Range<usize>) -> Scanned) -> Scanned {
        self.open(b'{')?;
        if self.peek()? == b'}' {
            return self.close();
        }
        loop {
            self.space();
            let key = self.string()?;
            self.expect(b':')?;
            field(self, key)?;
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => return self.close(),
                _ => return self.syntax(),
            }
        }
    }

    /// Goes through an array. `item` must read one value each time.
    pub(crate) fn array(&mut self, mut item: impl FnMut(&mut Self) -> Scanned) -> Scanned {
        self.open(b'[')?;
        if self.peek()? == b']' {
            return self.close();
        }
        loop {
            item(self)?;
            match self.peek()? {
                b',' => self.at += 1,
                b']' => return self.close(),
                _ => return self.syntax(),
            }
        }
    }

    /// Passes over any value and says where it is.
    pub(crate) fn skip(&mut self) -> Scanned<Range<usize>> {
        let first = self.peek()?;
        let start = self.at;
        match first {
            b'"' => return self.string(),
            b'{' => self.object(|scan, _| scan.skip().map(drop))?,
            b'[' => self.array(|scan| scan.skip().map(drop))?,
            b't' => self.word(b"true")?,
            b'f' => self.word(b"false")?,
            b'n' => self.word(b"null")?,
            _ => self.number()?,
        }
        Ok(start..self.at)
    }

    fn syntax<T>(&self) -> Scanned<T> {
        Err(ScanError::Syntax(self.at))
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Scanned {
        if self.peek()? != byte {
            return self.syntax();
        }
        self.at += 1;
        Ok(())
    }

    fn open(&mut self, bracket: u8) -> Scanned {
        if self.depth == DEPTH_CAP {
            return Err(ScanError::Depth(self.at));
        }
        self.expect(bracket)?;
        self.depth += 1;
        Ok(())
    }

    fn close(&mut self) -> Scanned {
        self.at += 1;
        self.depth -= 1;
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Scanned {
        if !self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return self.syntax();
        }
        self.at += word.len();
        Ok(())
    }

    /// A string; the text is UTF-8 already, so only its end and its escapes matter.
    fn string(&mut self) -> Scanned<Range<usize>> {
        let start = self.at;
        if self.bytes.get(start) != Some(&b'"') {
            return self.syntax();
        }
        self.at += 1;
        loop {
            self.at += self.bytes.get(self.at..).map_or(0, plain);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(start..self.at);
                }
                Some(b'\\') => self.escape()?,
                Some(0..0x20) | None => return self.syntax(),
                Some(_) => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Scanned {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let digits = self.bytes.get(self.at + 2..self.at + 6);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return self.syntax();
                }
                self.at += 6;
            }
            _ => return self.syntax(),
        }
        Ok(())
    }

    fn number(&mut self) -> Scanned {
        self.at += usize::from(self.bytes.get(self.at) == Some(&b'-'));
        match self.bytes.get(self.at) {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
            self.at += usize::from(matches!(self.bytes.get(self.at), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Scanned {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        if self.at == start { self.syntax() } else { Ok(()) }
    }
}

/// How many bytes from the start on are neither quote, backslash nor control character, looked at eight at a time; where fewer
/// than eight are left it may say less.
fn plain(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    // The top bit of each byte that is less than `least`. Of bytes behind the first such one it may be wrong.
    let below = |word: u64, least: u8| word.wrapping_sub(ONES * u64::from(least)) & !word & TOPS;
    let is = |word: u64, byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    let mut passed = 0;
    for chunk in bytes.as_chunks::<8>().0 {
        let word = u64::from_le_bytes(*chunk);
        let odd = below(word, 0x20) | is(word, b'"') | is(word, b'\\');
        if odd != 0 {
            return passed + odd.trailing_zeros() as usize / 8;
        }
        passed += 8;
    }
    passed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    use super::*;

    /// The other opinion about what is JSON.
    fn is_json(text: &str) -> bool {
        serde_json::from_str::<&RawValue>(text).is_ok()
    }

    #[test]
    fn what_is_json_is_what_serde_json_takes() {
        for text in [
            "0",
            "-0",
            "10",
            "1.5",
            "1e5",
            "1E+5",
            "-1.25e-7",
            "1e400",
            "\"\"",
            "\"a\\\"b\\\\\"",
            "\"\\u00e9\"",
            "\"\\ud800\"",
            "true",
            "false",
            "null",
            "[]",
            "{}",
            "[ ]",
            "{ }",
            " [1 , 2]\n",
            "{\"a\":1,\"a\":[{}]}",
            "\"é\"",
            "\u{a0}1",
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "tru",
            "nul",
            "truefalse",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u12",
            "\"a\tb\"",
            "\"\u{7f}\"",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "{1:1}",
            "[",
            "{",
            "]",
            "}",
            "",
            " ",
            "[1]]",
            "[1]x",
            "NaN",
            "Infinity",
            "'a'",
            "{\"a\" : 1 }",
            "[[[]]]",
            "[}",
            "{]",
        ] {
            assert_eq!(Scan::check(text).is_ok(), is_json(text), "{text:?}");
        }
    }

    #[test]
    fn px_04_depth_is_capped_at_128_levels() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for levels in [127, 128] {
            assert_eq!(Scan::check(&nested(levels)), Ok(()), "{levels}");
        }
        assert_eq!(Scan::check(&nested(129)), Err(ScanError::Depth(128)));
        assert_eq!(Scan::check(&nested(100_000)), Err(ScanError::Depth(128)));
        let objects = format!("{}1{}", "{\"a\":".repeat(129), "}".repeat(129));
        assert_eq!(Scan::check(&objects), Err(ScanError::Depth(128 * 5)));
        // Levels beside each other are no depth, and brackets in a text are none either.
        assert_eq!(Scan::check(&format!("[{}1]", "[],".repeat(1000))), Ok(()));
        assert_eq!(Scan::check(&format!("\"{}\"", "[".repeat(1000))), Ok(()));
    }

    #[test]
    fn a_string_ends_where_it_ends_whatever_stands_around() {
        for length in 0..40 {
            for (odd, ok) in [
                ("\\n", true),
                ("\u{1f}", false),
                ("\0", false),
                ("\u{7f}", true),
                ("\u{80}é", true),
                ("!", true),
            ] {
                for at in 0..=length {
                    let text = format!("\"{}{odd}{}\"", "a".repeat(at), "z".repeat(length - at));
                    assert_eq!(Scan::check(&text).is_ok(), ok, "{text:?}");
                    assert_eq!(
                        Scan::new(&format!("{text}, \"next\"")).skip().ok(),
                        ok.then_some(0..text.len())
                    );
                    assert!(Scan::check(&text[..text.len() - 1]).is_err(), "{text:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_judged_as_serde_json_judges_it(text in "[\\[\\]{}\",:0-9eE+.\\\\a-fu tn\u{1}é-]{0,24}") {
            prop_assert_eq!(Scan::check(&text).is_ok(), is_json(&text));
        }

        #[test]
        fn a_value_is_where_it_was_put(before in "[ \n\t\r]{0,3}", text in "\\PC{0,12}", after in "[ \n]{0,3}") {
            let json = serde_json::Value::from(text).to_string();
            let whole = format!("{before}{json}{after}");
            let mut scan = Scan::new(&whole);
            let place = scan.skip().unwrap();
            prop_assert_eq!(&whole[place], json.as_str());
            prop_assert!(scan.end().is_ok());
        }
    }
}
