//! What is taken out of text before a model or a log may have it. Best effort by nature: nobody should keep a secret in a note.

/// Config keys whose whole value is a secret.
const SECRET_KEYS: &[&str] = &["cipassword", "password"];
/// Config keys that hold free text in which people leave credentials.
const FREE_TEXT_KEYS: &[&str] = &["description", "args", "cicustom"];
/// Words after which `=` or `:` and a value look like a credential.
const SECRET_WORDS: &[&str] =
    &["password", "passwd", "secret", "token", "apikey", "api_key", "api-key", "private_key", "psk"];
const MARK: &str = "[redacted]";

/// One value of a guest's configuration, as it may be shown.
pub(crate) fn config_value(key: &str, value: &str) -> String {
    if SECRET_KEYS.contains(&key) {
        return MARK.to_owned();
    }
    if FREE_TEXT_KEYS.contains(&key) {
        return free_text(value);
    }
    value.to_owned()
}

/// Free text without what looks like a credential: `password: x`, `TOKEN=x`, `https://user:pass@host`.
pub(crate) fn free_text(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
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
    let assigned = secret_after_word(text);
    let userinfo = url_userinfo(text);
    match (assigned, userinfo) {
        (Some(a), Some(b)) => Some(if a.0 <= b.0 { a } else { b }),
        (a, b) => a.or(b),
    }
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
            let value = value.trim_start_matches([' ', '\t', '"', '\'']);
            let start = text.len() - value.len();
            let len = value
                .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | ';' | '&'))
                .unwrap_or(value.len());
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
        ];
        for (given, expected) in cases {
            assert_eq!(free_text(given), expected);
        }
    }

    #[test]
    fn only_the_keys_that_can_hold_secrets_are_touched() {
        assert_eq!(config_value("cipassword", "x"), MARK);
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
