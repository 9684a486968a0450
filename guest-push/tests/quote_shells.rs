//! Quoting, judged by real shells.
//!
//! `PROXWARD_QUOTE_CASES` sets the number of cases per shell (20,000 when it is not set). Many cases share a process,
//! so a million take seconds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::Write;
use std::process::{Command, Stdio};

use guest_push::quote;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const SHELLS: [&[&str]; 4] = [&["/bin/sh"], &["dash"], &["bash"], &["busybox", "sh"]];
const PER_PROCESS: usize = 2000;

fn cases() -> usize {
    std::env::var("PROXWARD_QUOTE_CASES").ok().map_or(20_000, |n| n.parse().unwrap())
}

/// Any bytes but NUL, and often those that shells care about.
fn argument() -> impl Strategy<Value = Vec<u8>> {
    let special =
        prop::sample::select(b"'\"\\$`!*?[]{}()<>|&;#~=%^ \t\n\r-/.,:@+\x01\x1b\x7f\xc3\xa4\xff".to_vec());
    let word = prop::sample::select(vec![
        "if", "then", "$(", "${x}", "`id`", "''", "\\'", "<<EOF", "&&", "fi", "~root",
    ]);
    prop_oneof![
        vec(1..=255_u8, 0..24),
        vec(special, 0..16),
        vec(word, 0..4).prop_map(|words| words.concat().into_bytes()),
    ]
}

fn runs(shell: &[&str]) -> bool {
    Command::new(shell[0]).args(&shell[1..]).args(["-c", ":"]).output().is_ok_and(|o| o.status.success())
}

/// What a shell prints for a script. The script goes through standard input: it is too long for an argument.
fn output(shell: &[&str], script: Vec<u8>) -> Vec<u8> {
    let mut child = Command::new(shell[0])
        .args(&shell[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let feeding = std::thread::spawn(move || stdin.write_all(&script).unwrap());
    let output = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    assert!(output.status.success(), "{shell:?}");
    output.stdout
}

#[test]
fn dp_02_any_bytes_survive_sh_dash_bash_and_busybox() {
    let mut runner = TestRunner::default();
    let strategy = argument();
    for shell in SHELLS {
        if !runs(shell) {
            println!("skipped: {} is missing", shell[0]);
            continue;
        }
        let mut left = cases();
        while left > 0 {
            let batch = left.min(PER_PROCESS);
            left -= batch;
            let arguments: Vec<Vec<u8>> =
                (0..batch).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
            // A NUL ends each, which no argument can have.
            let mut script = Vec::new();
            for argument in &arguments {
                script.extend(b"printf '%s\\0' ");
                script.extend(quote::sh(argument).unwrap());
                script.push(b'\n');
            }
            let printed = output(shell, script);
            let mut back = printed.split(|b| *b == 0);
            for argument in &arguments {
                assert_eq!(back.next(), Some(&argument[..]), "{shell:?}");
            }
            assert_eq!(back.next(), Some(&[][..]), "{shell:?}: nothing more");
            assert_eq!(back.next(), None, "{shell:?}");
        }
    }
}

#[test]
fn dp_02_a_vector_keeps_its_length_and_its_empty_words() {
    let mut runner = TestRunner::default();
    let strategy = vec(argument(), 1..8);
    let vectors: Vec<Vec<Vec<u8>>> =
        (0..500).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    for shell in SHELLS.into_iter().filter(|shell| runs(shell)) {
        let mut script = b"show() { printf '%s\\0' \"$#\" \"$@\"; }\n".to_vec();
        let mut expected = Vec::new();
        for vector in &vectors {
            let mut words = vec![b"show".to_vec()];
            words.extend(vector.iter().cloned());
            script.extend(quote::argv(&words).unwrap());
            script.push(b'\n');
            expected.extend(vector.len().to_string().into_bytes());
            expected.push(0);
            for argument in vector {
                expected.extend(argument);
                expected.push(0);
            }
        }
        assert!(output(shell, script) == expected, "{shell:?}");
    }
}

/// Standing first, a reserved word would open a construct and a word with `=` would be an assignment.
#[test]
fn dp_02_no_first_word_is_anything_but_a_command_name() {
    for shell in SHELLS.into_iter().filter(|shell| runs(shell)) {
        for word in
            ["if", "while", "for", "case", "function", "{", "}", "!", "time", "a=b", "#x", "~", "in", "do"]
        {
            let mut script = quote::argv(&[word, "x"]).unwrap();
            script.extend(b" 2>/dev/null\necho $? at the end\n");
            let printed = String::from_utf8(output(shell, script)).unwrap();
            assert!(
                printed.contains("127 at the end") || printed.contains("126 at the end"),
                "{shell:?} {word} {printed}"
            );
        }
    }
}

#[test]
fn dp_06_nul_is_refused_and_its_place_named() {
    assert_eq!(quote::sh(b"a\0b"), Err(quote::NulByte { index: 0, at: 1 }));
    let error = quote::argv(&["ok", "\0"]).unwrap_err();
    assert_eq!((error.index, error.at), (1, 0));
    assert!(error.to_string().contains("argument 1"));
}

#[test]
fn plain_words_stay_readable() {
    let line = quote::argv(&["pct", "push", "905", "/var/lib/x_y.z", "--perms", "0644", "a b", ""]).unwrap();
    assert_eq!(line, b"pct push 905 /var/lib/x_y.z --perms 0644 'a b' ''");
}
