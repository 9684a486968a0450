use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::chain::{verify, verify_files};
use super::super::redact::Redaction;
use super::*;
use crate::clock::SystemClock;
use crate::clock::manual::ManualClock;

fn config(path: &Path) -> AuditConfig {
    let key = Key::from_bytes([5; 32]);
    AuditConfig { path: path.to_owned(), key: key.clone(), redactor: Redactor::new(Redaction::Off, key) }
}

fn open(path: &Path) -> Result<Audit, OpenError> {
    Audit::open(config(path), Arc::new(SystemClock::start()))
}

fn call(number: u64) -> Record {
    Record::new(Event::ToolCall).tool("get_vms").detail("number", number)
}

/// The `details.number` of every record of ours in these files, in order.
fn numbers(paths: &[&Path]) -> Vec<u64> {
    let text: String = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    text.lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["event"] == "tool.call")
        .map(|line| line["details"]["number"].as_u64().unwrap())
        .collect()
}

/// A writer whose next writes fail, run in the test's own thread.
fn writer(path: &Path) -> Writer {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::start());
    let config = config(path);
    Writer::open(config.path, config.key, clock, Arc::default(), Arc::default()).unwrap()
}

fn flush_one(writer: &mut Writer, number: u64) -> Result<Seq, AuditError> {
    let (ack, mut acked) = oneshot::channel();
    let mut batch = Batch::default();
    let times = Times { wall: writer.clock.now(), monotonic: writer.clock.monotonic() };
    writer.add(&mut batch, &Members::of(&call(number)).unwrap(), times, Some(ack));
    writer.flush(batch);
    acked.try_recv().unwrap()
}

#[tokio::test]
async fn a_trail_begins_goes_on_after_a_restart_and_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    for round in 0..3 {
        let audit = open(&path).unwrap();
        let seq = audit.append_durable(call(round)).await.unwrap();
        // Genesis and the restart record of each opening come before.
        assert_eq!(seq, 3 + round * 2);
        audit.stop().await;
        assert!(matches!(audit.append(call(9)).await, Err(AuditError::Stopped)));
    }
    let summary = verify(&path).unwrap();
    assert_eq!((summary.records, summary.restarts), (7, 3));
    assert_eq!(numbers(&[&path]), [0, 1, 2]);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[tokio::test]
async fn many_waiting_records_are_all_on_the_disk_when_they_are_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = open(&path).unwrap();
    let tasks: Vec<_> = (0..200)
        .map(|number| {
            let (audit, path) = (audit.clone(), path.clone());
            tokio::spawn(async move {
                let seq = audit.append_durable(call(number)).await.unwrap();
                let text = std::fs::read_to_string(path).unwrap();
                assert!(text.contains(&format!("\"number\":{number}}}")));
                seq
            })
        })
        .collect();
    let mut seqs = Vec::new();
    for task in tasks {
        seqs.push(task.await.unwrap());
    }
    seqs.sort_unstable();
    assert_eq!(seqs, (3..203).collect::<Vec<_>>());
}

#[tokio::test]
async fn au_14_the_times_are_those_of_the_clock_and_the_number_rises_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let clock = Arc::new(ManualClock::at("2027-01-01T00:00:00Z".parse().unwrap()));
    let audit = Audit::open(config(&path), clock.clone()).unwrap();
    let before = audit.append_durable(call(1)).await.unwrap();
    clock.set_wall("2026-01-01T00:00:00Z".parse().unwrap());
    clock.advance(Duration::from_millis(5));
    let after = audit.append_durable(call(2)).await.unwrap();
    assert!(after > before);
    let text = std::fs::read_to_string(&path).unwrap();
    let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["time"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(last["mono_us"], 5000);
    audit.stop().await;
    verify(&path).unwrap();
}

