//! The guest scripts: one text in two crates, and right under a plain shell.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use sha2::{Digest, Sha256};

fn script(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/route/scripts").join(name);
    fs::read_to_string(path).unwrap()
}

/// The lab recognises a script by its text, and may not depend on this crate.
#[test]
fn the_lab_has_the_same_scripts_byte_for_byte() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ours = here.join("src/route/scripts");
    let labs = here.join("../examples/lab/src/node/scripts");
    let list = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(list(&ours), list(&labs));
    for name in list(&ours) {
        assert!(
            fs::read(ours.join(&name)).unwrap() == fs::read(labs.join(&name)).unwrap(),
            "{name:?} differs"
        );
    }
}

fn run(shell: &str, text: &str, arguments: &[&str], path: Option<&Path>) -> Output {
    let mut command = Command::new(shell);
    command.args(["-c", text, "proxward"]).args(arguments);
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().unwrap()
}

fn shells() -> Vec<&'static str> {
    ["/bin/sh", "/bin/dash", "/bin/bash"].into_iter().filter(|s| Path::new(s).exists()).collect()
}

const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

#[test]
fn each_hashing_tool_and_none_gives_the_same_form() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a \\b");
    fs::write(&file, "abc").unwrap();
    for shell in shells() {
        for tool in ["openssl", "sha256sum", "busybox", ""] {
            let tools = tempfile::tempdir().unwrap();
            for name in ["wc", tool].iter().filter(|n| !n.is_empty()) {
                let Some(found) =
                    ["/usr/bin", "/bin"].iter().map(|d| Path::new(d).join(name)).find(|p| p.exists())
                else {
                    println!("skipped: {name} is missing");
                    continue;
                };
                symlink(found, tools.path().join(name)).unwrap();
            }
            let has_tool = !tool.is_empty() && tools.path().join(tool).exists();
            let expected = if has_tool { format!("{ABC} 3\n") } else { "none 3\n".to_owned() };
            let output = run(shell, &script("hash.sh"), &[file.to_str().unwrap(), "60"], Some(tools.path()));
            assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{shell} {tool}");
        }
        let output = run(shell, &script("hash.sh"), &["/nonexistent", "60"], None);
        assert!(!output.status.success() && output.stdout.is_empty());
    }
}

/// Runs the receiving script with these programs alone. It is given the second half when the first is in the file.
fn receive(shell: &str, tools: &[&str], temp: &Path, bytes: &[u8]) -> (Output, Vec<String>) {
    let path = tempfile::tempdir().unwrap();
    let mut missing = Vec::new();
    for name in tools {
        match ["/usr/bin", "/bin"].iter().map(|d| Path::new(d).join(name)).find(|p| p.exists()) {
            Some(found) => symlink(found, path.path().join(name)).unwrap(),
            None => missing.push((*name).to_owned()),
        }
    }
    let mut child = Command::new(shell)
        .args(["-c", &script("receive.sh"), "proxward", temp.to_str().unwrap(), "60", "640", ""])
        .env("PATH", path.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    input.write_all(first).unwrap();
    let there = || fs::metadata(temp).is_ok_and(|file| file.len() >= first.len() as u64);
    while !there() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    input.write_all(second).unwrap();
    drop(input);
    (child.wait_with_output().unwrap(), missing)
}

#[test]
fn what_is_received_is_read_back_while_it_comes_where_the_guest_can() {
    const NEEDED: [&str; 5] = ["cat", "chmod", "sleep", "dd", "stat"];
    let dir = tempfile::tempdir().unwrap();
    let temp = dir.path().join("a \\b $(id)");
    for shell in shells() {
        for length in [0, 1, 5 * 1024 * 1024 + 17, 65 * 1024 * 1024 + 17] {
            let bytes: Vec<u8> = (0..length).map(|n| (n * 31 % 251) as u8).collect();
            for tool in ["openssl", "sha256sum", "busybox"] {
                let (output, missing) = receive(shell, &[&NEEDED[..], &[tool]].concat(), &temp, &bytes);
                assert!(output.status.success(), "{shell} {tool} {output:?}");
                assert_eq!(fs::read(&temp).unwrap(), bytes);
                assert_eq!(fs::metadata(&temp).unwrap().permissions().mode() & 0o7777, 0o640);
                fs::remove_file(&temp).unwrap();
                let said = String::from_utf8(output.stdout).unwrap();
                if missing.is_empty() {
                    let hash: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
                    let (first, size) = said.split_once('\n').unwrap();
                    assert!(first.starts_with(&format!("{hash} ")), "{shell} {tool}: {said}");
                    assert_eq!(size, format!("{length}\n"), "{shell} {tool}");
                }
            }
        }
    }
}

#[test]
fn a_guest_that_cannot_read_back_receives_all_the_same_and_says_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let temp = dir.path().join("temp");
    for shell in shells() {
        for tools in [
            &["cat", "chmod", "sleep", "dd", "stat"][..],
            &["cat", "chmod", "sleep", "dd", "sha256sum"],
            &["cat", "chmod", "sha256sum"],
            &["cat", "chmod", "dd", "stat", "sha256sum"],
            &["cat", "chmod", "sleep", "stat", "sha256sum"],
        ] {
            let (output, _) = receive(shell, tools, &temp, b"abc");
            assert!(output.status.success() && output.stdout.is_empty(), "{shell} {tools:?} {output:?}");
            assert_eq!(fs::read(&temp).unwrap(), b"abc");
            fs::remove_file(&temp).unwrap();
        }
        // What is there already is not written to.
        fs::write(&temp, "old").unwrap();
        let (output, _) = receive(shell, &["cat", "chmod", "sleep", "dd", "stat", "sha256sum"], &temp, b"");
        assert!(!output.status.success(), "{shell}");
        assert_eq!(fs::read(&temp).unwrap(), b"old");
        fs::remove_file(&temp).unwrap();
    }
}

