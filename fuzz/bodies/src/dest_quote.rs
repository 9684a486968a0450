//! `guest-push`: whatever the bytes, a quoted argument is one literal word to a POSIX shell.

use guest_push::{Dest, quote};

/// Words that a POSIX shell or bash gives a meaning of their own where a command may start.
const KEYWORDS: [&str; 22] = [
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "time", "until", "while",
];

/// Arguments separated by NUL bytes; the first of them also as a destination.
pub fn dest_quote(data: &[u8]) {
    match (quote::sh(data), data.iter().position(|b| *b == 0)) {
        (Ok(line), None) => assert_eq!(words(&line), [data], "one argument"),
        (Err(nul), Some(at)) => assert_eq!((nul.index, nul.at), (0, at)),
        (result, nul) => panic!("NUL at {nul:?}, but {result:?}"),
    }
    let arguments: Vec<&[u8]> = data.split(|b| *b == 0).collect();
    let line = quote::argv(&arguments).expect("no argument has a NUL");
    assert_eq!(words(&line), arguments, "the argument vector");

    let Some(text) = arguments.first().and_then(|first| std::str::from_utf8(first).ok()) else { return };
    if let Ok(dest) = Dest::parse(text) {
        assert_eq!(dest.as_str(), text, "kept byte for byte");
        assert!(text.starts_with('/') && text.len() <= 4095);
        assert!(!text.chars().any(char::is_control));
        let mut names = text[1..].split('/');
        assert!(names.all(|name| !matches!(name, "" | "." | "..") && name.len() <= 255), "{text:?}");
        let parent = dest.parent();
        let name = text.rsplit('/').next().unwrap_or_default();
        assert_eq!(format!("{}/{name}", parent.trim_end_matches('/')), text);
        assert!(parent == "/" || Dest::parse(parent).is_ok(), "the parent is a path too");
    }
}

/// Splits a command line by the rules of POSIX (2.2 Quoting, 2.3 Token Recognition). Panics where an unquoted
/// character would make the shell do anything but build words.
fn words(line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quoted = false;
    let mut rest = line.iter().copied();
    loop {
        let byte = rest.next();
        match byte {
            None | Some(b' ' | b'\t') => {
                if let Some(word) = word.take() {
                    let first = words.is_empty();
                    let keyword = KEYWORDS.iter().any(|keyword| keyword.as_bytes() == word);
                    assert!(quoted || !first || !keyword, "a reserved word starts the command");
                    words.push(word);
                }
                quoted = false;
                if byte.is_none() {
                    return words;
                }
            }
            Some(b'\'') => {
                quoted = true;
                let word = word.get_or_insert_default();
                loop {
                    match rest.next().expect("an open quote") {
                        b'\'' => break,
                        inside => word.push(inside),
                    }
                }
            }
            Some(b'\\') => {
                quoted = true;
                let escaped = rest.next().expect("a backslash at the end");
                assert_ne!(escaped, b'\n', "a line continuation vanishes");
                word.get_or_insert_default().push(escaped);
            }
            Some(plain) => {
                let special = b"|&;<>()$`\"\n*?[]#~=%{}!^".contains(&plain);
                assert!(!special && plain.is_ascii_graphic(), "unquoted byte {plain:#04x}");
                word.get_or_insert_default().push(plain);
            }
        }
    }
}
