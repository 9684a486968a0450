use super::*;

fn output(status: u32, complaint: &str) -> Output {
    Output { status, stdout: Vec::new(), complaint: complaint.to_owned() }
}

#[test]
fn sh_11_a_hash_line_is_read_strictly() {
    let hash = "0123456789abcdef".repeat(4);
    assert_eq!(parse_hash(format!("{hash} 42\n").as_bytes()), Some((Some(hash.as_str()), 42)));
    assert_eq!(parse_hash(format!("{hash} 42").as_bytes()), Some((Some(hash.as_str()), 42)));
    assert_eq!(parse_hash(b"none 0\n"), Some((None, 0)));
    let max = format!("{hash} {}", u64::MAX);
    assert_eq!(parse_hash(max.as_bytes()).map(|(_, size)| size), Some(u64::MAX));
    for bad in [
        "",
        "\n",
        "none",
        "none ",
        "None 1",
        "none 01",
        "none +1",
        "none -1",
        "none 1 ",
        "none  1",
        " none 1",
        "none 1\n\n",
        "none 18446744073709551616",
        &format!("{} 1", &hash[..63]),
        &format!("{hash}0 1"),
        &format!("{} 1", hash.to_uppercase()),
        &format!("\\{hash} 1"),
        &format!("{hash} 1\r\n"),
        &format!("{hash} *file"),
        &format!("\u{1b}[0m{hash} 1"),
    ] {
        assert_eq!(parse_hash(bad.as_bytes()), None, "{bad:?}");
    }
    assert_eq!(parse_hash(b"none \xff"), None);
}

#[test]
fn complaints_of_pct_are_told_apart() {
    let kind = |step, status, complaint: &str| {
        guest_failed(Place::Container(905), step, &output(status, complaint)).into_kind()
    };
    for complaint in [
        "container '905' not running!",
        "can only push files to a running VM",
        "Configuration file 'nodes/pve1/lxc/905.conf' does not exist",
        "lxc-attach: 905: attach.c: get_attach_context: 405 Connection refused - Failed to get init pid",
    ] {
        assert_eq!(kind(Step::Push, 255, complaint), PushErrorKind::GuestUnreachable, "{complaint}");
    }
    assert_eq!(
        kind(Step::Push, 255, "can't lock file '/run/lock/lxc/pve-config-905.lock' - got timeout"),
        PushErrorKind::GuestBusy
    );
    assert_eq!(kind(Step::Push, 255, "CT is locked (backup)"), PushErrorKind::GuestBusy);
    assert_eq!(kind(Step::Commit, 1, "mv: write error: No space left on device"), PushErrorKind::NoSpace);
    assert_eq!(kind(Step::Push, 255, "close failed: Disk quota exceeded"), PushErrorKind::NoSpace);
    for (status, complaint) in [(127, "sh: 1: pct: not found"), (1, "sudo: a password is required")] {
        let expected = PushErrorKind::Remote { step: Step::Prepare, status: Some(status) };
        assert_eq!(kind(Step::Prepare, status, complaint), expected);
    }
    assert_eq!(kind(Step::Prepare, 255, "anything else"), PushErrorKind::GuestUnreachable);
    assert_eq!(kind(Step::Push, 255, "x"), PushErrorKind::Remote { step: Step::Push, status: Some(255) });
}

#[test]
fn only_the_expected_hash_of_as_many_bytes_was_read_back() {
    let (right, wrong) = (hex(&[0xab; 32]), hex(&[0xac; 32]));
    let says = |text: String| followed(text.as_bytes(), 42, &[0xab; 32]);
    for form in ["-", "*stdin"] {
        assert!(says(format!("{right} {form}\n42\n")), "{form}");
    }
    for text in [
        String::new(),
        "\n".to_owned(),
        "42\n".to_owned(),
        format!("{right} -\n"),
        format!("{right} -\n42"),
        format!("{right}\n42\n"),
        format!("{right} -\n43\n"),
        format!("{right} -\n042\n"),
        format!("{right} -\n42\n\n"),
        format!("{wrong} -\n42\n"),
        format!("{} -\n42\n", right.to_uppercase()),
        format!("{wrong} -\n{right} -\n42\n"),
    ] {
        assert!(!says(text.clone()), "{text:?}");
    }
    assert!(!followed(&[0xff, b'\n', b'4', b'2', b'\n'], 42, &[7; 32]));
}

#[test]
fn only_a_command_that_may_still_run_leaves_doubt() {
    let doubt = |kind: PushErrorKind| still_running(PushError::new(kind, "x"), "note").residue();
    assert!(doubt(PushErrorKind::Deadline { step: Step::Push }));
    assert!(doubt(PushErrorKind::Connect));
    assert!(doubt(PushErrorKind::Remote { step: Step::Push, status: None }));
    assert!(!doubt(PushErrorKind::Remote { step: Step::Push, status: Some(1) }));
    assert!(!doubt(PushErrorKind::GuestUnreachable));
}
