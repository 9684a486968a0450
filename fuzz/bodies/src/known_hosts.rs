//! `guest-push`: `known_hosts` texts.

use guest_push::KnownHosts;

/// A public key made for this purpose; nobody holds its secret half.
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGekXSQtW1P3XYlvKZWw5jKpbHTLMjobpUP5NmjQWcal";

/// Either a whole text, or (first byte `=`) a host pattern and a host name that are matched here too.
pub fn known_hosts(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some((pattern, host)) = text.strip_prefix('=').and_then(|text| text.split_once('=')) {
        return patterns(pattern, host);
    }
    match KnownHosts::parse(text) {
        Ok(known) => {
            for line in text.lines() {
                for host in line.split_whitespace().take(2).flat_map(|field| field.split(',')).take(8) {
                    for port in [22, 2222] {
                        for print in known.fingerprints(host, port) {
                            assert_eq!(print.len(), "SHA256:".len() + 43, "{print}");
                            assert!(print.starts_with("SHA256:"));
                        }
                    }
                }
            }
            let commented = format!("# comment\n\n{text}");
            assert!(KnownHosts::parse(&commented).is_ok(), "comments and blank lines change nothing");
        }
        Err(problems) => {
            assert!(!problems.is_empty());
            let lines = text.lines().count();
            assert!(problems.iter().all(|p| p.line <= lines && !p.message.is_empty()), "{problems:?}");
        }
    }
}

/// One list of patterns against one host on port 22, judged a second time by a matcher that tries everything.
fn patterns(list: &str, host: &str) {
    let simple = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let pattern = |c: char| simple(c) || "*?!,".contains(c);
    if !host.chars().all(simple) || !list.chars().all(pattern) || host.len() > 24 || list.len() > 24 {
        return;
    }
    let Ok(known) = KnownHosts::parse(&format!("{list} {KEY}")) else {
        let damaged = list.split(',').any(|p| p.trim_start_matches('!').is_empty());
        assert!(damaged, "a list of patterns was refused: {list}");
        return;
    };
    let (denied, named): (Vec<&str>, Vec<&str>) = list.split(',').partition(|p| p.starts_with('!'));
    let hit = |p: &&str| matches(p.as_bytes(), host.as_bytes());
    let expected = named.iter().any(hit) && !denied.iter().any(|p| hit(&&p[1..]));
    assert_eq!(known.fingerprints(host, 22).len(), usize::from(expected), "{list} for {host}");
    assert!(known.fingerprints(host, 2222).is_empty() || list.contains('*'), "a bare name is port 22 alone");
}

fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => matches(rest, text) || (!text.is_empty() && matches(pattern, &text[1..])),
        (Some((b'?', rest)), Some((_, text))) => matches(rest, text),
        (Some((p, rest)), Some((t, text))) => p == t && matches(rest, text),
        _ => false,
    }
}