#[test]
fn au_01_a_failing_disk_poisons_until_the_file_is_opened_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut writer = writer(&path);
    flush_one(&mut writer, 1).unwrap();
    let fault = Arc::clone(&writer.log.fault);
    *fault.lock().unwrap() = Some("No space left on device");
    let error = flush_one(&mut writer, 2).unwrap_err().to_string();
    assert!(error.contains("No space left") && error.contains("SIGHUP"), "{error}");
    // The disk is well again, but what the kernel dropped is not known: still refused.
    *fault.lock().unwrap() = None;
    flush_one(&mut writer, 3).unwrap_err();
    writer.reopen().unwrap();
    flush_one(&mut writer, 4).unwrap();
    assert_eq!(numbers(&[&path]), [1, 4]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("audit.recovered"));
    verify(&path).unwrap();
}

#[test]
fn au_01_a_partly_written_batch_is_repaired_at_the_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let mut writer = writer(&path);
    flush_one(&mut writer, 1).unwrap();
    // As after ENOSPC in the middle of a write: half a line that nobody was promised.
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    std::io::Write::write_all(&mut file, b"{\"hash\":\"0123").unwrap();
    flush_one(&mut writer, 2).unwrap_err();
    writer.reopen().unwrap();
    flush_one(&mut writer, 3).unwrap();
    assert_eq!(numbers(&[&path]), [1, 3]);
    assert_eq!(verify(&path).unwrap().repairs, 1);
}

#[tokio::test]
async fn au_01_a_pipe_a_link_and_an_open_file_are_refused_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    assert!(open(&fifo).unwrap_err().to_string().contains("not a regular file"));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path().join("target"), &link).unwrap();
    assert!(open(&link).unwrap_err().to_string().contains("symbolic link"));
    let wide = dir.path().join("wide");
    std::fs::write(&wide, "").unwrap();
    std::fs::set_permissions(&wide, std::fs::Permissions::from_mode(0o640)).unwrap();
    assert!(open(&wide).unwrap_err().to_string().contains("chmod 0600"));
    assert!(open(&dir.path().join("none/audit.jsonl")).unwrap_err().to_string().contains("does not exist"));
    let taken = dir.path().join("taken");
    let _first = open(&taken).unwrap();
    assert!(open(&taken).unwrap_err().to_string().contains("another process"));
}

#[tokio::test]
async fn cs_34_a_torn_last_line_is_cut_off_and_logged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = open(&path).unwrap();
    audit.append_durable(call(1)).await.unwrap();
    audit.stop().await;
    let whole = std::fs::read(&path).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    // The head on record is after that line, as the checkpoint of a clean stop is; a torn line was never acknowledged.
    std::fs::remove_file(checkpoint::path_of(&path)).unwrap();
    for cut in [last + 1, last + 70, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let audit = open(&path).unwrap();
        audit.stop().await;
        assert_eq!(verify(&path).unwrap().repairs, 1);
        assert!(numbers(&[&path]).is_empty());
        std::fs::remove_file(checkpoint::path_of(&path)).unwrap();
    }
}

#[tokio::test]
async fn cs_34_any_other_damage_refuses_to_start_and_names_the_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = open(&path).unwrap();
    for number in 0..5 {
        audit.append_durable(call(number)).await.unwrap();
    }
    audit.stop().await;
    let whole = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let damaged = [
        whole.replacen("\"number\":2", "\"number\":3", 1),
        lines.iter().enumerate().filter(|(i, _)| *i != 4).map(|(_, l)| format!("{l}\n")).collect(),
        whole.replacen("get_vms\",\"details\":{\"number\":4", "get_vmS\",\"details\":{\"number\":4", 1),
    ];
    for (text, record) in damaged.iter().zip(["record 5", "record 5", "record 7"]) {
        std::fs::write(&path, text).unwrap();
        let error = open(&path).unwrap_err().to_string();
        assert!(error.contains(record) && error.contains("move it away"), "{error}");
        // Nothing was written over the evidence.
        assert_eq!(&std::fs::read_to_string(&path).unwrap(), text);
    }
    // A tail cut off at a line's end shows against the checkpoint.
    std::fs::write(&path, format!("{}\n", lines[..5].join("\n"))).unwrap();
    assert!(open(&path).unwrap_err().to_string().contains("the tail is missing"));
}

