use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

/// A directory only we can reach, with one good secret file in it.
fn secret_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.json");
    std::fs::write(&path, b"{}").unwrap();
    chmod(&path, 0o600);
    (dir, path)
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn refusal(path: &Path, privacy: Privacy) -> String {
    read(path, privacy, 1024).unwrap_err().to_string()
}

#[test]
fn tk_06_a_private_file_is_read() {
    let (_dir, path) = secret_file();
    for mode in [0o600, 0o400] {
        chmod(&path, mode);
        assert_eq!(read(&path, Privacy::Secret, 1024).unwrap(), b"{}");
    }
}

#[test]
fn tk_06_every_bit_for_group_or_others_is_refused_with_the_remedy() {
    let (_dir, path) = secret_file();
    for bit in [0o040, 0o020, 0o010, 0o004, 0o002, 0o001] {
        chmod(&path, 0o600 | bit);
        let error = refusal(&path, Privacy::Secret);
        assert!(error.contains(&format!("chmod 0600 {}", path.display())), "{bit:o}: {error}");
    }
}

#[test]
fn sh_03_a_public_file_may_be_read_but_not_written_by_others() {
    let (_dir, path) = secret_file();
    for mode in [0o600, 0o644, 0o444] {
        chmod(&path, mode);
        read(&path, Privacy::Public, 1024).unwrap();
    }
    for mode in [0o666, 0o664, 0o646] {
        chmod(&path, mode);
        assert!(refusal(&path, Privacy::Public).contains("chmod go-w"), "{mode:o}");
    }
}

#[test]
fn tk_06_links_pipes_directories_and_second_names_are_refused() {
    let (dir, path) = secret_file();
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(refusal(&link, Privacy::Secret).contains("symbolic link"));

    assert!(refusal(dir.path(), Privacy::Secret).contains("is not a regular file"));

    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    // Must answer at once, although nobody writes to the pipe.
    assert!(refusal(&fifo, Privacy::Secret).contains("is not a regular file"));

    let socket = dir.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(refusal(&socket, Privacy::Secret).contains("is not a regular file"));

    std::fs::hard_link(&path, dir.path().join("second")).unwrap();
    assert!(refusal(&path, Privacy::Secret).contains("2 hard links"));
}

#[test]
fn tk_06_a_directory_that_everyone_may_write_to_is_refused_unless_sticky() {
    let (dir, path) = secret_file();
    chmod(dir.path(), 0o777);
    assert!(refusal(&path, Privacy::Secret).contains("chmod o-w"));
    chmod(dir.path(), 0o1777);
    read(&path, Privacy::Secret, 1024).unwrap();
    chmod(dir.path(), 0o700);
}

#[test]
fn tk_06_another_users_file_is_refused() {
    let (_dir, path) = secret_file();
    if !geteuid().is_root() {
        println!("not applicable: only root can give a file away");
        return;
    }
    std::os::unix::fs::chown(&path, Some(65532), None).unwrap();
    assert!(refusal(&path, Privacy::Secret).contains("chown 0 "));
    assert!(refusal(&path, Privacy::Public).contains("belongs to user 65532"));
    // Root may edit it, and the service keeps its file.
    Edit::begin(&path, 1024).unwrap().commit(b"new").unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&metadata), 65532);
}

#[test]
fn rl_08_a_file_over_the_cap_is_refused_and_one_at_the_cap_is_read() {
    let (_dir, path) = secret_file();
    std::fs::write(&path, vec![b'x'; 1024]).unwrap();
    assert_eq!(read(&path, Privacy::Secret, 1024).unwrap().len(), 1024);
    std::fs::write(&path, vec![b'x'; 1025]).unwrap();
    assert!(refusal(&path, Privacy::Secret).contains("larger than 1024 bytes"));
}

#[test]
fn a_missing_file_and_a_missing_directory_are_told_apart_from_refusals() {
    let dir = tempfile::tempdir().unwrap();
    assert!(read(&dir.path().join("no"), Privacy::Secret, 1).unwrap_err().is_missing());
    assert!(read(&dir.path().join("no/no"), Privacy::Secret, 1).unwrap_err().is_missing());
    assert!(!read(Path::new("/"), Privacy::Secret, 1).unwrap_err().is_missing());
}

#[test]
fn tk_11_an_edit_replaces_the_file_at_once_and_keeps_it_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.json");
    let edit = Edit::begin(&path, 1024).unwrap();
    assert_eq!(edit.current(), None);
    edit.commit(b"one").unwrap();
    let edit = Edit::begin(&path, 1024).unwrap();
    assert_eq!(edit.current(), Some(&b"one"[..]));
    edit.commit(b"two").unwrap();
    assert_eq!(read(&path, Privacy::Secret, 1024).unwrap(), b"two");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
}

#[test]
fn tk_11_concurrent_edits_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("counter");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let edit = Edit::begin(&path, 1024).unwrap();
                    let mut bytes = edit.current().unwrap_or_default().to_vec();
                    bytes.push(b'x');
                    edit.commit(&bytes).unwrap();
                }
            });
        }
    });
    assert_eq!(read(&path, Privacy::Secret, 1024).unwrap().len(), 40);
}

#[test]
fn an_edit_refuses_what_a_read_refuses() {
    let (_dir, path) = secret_file();
    chmod(&path, 0o644);
    assert!(Edit::begin(&path, 1024).unwrap_err().to_string().contains("chmod 0600"));
}
