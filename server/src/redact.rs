//! What is taken out of text before a model or a log may have it. Best effort by nature: nobody should keep a secret in a note.

/// Config keys whose whole value is a secret.
const SECRET_KEYS: &[&str] = &["cipassword", "password"];
/// Config keys that hold free text in which people leave credentials.
const FREE_TEXT_KEYS: &[&str] = &["description", "args", "cicustom", "entrypoint", "smbios1", "hookscript"];
/// The environment of a container: names and values, `NAME=value`, with NUL in between.
const ENVIRONMENT: &str = "env";
/// Words after which `=` or `:` and a value look like a credential.
const SECRET_WORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "private_key",
    "psk",
];
/// Words after which a value follows without a sign in between.
const SCHEMES: &[&str] = &["bearer ", "basic ", "--password ", "--secret ", "--token "];
/// What keys in PEM begin and end with.
const PEM: (&str, &str) = ("-----BEGIN ", "-----END ");
const MARK: &str = "[redacted]";

/// One value of a guest's configuration, as it may be shown.
pub(crate) fn config_value(key: &str, value: &str) -> String {
    if SECRET_KEYS.contains(&key) {
        return MARK.to_owned();
    }
    if key == ENVIRONMENT {
        return environment(value);
    }
    if FREE_TEXT_KEYS.contains(&key) {
        return free_text(value);
    }
    value.to_owned()
}

/// The names stay, the values go: an environment is where programs are given their passwords.
fn environment(value: &str) -> String {
    let shown = value.split('\0').map(|variable| match variable.split_once('=') {
        Some((name, _)) => format!("{name}={MARK}"),
        None => MARK.to_owned(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

/// Free text without what looks like a credential: `password: x`, `TOKEN=x`, `Bearer x`, `https://user:pass@host`, a private key.
pub(crate) fn free_text(text: &str) -> String {
    without_keys(text).split_inclusive('\n').map(line).collect()
}

/// Private keys in PEM span lines, so they go first. One without an end goes to the end of the text.
fn without_keys(text: &str) -> String {
    let (begin, end) = PEM;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(begin) {
        let header = &rest[at + begin.len()..];
        let label = header.split("-----").next().unwrap_or_default();
        if !label.ends_with("PRIVATE KEY") {
            out.push_str(&rest[..at + begin.len()]);
            rest = header;
            continue;
        }
        out.push_str(&rest[..at]);
        out.push_str(MARK);
        let body = header.find(end).map_or("", |stop| &header[stop + end.len()..]);
        rest = body.find("-----").map_or("", |stop| &body[stop + 5..]);
    }
    out.push_str(rest);
    out
}

fn line(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    loop {
        let Some((start, end)) = next_secret(rest) else {
            out.push_str(rest);
            return out;
        };
        out.push_str(&rest[..start]);
        out.push_str(MARK);
        rest = &rest[end..];
    }
}

/// Byte range of the next value that looks secret.
fn next_secret(text: &str) -> Option<(usize, usize)> {
    [secret_after_word(text), secret_after_scheme(text), url_userinfo(text)].into_iter().flatten().min()
}

/// How long the value at the start of `text` is: to the closing quote where one was opened, else to what ends a word.
fn value_len(text: &str, quote: Option<char>) -> usize {
    let end = match quote.filter(|quote| text.contains(*quote)) {
        Some(quote) => text.find(quote),
        None => text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '&')),
    };
    end.unwrap_or(text.trim_end_matches('\n').len())
}

fn secret_after_scheme(text: &str) -> Option<(usize, usize)> {
    let lower = text.to_ascii_lowercase();
    let found = SCHEMES.iter().flat_map(|scheme| {
        lower.match_indices(scheme).filter_map(|(at, scheme)| {
            let start = at + scheme.len();
            let len = value_len(&text[start..], None);
            // Shorter ones are words of a sentence: "basic setup".
            let long = len >= 8 || scheme.starts_with('-') && len > 0;
            (long && &text[start..start + len] != MARK).then_some((start, start + len))
        })
    });
    found.min()
}

fn secret_after_word(text: &str) -> Option<(usize, usize)> {
    let lower = text.to_ascii_lowercase();
    let mut best: Option<(usize, usize)> = None;
    for word in SECRET_WORDS {
        for (at, _) in lower.match_indices(word) {
            let after = at + word.len();
            let tail = &text[after..];
            let trimmed = tail.trim_start_matches([' ', '\t', '"', '\'']);
            let Some(value) = trimmed.strip_prefix(['=', ':']) else { continue };
            let quoted = value.trim_start_matches([' ', '\t']);
            let value = quoted.trim_start_matches(['"', '\'']);
            let quote = quoted.chars().next().filter(|c| matches!(c, '"' | '\''));
            let start = text.len() - value.len();
            let len = value_len(value, quote);
            if len > 0 && value[..len] != *MARK && best.is_none_or(|(s, _)| start < s) {
                best = Some((start, start + len));
            }
        }
    }
    best
}

fn url_userinfo(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        let start = from + at + 3;
        let authority = &text[start..];
        let end = authority
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"'))
            .unwrap_or(authority.len());
        if let Some(mark) = authority[..end].rfind('@')
            && &authority[..mark] != MARK
        {
            return Some((start, start + mark));
        }
        from = start;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_notes_are_taken_out_and_the_rest_stays() {
        let cases = [
            ("root password: hunter2, see wiki", "root password: [redacted], see wiki"),
            ("API_KEY=abc123\nowner=web team", "API_KEY=[redacted]\nowner=web team"),
            ("clone https://bob:s3cret@git.example/x", "clone https://[redacted]@git.example/x"),
            ("{\"token\": \"abc\", \"x\": 1}", "{\"token\": \"[redacted]\", \"x\": 1}"),
            ("no secrets here", "no secrets here"),
            ("the tokens are elsewhere", "the tokens are elsewhere"),
            ("password:", "password:"),
            ("ünïcode secret=ä€", "ünïcode secret=[redacted]"),
            ("password: \"two words\" there", "password: \"[redacted]\" there"),
            ("passphrase='a b' x", "passphrase='[redacted]' x"),
            ("curl -H 'Authorization: Bearer abcdefgh123'", "curl -H 'Authorization: Bearer [redacted]'"),
            ("mysql --password hunter2 -h db", "mysql --password [redacted] -h db"),
            ("a basic setup", "a basic setup"),
            (
                "key:\n-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\nBBBB\n-----END OPENSSH PRIVATE KEY-----\nend",
                "key:\n[redacted]\nend",
            ),
            ("-----BEGIN RSA PRIVATE KEY-----\nAAAA", "[redacted]"),
            ("-----BEGIN CERTIFICATE-----\nAAAA", "-----BEGIN CERTIFICATE-----\nAAAA"),
        ];
        for (given, expected) in cases {
            assert_eq!(free_text(given), expected);
        }
    }

    #[test]
    fn only_the_keys_that_can_hold_secrets_are_touched() {
        assert_eq!(config_value("cipassword", "x"), MARK);
        assert_eq!(config_value("env", "DB=x y\0PATH=/bin"), "DB=[redacted] PATH=[redacted]");
        assert_eq!(config_value("sshkeys", "ssh-ed25519%20AAAA"), "ssh-ed25519%20AAAA");
        assert_eq!(
            config_value("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
            "virtio=BC:24:11:00:00:01,bridge=vmbr0"
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_handled_and_redacting_twice_changes_nothing(text in ".{0,200}") {
            let once = free_text(&text);
            proptest::prop_assert_eq!(free_text(&once), once);
        }
    }
}