#[test]
fn commit_moves_only_what_it_may() {
    for shell in shells() {
        let dir = tempfile::tempdir().unwrap();
        let (temp, dest) = (dir.path().join("temp"), dir.path().join("dest"));
        let commit = |overwrite: &str| {
            let arguments = [temp.to_str().unwrap(), dest.to_str().unwrap(), overwrite];
            String::from_utf8(run(shell, &script("commit.sh"), &arguments, None).stdout).unwrap()
        };
        fs::write(&temp, "new").unwrap();
        fs::write(&dest, "old").unwrap();
        assert_eq!(commit("0"), "exists\n");
        assert_eq!((fs::read(&temp).unwrap(), fs::read(&dest).unwrap()), (b"new".to_vec(), b"old".to_vec()));
        assert_eq!(commit("1"), "ok\n");
        assert_eq!(fs::read(&dest).unwrap(), b"new");
        assert!(!temp.exists());

        fs::remove_file(&dest).unwrap();
        fs::write(&temp, "first").unwrap();
        assert_eq!(commit("0"), "ok\n");
        assert_eq!(fs::read(&dest).unwrap(), b"first");
        assert!(!temp.exists());

        fs::remove_file(&dest).unwrap();
        symlink("nowhere", &dest).unwrap();
        fs::write(&temp, "new").unwrap();
        assert_eq!(commit("0"), "exists\n");

        fs::remove_file(&dest).unwrap();
        fs::create_dir(&dest).unwrap();
        assert_eq!(commit("1"), "is-directory\n");
        assert!(temp.exists());
    }
}

#[test]
fn discard_is_content_when_there_is_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("-f x");
    fs::write(&file, "").unwrap();
    for _again in 0..2 {
        assert!(run("/bin/sh", &script("discard.sh"), &[file.to_str().unwrap()], None).status.success());
        assert!(!file.exists());
    }
}

/// A folder of tools: links to real ones, and one that prints what it is told.
fn tools(real: &[&str], fake: &str, prints: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in real {
        let found = ["/usr/bin", "/bin"].iter().map(|d| Path::new(d).join(name)).find(|p| p.exists());
        symlink(found.unwrap(), dir.path().join(name)).unwrap();
    }
    let path = dir.path().join(fake);
    fs::write(&path, format!("#!/bin/sh\ncat <<'END'\n{prints}\nEND\n")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(path, mode).unwrap();
    dir
}

#[test]
fn ul_40_a_guest_without_room_says_so_and_one_that_cannot_tell_is_asked_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("f");
    let ask = |df: &str, need: &str| {
        let path = tools(&["cat"], "df", df);
        let arguments = [dest.to_str().unwrap(), "0", "0", need, "0"];
        let output = run("/bin/sh", &script("prepare.sh"), &arguments, Some(path.path()));
        String::from_utf8(output.stdout).unwrap()
    };
    let table = "Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/x 100 98 2000 98% /a b";
    assert_eq!(ask(table, "2000"), "ok\n");
    assert_eq!(ask(table, "2001"), "no-space\n");
    for strange in ["", "nonsense", "Filesystem\n/dev/x 1 2 - 3% /", "a\nb c d e"] {
        assert_eq!(ask(strange, "2001"), "ok\n", "{strange:?}");
    }
}

#[test]
fn receive_makes_its_file_exclusively_and_private_until_the_end() {
    for shell in shells() {
        let dir = tempfile::tempdir().unwrap();
        let temp = dir.path().join("-t $(x)");
        let receive = |mode: &str| {
            let mut child = Command::new(shell)
                .args(["-c", &script("receive.sh"), "proxward", temp.to_str().unwrap(), "60", mode, ""])
                .stdin(std::process::Stdio::piped())
                .stderr(std::process::Stdio::null())
                .spawn()
                .unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"\0\xff\r\n").unwrap();
            child.wait().unwrap().success()
        };
        assert!(receive("0640"));
        assert_eq!(fs::read(&temp).unwrap(), b"\0\xff\r\n");
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&temp).unwrap().permissions());
        assert_eq!(mode & 0o7777, 0o640);
        assert!(!receive("0600"), "{shell}: an existing file is not written to");
        fs::remove_file(&temp).unwrap();
        symlink(dir.path().join("elsewhere"), &temp).unwrap();
        assert!(!receive("0600"), "{shell}: nor a link followed");
        assert!(!dir.path().join("elsewhere").exists());
    }
}

#[test]
fn parts_are_joined_in_order_and_the_size_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let parts = dir.path().join("p");
    let at = parts.to_str().unwrap();
    assert!(run("/bin/sh", &script("begin.sh"), &[at], None).status.success());
    assert!(!run("/bin/sh", &script("begin.sh"), &[at], None).status.success());
    for (number, text) in ["a", "bc", "def"].iter().enumerate() {
        fs::write(parts.join(number.to_string()), text).unwrap();
    }
    let join = |from: &str, to: &str| {
        let output = run("/bin/sh", &script("join.sh"), &[at, from, to], None);
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(join("0", "2"), (true, "3\n".to_owned()));
    assert_eq!(join("2", "3"), (true, "6\n".to_owned()));
    assert_eq!(fs::read(parts.join("data")).unwrap(), b"abcdef");
    assert!(!join("3", "4").0);
}
