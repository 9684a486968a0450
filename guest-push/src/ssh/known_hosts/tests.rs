use proptest::prelude::*;

use super::*;

/// A key in wire form that differs by its seed, and its text.
fn key(seed: u8) -> (Vec<u8>, String) {
    key_of("ssh-ed25519", seed)
}

fn key_of(kind: &str, seed: u8) -> (Vec<u8>, String) {
    let field = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let blob = [field(kind.as_bytes()), field(&[seed; 32])].concat();
    let text = format!("{kind} {}", BASE64.encode(&blob));
    (blob, text)
}

fn judge(hosts: &str, host: &str, port: u16) -> Verdict {
    let (blob, text) = key(1);
    KnownHosts::parse(&format!("{hosts} {text}")).unwrap().judge(host, port, &blob)
}

#[test]
fn sh_04_host_and_port_are_matched_exactly() {
    for (hosts, host, port) in [
        ("pve1", "pve1", 22),
        ("PVE1.Example.org", "pve1.example.ORG", 22),
        ("other,pve1", "pve1", 22),
        ("[pve1]:2222", "pve1", 2222),
        ("[pve1]:22", "pve1", 22),
        ("[fe80::1]:2222", "fe80::1", 2222),
        ("fe80::1", "fe80::1", 22),
        ("*.example.org", "a.example.org", 22),
        ("10.0.0.?", "10.0.0.7", 22),
        ("[*.example.org]:2222", "a.example.org", 2222),
        ("*", "anything", 22),
        ("pve*,!pve9", "pve1", 22),
    ] {
        assert_eq!(judge(hosts, host, port), Verdict::Trusted, "{hosts} {host} {port}");
    }
    for (hosts, host, port) in [
        ("pve1", "pve1", 2222),
        ("[pve1]:2222", "pve1", 22),
        ("[pve1]:2222", "pve1", 2223),
        ("pve1", "pve10", 22),
        ("pve1", "xpve1", 22),
        ("*.example.org", "example.org", 22),
        ("*.example.org", "a.example.org", 2222),
        ("10.0.0.?", "10.0.0.77", 22),
        ("pve*,!pve9", "pve9", 22),
        ("!pve9,pve*", "pve9", 22),
        ("!pve9", "pve1", 22),
    ] {
        assert_eq!(judge(hosts, host, port), Verdict::Unknown, "{hosts} {host} {port}");
    }
}

#[test]
fn sh_04_hashed_names_match_by_name_and_port() {
    let salt = [7_u8; 20];
    let hashed = |name: &str| {
        let mut mac = Hmac::<Sha1>::new_from_slice(&salt).unwrap();
        mac.update(name.as_bytes());
        format!("|1|{}|{}", BASE64.encode(&salt), BASE64.encode(&mac.finalize().into_bytes()))
    };
    assert_eq!(judge(&hashed("pve1.example.org"), "pve1.example.org", 22), Verdict::Trusted);
    assert_eq!(judge(&hashed("pve1.example.org"), "PVE1.example.org", 22), Verdict::Trusted);
    assert_eq!(judge(&hashed("pve1.example.org"), "pve1.example.org", 2222), Verdict::Unknown);
    assert_eq!(judge(&hashed("[pve1.example.org]:2222"), "pve1.example.org", 2222), Verdict::Trusted);
    assert_eq!(judge(&hashed("[pve1.example.org]:2222"), "pve1.example.org", 22), Verdict::Unknown);
}

// B17, B20: all lines for a host count, also several of one type.
#[test]
fn sh_02_another_key_is_changed_and_a_revoked_one_wins() {
    let ((one, one_text), (two, two_text)) = (key(1), key(2));
    let hosts = KnownHosts::parse(&format!("h {one_text}\n")).unwrap();
    assert_eq!(hosts.judge("h", 22, &two), Verdict::Changed);
    assert_eq!(hosts.judge("other", 22, &one), Verdict::Unknown);

    let rotated = KnownHosts::parse(&format!("h {one_text} old\nh {two_text} new\n")).unwrap();
    assert_eq!(rotated.judge("h", 22, &one), Verdict::Trusted);
    assert_eq!(rotated.judge("h", 22, &two), Verdict::Trusted);
    assert_eq!(rotated.fingerprints("h", 22), [fingerprint(&one), fingerprint(&two)]);
    assert_eq!(rotated.key_types("h", 22), ["ssh-ed25519"]);

    for text in
        [format!("@revoked * {one_text}\nh {one_text}"), format!("h {one_text}\n@revoked h {one_text}")]
    {
        let revoked = KnownHosts::parse(&text).unwrap();
        assert_eq!(revoked.judge("h", 22, &one), Verdict::Revoked);
    }
    let elsewhere = KnownHosts::parse(&format!("h {one_text}\n@revoked other {one_text}")).unwrap();
    assert_eq!(elsewhere.judge("h", 22, &one), Verdict::Trusted);
}