#[tokio::test]
async fn au_08_rotation_under_load_loses_and_repeats_nothing_and_the_chain_spans_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = open(&path).unwrap();
    let feeder = {
        let audit = audit.clone();
        tokio::spawn(async move {
            for number in 0..2000 {
                if number % 10 == 0 {
                    audit.append_durable(call(number)).await.unwrap();
                } else {
                    audit.append(call(number)).await.unwrap();
                }
            }
        })
    };
    let mut rotated = Vec::new();
    for round in 0..5 {
        // Wait until there is something in the file to rotate.
        while numbers(&[&path]).is_empty() && !feeder.is_finished() {
            tokio::task::yield_now().await;
        }
        let old = dir.path().join(format!("audit.jsonl.{round}"));
        std::fs::rename(&path, &old).unwrap();
        audit.reopen().await.unwrap();
        rotated.push(old);
    }
    feeder.await.unwrap();
    audit.stop().await;
    let mut files: Vec<&Path> = rotated.iter().map(PathBuf::as_path).collect();
    files.push(&path);
    assert_eq!(numbers(&files), (0..2000).collect::<Vec<_>>());
    let summary = verify_files(&files, None).unwrap();
    assert!(summary.from_genesis);
    let text = std::fs::read_to_string(&path).unwrap();
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["event"], "continue");
    assert_eq!(first["details"]["prev_file"], "audit.jsonl.4");
    assert_eq!(first["details"]["prev_hash"], first["prev"]);
    // Out of order, or with one missing, they do not verify.
    files.swap(1, 2);
    verify_files(&files, None).unwrap_err();
    // One alone does, from where it begins.
    assert!(!verify(&path).unwrap().from_genesis);
}

#[tokio::test]
async fn au_08_a_file_rotated_while_no_server_runs_is_continued() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = open(&path).unwrap();
    audit.append_durable(call(1)).await.unwrap();
    let early = std::fs::read(checkpoint::path_of(&path)).unwrap();
    audit.append_durable(call(2)).await.unwrap();
    audit.stop().await;
    // As after a kill: the checkpoint lags behind the file.
    std::fs::write(checkpoint::path_of(&path), early).unwrap();
    let old = dir.path().join("audit.jsonl-20270101");
    std::fs::rename(&path, &old).unwrap();
    let audit = open(&path).unwrap();
    audit.append_durable(call(3)).await.unwrap();
    audit.stop().await;
    assert!(verify_files(&[&old, &path], None).unwrap().from_genesis);
    assert_eq!(numbers(&[&old, &path]), [1, 2, 3]);
}

#[tokio::test]
async fn au_09_copytruncate_is_noticed_and_stops_mutations() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = open(&path).unwrap();
    audit.append_durable(call(1)).await.unwrap();
    let copy = dir.path().join("audit.jsonl.1");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
    let error = audit.append_durable(call(2)).await.unwrap_err().to_string();
    assert!(error.contains("copytruncate"), "{error}");
    assert!(audit.poisoned().is_some());
    audit.append(call(3)).await.unwrap_err();
    // SIGHUP recovers without a restart, and the chain goes on from the copy.
    audit.reopen().await.unwrap();
    audit.append_durable(call(4)).await.unwrap();
    assert!(audit.poisoned().is_none());
    audit.stop().await;
    assert_eq!(numbers(&[&copy, &path]), [1, 4]);
    assert!(verify_files(&[&copy, &path], None).unwrap().from_genesis);
}

#[tokio::test]
async fn a_new_file_that_cannot_be_used_leaves_a_healthy_trail_in_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let audit = open(&path).unwrap();
    audit.append_durable(call(1)).await.unwrap();
    let old = dir.path().join("audit.jsonl.1");
    std::fs::rename(&path, &old).unwrap();
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    audit.reopen().await.unwrap_err();
    audit.append_durable(call(2)).await.unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    audit.reopen().await.unwrap();
    audit.append_durable(call(3)).await.unwrap();
    audit.stop().await;
    assert_eq!(numbers(&[&old]), [1, 2]);
    assert_eq!(numbers(&[&path]), [3]);
    verify_files(&[&old, &path], None).unwrap();
}
