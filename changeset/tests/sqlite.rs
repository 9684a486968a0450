//! The durable store: the contract, the file gate, damage, poison, and sixty-four at once.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]
#![cfg(feature = "sqlite")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use changeset::store::{Inserted, Limits, Store, StoreError, suite};
use changeset::{Apply, ApplyRefusal, ChangeSet, Effect, Event, MemoryStore, SqliteStore, State, Timing};
use common::{agent, approved, at, draft, fingerprint, human, key, planned};
use rusqlite::Connection;
use tempfile::TempDir;

mod common;

fn dir() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    (dir, path)
}

/// A file with one approved set, closed.
fn filled(path: &Path) -> ChangeSet {
    let set = approved(draft(1));
    let mut store = SqliteStore::open(path).unwrap();
    insert_approved(&mut store, &set);
    set
}

fn insert_approved(store: &mut dyn Store, set: &ChangeSet) {
    let first = planned(draft(1));
    assert_eq!(store.insert(&first, &Limits::default()), Ok(Inserted::Stored));
    assert_eq!(store.replace_if(set, first.version()), Ok(true));
}

fn refusal(path: &Path) -> String {
    match SqliteStore::open(path) {
        Err(error @ StoreError::File { .. }) => error.to_string(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[test]
fn cs_15_cs_16_cs_19_cs_37_the_sqlite_store_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let mut n = 0;
    let fresh = || {
        n += 1;
        SqliteStore::open(dir.path().join(format!("state-{n}.db"))).unwrap()
    };
    assert_eq!(suite::run(fresh), Ok(10));
}

#[test]
fn cs_14_cs_15_acknowledged_state_survives_a_restart() {
    let (_dir, path) = dir();
    assert_eq!(suite::run_durable(|| SqliteStore::open(&path).unwrap()), Ok(()));
    assert!(SqliteStore::open(&path).unwrap().check().is_empty());
}

#[test]
fn cs_14_an_expired_set_is_expired_after_a_restart_too() {
    let (_dir, path) = dir();
    let set = filled(&path);
    let store = SqliteStore::open(&path).unwrap();
    let found = store.load(&set.id()).unwrap().unwrap();
    let end = found.deadline().unwrap();
    assert!(found.is_overdue(end));
    let (_, effect) = Apply::begin(found, agent("bot"), &key(), Timing::default(), end);
    assert!(matches!(effect, Effect::Refuse(ApplyRefusal::Expired { .. })), "{effect:?}");
}

#[test]
fn cs_15_an_operator_may_accept_the_time_from_another_process() {
    let (_dir, path) = dir();
    let mut server = SqliteStore::open(&path).unwrap();
    server.observe_time(at(86_400)).unwrap();
    assert!(matches!(server.observe_time(at(0)), Err(StoreError::ClockSetBack { .. })));
    SqliteStore::open(&path).unwrap().accept_time(at(0)).unwrap();
    assert_eq!(server.observe_time(at(0)), Ok(at(0)));
    assert_eq!(server.poisoned(), None, "a refused clock is no failed write");
}

#[test]
fn the_file_is_its_owners_alone() {
    let (dir, path) = dir();
    filled(&path);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["state.db"], "a closed store leaves its one file");
}

#[test]
fn cs_34_what_is_no_state_file_is_refused_with_a_way_out() {
    let (_dir, path) = dir();
    let cases: [(&[u8], &str); 4] = [
        (b"", "restore it from a backup, or remove it"),
        (b"{\"change_sets\": []}", "is a JSON file"),
        (b"hello", "name another file"),
        (b"SQLite format 3\0 and no more", "name another file"),
    ];
    for (bytes, way_out) in cases {
        fs::write(&path, bytes).unwrap();
        assert!(refusal(&path).contains(way_out), "{}", refusal(&path));
        assert_eq!(fs::read(&path).unwrap(), bytes, "a refused file is left as it was");
    }
}

#[test]
fn cs_34_another_programs_database_is_refused_untouched() {
    let (_dir, path) = dir();
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (x); PRAGMA user_version = 1").unwrap();
    let before = fs::read(&path).unwrap();
    assert!(refusal(&path).contains("name another file"));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn cs_34_a_later_schema_is_refused_untouched() {
    let (_dir, path) = dir();
    filled(&path);
    Connection::open(&path)
        .unwrap()
        .execute_batch("PRAGMA journal_mode = DELETE; PRAGMA user_version = 2")
        .unwrap();
    let before = fs::read(&path).unwrap();
    let why = refusal(&path);
    assert!(why.contains("has schema 2, this version knows 1") && why.contains("newer version"), "{why}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn cs_34_a_schema_that_never_was_is_refused() {
    for version in [0, -1] {
        let (_dir, path) = dir();
        filled(&path);
        let sql = format!("PRAGMA journal_mode = DELETE; PRAGMA user_version = {version}");
        Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let why = refusal(&path);
        assert!(why.contains(&format!("has schema {version}, which never existed")), "{why}");
    }
}

#[test]
fn cs_34_a_path_that_cannot_be_opened_is_no_missing_file() {
    let (_dir, path) = dir();
    fs::write(&path, b"a file, and no directory").unwrap();
    let why = refusal(&path.join("state.db"));
    assert!(why.contains("cannot be opened"), "{why}");
}

#[test]
fn cs_34_a_missing_file_whose_journal_is_there_is_refused() {
    let (_dir, path) = dir();
    fs::write(path.with_extension("db-wal"), b"x").unwrap();
    assert!(refusal(&path).contains("is missing, but its journal"));
    assert!(!path.exists());
}

#[test]
fn cs_34_a_truncated_or_scribbled_file_is_refused() {
    let (_dir, path) = dir();
    filled(&path);
    let whole = fs::read(&path).unwrap();
    for length in [99, 100, 4096, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(refusal(&path).contains("backup"), "{length} bytes");
    }
    for page in 0..whole.len() / 4096 {
        let mut scribbled = whole.clone();
        // Behind the header of the first page, which the gate reads.
        let from = page * 4096 + if page == 0 { 100 } else { 0 };
        scribbled[from..from + 64].fill(0xA5);
        fs::write(&path, &scribbled).unwrap();
        assert!(refusal(&path).contains("backup"), "page {page}");
    }
}

/// What a crash leaves that came while the journal was written back: the header is new, the end is still missing.
#[test]
fn cs_23_a_file_that_is_too_short_is_whole_together_with_its_journal() {
    let (_dir, path) = dir();
    filled(&path);
    let before = fs::read(&path).unwrap();
    let mut plan = draft(2);
    plan.preview.text = "x".repeat(30_000);
    let large = planned(plan);
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.insert(&large, &Limits::default()), Ok(Inserted::Stored));
    let journal = fs::read(path.with_extension("db-wal")).unwrap();
    drop(store);
    let after = fs::read(&path).unwrap();
    assert!(after.len() > before.len());

    let cut = [&after[..4096], &before[4096..]].concat();
    fs::write(&path, &cut).unwrap();
    assert!(refusal(&path).contains("its header says"), "without its journal");
    fs::write(path.with_extension("db-wal"), &journal).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.load(&large.id()), Ok(Some(large)));
    assert_eq!(store.check(), []);
}

/// Opening a file reads what it needs; only the whole check holds every index against its table.
#[test]
fn an_index_that_disagrees_with_its_table_is_found_by_the_check() {
    let (_dir, path) = dir();
    let set = filled(&path);
    let root: u32 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'change_set_by_state'", [], |row| {
            row.get(0)
        })
        .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let page = bytes.chunks_mut(4096).nth(root as usize - 1).unwrap();
    let at = page.windows(11).position(|entry| entry == b"approvedbot").unwrap();
    page[at + 10] = b'u';
    fs::write(&path, &bytes).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.load(&set.id()), Ok(Some(set)));
    let problems = store.check();
    assert!(
        matches!(&problems[..], [StoreError::File { why, .. }] if why.contains("is damaged")),
        "{problems:?}"
    );
}