#[test]
fn sh_03_a_bad_line_is_refused_with_its_number() {
    let (_, good) = key(1);
    let truncated = &good[..good.len() - 12];
    let damaged = format!("{}!", good);
    for (bad, says) in [
        ("h", "key type is missing"),
        ("h ssh-ed25519", "key is missing"),
        ("h ssh-ed25519 AAAA", "does not hold"),
        ("h ssh-ed25519 !!!!", "not base64"),
        ("h ssh-ed25519 AA==AAAA", "not base64"),
        ("garbage", "key type is missing"),
        (&format!("h ssh-rsa {}", good.split_once(' ').unwrap().1), "does not hold"),
        (&format!("h {damaged}"), "not base64"),
        (&format!("@revoke h {good}"), "unknown marker"),
        (&format!("@cert-authority * {good}"), "certificates are not supported"),
        (&format!("a,,b {good}"), "empty host"),
        (&format!("! {good}"), "empty host"),
        (&format!("[h {good}"), "damaged"),
        (&format!("[h]:0 {good}"), "damaged"),
        (&format!("[h]:99999 {good}"), "damaged"),
        (&format!("[]:22 {good}"), "damaged"),
        (&format!("|1|x {good}"), "hashed host is damaged"),
        (&format!("|1|AAAA|AAAA {good}"), "hashed host is damaged"),
        (&format!("|2|AAAA|AAAA x{truncated}"), "does not hold"),
    ] {
        let text = format!("# comment\n\nfine {good}\n{bad}\n");
        let problems = KnownHosts::parse(&text).unwrap_err();
        assert_eq!(problems.len(), 1, "{bad}");
        assert_eq!(problems[0].line, 4, "{bad}");
        assert!(problems[0].message.contains(says), "{bad}: {}", problems[0]);
    }
    let two = KnownHosts::parse("x\ny\n").unwrap_err();
    assert_eq!(two.iter().map(|p| p.line).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn sh_03_a_text_that_trusts_nothing_is_refused() {
    for text in ["", "\n# only a comment\n", &format!("@revoked * {}", key(1).1)] {
        let problems = KnownHosts::parse(text).unwrap_err();
        assert_eq!(problems[0].line, 0);
        assert!(problems[0].to_string().contains("ssh-keyscan"));
    }
}

#[test]
fn types_we_cannot_verify_are_held_but_still_differ_by_name() {
    let text = format!("h {}\nh {}\nh {}\n", key_of("ssh-rsa", 1).1, key(2).1, key_of("ssh-rsa", 3).1);
    let hosts = KnownHosts::parse(&text).unwrap();
    assert_eq!(hosts.key_types("h", 22), ["ssh-rsa", "ssh-ed25519"]);
}

/// The straightforward definition, exponential but obviously right.
fn slow_glob(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|skip| slow_glob(rest, &text[skip..])),
        Some((b'?', rest)) => !text.is_empty() && slow_glob(rest, &text[1..]),
        Some((c, rest)) => text.first() == Some(c) && slow_glob(rest, &text[1..]),
    }
}

proptest! {
    #[test]
    fn globs_match_as_defined(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
        prop_assert_eq!(glob(pattern.as_bytes(), text.as_bytes()), slow_glob(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn sh_03_no_text_panics(text in "\\PC{0,200}|([@|!\\[\\],*:A-Za-z0-9=\\n -]{0,80})") {
        let _parsed = KnownHosts::parse(&text);
    }
}