#[test]
fn a_schema_that_lost_a_trigger_is_refused() {
    let (_dir, path) = dir();
    filled(&path);
    Connection::open(&path).unwrap().execute_batch("DROP TRIGGER step_marks_are_set_once").unwrap();
    assert!(refusal(&path).contains("not those of its schema version"));
}

#[test]
fn what_a_crash_left_of_a_creation_is_no_obstacle() {
    let (_dir, path) = dir();
    fs::write(path.with_extension("db.new"), b"half").unwrap();
    fs::write(path.with_extension("db.new-journal"), b"half").unwrap();
    filled(&path);
    assert!(!path.with_extension("db.new").exists());
}

/// SQLite would take a journal beside the new file for its own.
#[test]
fn what_lies_beside_a_new_file_and_cannot_be_removed_keeps_it_from_being_made() {
    let (_dir, path) = dir();
    fs::create_dir(path.with_extension("db.new-journal")).unwrap();
    assert!(refusal(&path).contains("cannot be created"));
    assert!(!path.exists() && !path.with_extension("db.new").exists());
}

/// Every field of the plan and the approval, changed in the file behind the server's back.
#[test]
fn cs_05_a_set_changed_in_the_file_is_refused_by_name() {
    for (find, put, named) in [
        (r#"preview_text":"destroys"#, r#"preview_text":"keeps"#, "digest"),
        (r#""op":"destroy_lxc""#, r#""op":"destroy_qemu""#, "digest"),
        (r#""purge":"0""#, r#""purge":"1""#, "digest"),
        (r#""name":"web""#, r#""name":"db""#, "digest"),
        (r#""key":"guest/901""#, r#""key":"guest/902""#, "digest"),
        (r#""policy_version":"1""#, r#""policy_version":"2""#, "digest"),
        (r#""lab_mode":false"#, r#""lab_mode":true"#, "digest"),
        (r#""target_protected":false"#, r#""target_protected":true"#, "digest"),
        (r#""expires":"2026-12-01T12"#, r#""expires":"2027-12-01T12"#, "digest"),
        (r#""token":"bot","person":"bot""#, r#""token":"bot","person":"eve""#, "digest"),
        (r#""preview_facts":{"status":"stopped"}"#, r#""preview_facts":{}"#, "digest"),
        (r#""format":1"#, r#""format":2"#, "damaged"),
        (r#""ending":null"#, r#""ending":null,"extra":1"#, "damaged"),
    ] {
        let (_dir, path) = dir();
        let set = filled(&path);
        let conn = Connection::open(&path).unwrap();
        let changed = conn
            .execute("UPDATE change_set SET version = version + 1, body = replace(body, ?1, ?2)", [find, put])
            .unwrap();
        assert_eq!(changed, 1);
        let body: String = conn.query_row("SELECT body FROM change_set", [], |row| row.get(0)).unwrap();
        assert!(body.contains(put), "{find} is not in {body}");
        drop(conn);
        let mut store = SqliteStore::open(&path).unwrap();
        let found = store.load(&set.id());
        match (&found, named) {
            (Err(StoreError::DigestMismatch { id, .. }), "digest") => assert_eq!(*id, set.id()),
            (Err(StoreError::Damaged { .. }), "damaged") => {}
            other => panic!("{find}: {other:?}"),
        }
        assert!(store.list(&changeset::store::Filter::default()).is_err());
        assert_eq!(store.check().len(), 1);
        assert!(store.replace_if(&set, set.version() + 1).is_err(), "a changed set can be replaced");
    }
}

/// An approval edited in the file is no approval, even though the plan is whole.
#[test]
fn cs_05_an_approval_changed_in_the_file_is_void_at_apply() {
    for (find, put) in [
        (r#""token":"olga","person":"olga""#, r#""token":"piet","person":"piet""#),
        (
            r#""at":"2026-11-30T12:01:00Z","expires":"2026-11-30T13:01"#,
            r#""at":"2026-11-30T12:01:00Z","expires":"2026-11-30T14:01"#,
        ),
        (r#""mac":""#, r#""mac":"00000000"#),
    ] {
        let (_dir, path) = dir();
        let set = filled(&path);
        let conn = Connection::open(&path).unwrap();
        let body: String = conn.query_row("SELECT body FROM change_set", [], |row| row.get(0)).unwrap();
        let mut edited = body.replace(find, put);
        assert_ne!(edited, body, "{find}");
        if find.contains("mac") {
            let cut = edited.find(put).unwrap() + put.len();
            edited.replace_range(cut..cut + 8, "");
        }
        conn.execute("UPDATE change_set SET version = version + 1, body = ?1", [&edited]).unwrap();
        let deadline = edited.contains("T14:01");
        if deadline {
            conn.execute(
                "UPDATE change_set SET version = version + 1, deadline_ns = deadline_ns + 3600000000000",
                [],
            )
            .unwrap();
        }
        drop(conn);
        let found = SqliteStore::open(&path).unwrap().load(&set.id()).unwrap().unwrap();
        let (_, effect) = Apply::begin(found, agent("bot"), &key(), Timing::default(), at(62));
        assert!(matches!(effect, Effect::Refuse(ApplyRefusal::ApprovalVoid)), "{find}: {effect:?}");
    }
}

#[test]
fn cs_05_a_column_that_disagrees_with_the_body_is_damage() {
    for change in
        ["state = 'applied'", "planner = 'eve'", "target = 'guest/1'", "deadline_ns = NULL", "state = 'x'"]
    {
        let (_dir, path) = dir();
        let set = filled(&path);
        let sql = format!("UPDATE change_set SET version = version + 1, {change}");
        Connection::open(&path).unwrap().execute(&sql, []).unwrap();
        let found = SqliteStore::open(&path).unwrap().load(&set.id());
        assert!(matches!(found, Err(StoreError::Damaged { .. })), "{change}: {found:?}");
    }
}

/// The database itself refuses what no program may do.
#[test]
fn the_schema_keeps_marks_and_sets() {
    let (_dir, path) = dir();
    let set = filled(&path);
    let mut store = SqliteStore::open(&path).unwrap();
    let applying = intend(&mut store, &set);
    assert_eq!(applying.state(), State::Applying);
    let conn = Connection::open(&path).unwrap();
    for sql in [
        "DELETE FROM step",
        "DELETE FROM change_set",
        "UPDATE step SET intent = NULL",
        "UPDATE step SET intent = '{}'",
        "UPDATE change_set SET version = version + 1, digest = 'x'",
        "UPDATE change_set SET state = 'approved'",
    ] {
        assert!(conn.execute(sql, []).is_err(), "{sql} passed");
    }
    assert_eq!(store.load(&set.id()), Ok(Some(applying)));
}

/// Applies up to the durable intent.
fn intend(store: &mut dyn Store, set: &ChangeSet) -> ChangeSet {
    let (mut apply, _) = Apply::begin(set.clone(), agent("bot"), &key(), Timing::default(), at(61));
    apply.on(decided(), at(61)).unwrap();
    let effect = apply.on(watermark(), at(61)).unwrap();
    let Effect::Persist { set, expected_version, .. } = effect else { panic!("{effect:?}") };
    assert_eq!(store.replace_if(&set, expected_version), Ok(true));
    *set
}

fn decided() -> Event {
    Event::Decided { fingerprint: fingerprint(), approver_valid: true, planner_valid: true }
}

fn watermark() -> Event {
    Event::Watermark { tasks: vec!["UPID:old".to_owned()], node: "pve1".to_owned() }
}

#[test]
fn cs_33_a_failed_write_poisons_the_store() {
    let (_dir, path) = dir();
    let set = filled(&path);
    let mut store = SqliteStore::open(&path).unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TRIGGER fault BEFORE UPDATE ON change_set BEGIN SELECT RAISE(ABORT, 'input/output error'); END",
        )
        .unwrap();
    let gone = set.cancel(&agent("bot"), "", at(70)).unwrap();
    assert!(matches!(store.replace_if(&gone, set.version()), Err(StoreError::Engine { .. })));
    assert!(store.poisoned().is_some_and(|why| why.contains("input/output error")));
    Connection::open(&path).unwrap().execute_batch("DROP TRIGGER fault").unwrap();
    let refused = |result: Result<bool, StoreError>| matches!(result, Err(StoreError::Poisoned { .. }));
    assert!(refused(store.replace_if(&gone, set.version())), "the write was tried again");
    assert!(refused(store.insert(&planned(draft(2)), &Limits::default()).map(|_| true)));
    assert!(refused(store.observe_time(at(9_999)).map(|_| true)));
    assert!(refused(store.observe_time(at(71)).map(|_| true)), "also when nothing needs writing");
    assert!(refused(store.accept_time(at(71)).map(|()| true)));
    assert_eq!(store.load(&set.id()), Ok(Some(set.clone())), "reading goes on");
    drop(store);
    let mut store = SqliteStore::open(&path).unwrap();
    assert_eq!(store.replace_if(&gone, set.version()), Ok(true), "opening anew is the way out");
}

#[test]
fn a_lock_held_by_somebody_else_is_busy_and_no_poison() {
    let (_dir, path) = dir();
    let set = filled(&path);
    let mut store = SqliteStore::open(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let gone = set.cancel(&agent("bot"), "", at(70)).unwrap();
    assert_eq!(store.replace_if(&gone, set.version()), Err(StoreError::Busy));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.replace_if(&gone, set.version()), Ok(true));
}

/// Whoever opens it is told to try again, and not to restore a backup.
#[test]
fn a_file_that_somebody_else_holds_alone_is_busy() {
    let (_dir, path) = dir();
    filled(&path);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; ROLLBACK").unwrap();
    let opened = SqliteStore::open(&path);
    assert!(matches!(opened, Err(StoreError::Busy)), "{opened:?}");
    drop(other);
    assert!(SqliteStore::open(&path).is_ok());
}

/// Sixty-four applies at once, each over the shared store; counts what they were told.
fn race(store: impl Store + 'static) -> (usize, usize) {
    const CALLERS: usize = 64;
    let set = approved(draft(1));
    let store = Arc::new(Mutex::new(store));
    insert_approved(&mut *store.lock().unwrap(), &set);
    let barrier = Arc::new(Barrier::new(CALLERS));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (store, barrier, id) = (Arc::clone(&store), Arc::clone(&barrier), set.id());
            thread::spawn(move || {
                let set = store.lock().unwrap().load(&id).unwrap().unwrap();
                let (mut apply, _) = Apply::begin(set, agent("bot"), &key(), Timing::default(), at(61));
                apply.on(decided(), at(61)).unwrap();
                let effect = apply.on(watermark(), at(61)).unwrap();
                let Effect::Persist { set, expected_version, .. } = effect else { panic!("{effect:?}") };
                barrier.wait();
                let event = match store.lock().unwrap().replace_if(&set, expected_version) {
                    Ok(true) => Event::Persisted,
                    Ok(false) => Event::Conflict,
                    Err(error) => Event::PersistFailed(error.to_string()),
                };
                apply.on(event, at(61)).unwrap()
            })
        })
        .collect();
    let (mut sent, mut conflicts) = (0, 0);
    for caller in callers {
        match caller.join().unwrap() {
            Effect::Send { .. } => sent += 1,
            Effect::Refuse(ApplyRefusal::Conflict) => conflicts += 1,
            other => panic!("{other:?}"),
        }
    }
    (sent, conflicts)
}

#[test]
fn cs_16_of_64_applies_one_sends_sqlite() {
    let (_dir, path) = dir();
    assert_eq!(race(SqliteStore::open(&path).unwrap()), (1, 63));
}

#[test]
fn cs_16_of_64_applies_one_sends_memory() {
    assert_eq!(race(MemoryStore::new()), (1, 63));
}

/// Two processes with a connection each: the database's own lock decides.
#[test]
fn cs_16_of_two_connections_one_claims() {
    let (_dir, path) = dir();
    let set = filled(&path);
    let mut stores = [SqliteStore::open(&path).unwrap(), SqliteStore::open(&path).unwrap()];
    let barrier = Barrier::new(2);
    let won: Vec<bool> = thread::scope(|scope| {
        let claims: Vec<_> = stores
            .iter_mut()
            .map(|store| {
                let (set, barrier) = (&set, &barrier);
                scope.spawn(move || {
                    let gone = set.cancel(&human("olga"), "", at(70)).unwrap();
                    barrier.wait();
                    store.replace_if(&gone, set.version()).unwrap()
                })
            })
            .collect();
        claims.into_iter().map(|claim| claim.join().unwrap()).collect()
    });
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
}
