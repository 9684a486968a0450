//! The durable store: one SQLite file, write-ahead log, `synchronous=FULL`.
//!
//! One connection writes, one transaction per change. A write that fails for any reason but a lock held by somebody
//! else poisons the store: the engine no longer knows what the disk holds, and the only safe answer is to open the
//! file anew. Step marks live in their own table, keyed by set and step, and triggers refuse to change or delete one,
//! whatever the program above them does.

mod file;

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};

use crate::store::codec::{self, StepRow, Stored};
use crate::store::{
    AdmissionFacts, Admitted, Counts, Filter, Inserted, Limits, Store, StoreError, admit, check_successor,
    clock, needs_clock,
};
use crate::{ChangeSet, ChangeSetId, State, Target};

/// How long a write waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The latest time seen is written when it has moved this far; what a crash loses stays below the clock's slack.
const CLOCK_STEP: Duration = Duration::from_secs(30);

const PENDING: &str =
    "state IN ('planned', 'approved', 'applying') AND (deadline_ns IS NULL OR deadline_ns > ?1)";

/// Change sets in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    conn: Connection,
    path: PathBuf,
    /// The latest time seen, and the one on disk, which may lag by `CLOCK_STEP`.
    seen: Option<Timestamp>,
    seen_on_disk: Option<Timestamp>,
    poisoned: Option<String>,
}

impl SqliteStore {
    /// Opens a state file; makes one, readable by its owner only, where there is none.
    ///
    /// # Errors
    /// [`StoreError::File`], with the way out: the file is empty, foreign, of a later schema, damaged, or missing
    /// while its journal is there; or it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        file::prepare(path)?;
        let refuse = |error: rusqlite::Error| match engine(&error) {
            StoreError::Busy => StoreError::Busy,
            _ => file::refuse(path, &format!("cannot be used ({error}): restore it from a backup")),
        };
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let conn = Connection::open_with_flags(path, flags).map_err(refuse)?;
        conn.busy_timeout(BUSY_TIMEOUT).map_err(refuse)?;
        configure(&conn).map_err(refuse)?;
        if let Some(why) = damage(&conn).map_err(refuse)? {
            return Err(file::refuse(path, &format!("is damaged ({why}): restore it from a backup")));
        }
        let seen = read_clock(&conn).map_err(refuse)?;
        Ok(Self { conn, path: path.to_owned(), seen, seen_on_disk: seen, poisoned: None })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks the whole file: SQLite's structure, and every set against its digest. Returns what is wrong, in no
    /// particular order; nothing means all is well.
    #[must_use]
    pub fn check(&self) -> Vec<StoreError> {
        let mut problems = Vec::new();
        match self.conn.pragma_query_value(None, "integrity_check", |row| row.get::<_, String>(0)) {
            Ok(verdict) if verdict == "ok" => {}
            Ok(why) => problems.push(file::refuse(&self.path, &format!("is damaged ({why})"))),
            Err(error) => problems.push(engine(&error)),
        }
        match ids(&self.conn, &Filter::default()) {
            Ok(ids) => problems.extend(ids.iter().filter_map(|id| load(&self.conn, id).err())),
            Err(error) => problems.push(error),
        }
        problems
    }

    /// One transaction; an engine error poisons the store.
    fn write<T>(&mut self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if let Some(why) = &self.poisoned {
            return Err(StoreError::Poisoned { why: why.clone() });
        }
        let result = (|| {
            let tx = self
                .conn
                .transaction_with_behavior(TransactionBehavior::Immediate)
                .map_err(|error| engine(&error))?;
            let value = work(&tx)?;
            tx.commit().map_err(|error| engine(&error))?;
            Ok(value)
        })();
        if let Err(StoreError::Engine { why }) = &result {
            self.poisoned = Some(why.clone());
        }
        result
    }

    fn note_clock(&mut self, seen: Timestamp) {
        self.seen = Some(seen);
        self.seen_on_disk = Some(seen);
    }
}

impl Store for SqliteStore {
    fn insert(&mut self, set: &ChangeSet, limits: &Limits) -> Result<Inserted, StoreError> {
        let in_memory = self.seen;
        let (inserted, seen) = self.write(|conn| {
            let seen = advance_clock(conn, in_memory, set.updated())?;
            let facts = admission_facts(conn, set)?;
            Ok(match admit(set, facts, limits) {
                Err(refusal) => (Inserted::Refused(refusal), seen),
                Ok(Admitted::Existing(old)) => (Inserted::Existing(old), seen),
                Ok(Admitted::New) => {
                    if version(conn, &set.id().to_string())?.is_some() {
                        return Err(StoreError::DuplicateId { id: set.id() });
                    }
                    write_new(conn, set)?;
                    (Inserted::Stored, seen)
                }
            })
        })?;
        self.note_clock(seen);
        Ok(inserted)
    }

    fn load(&self, id: &ChangeSetId) -> Result<Option<ChangeSet>, StoreError> {
        load(&self.conn, &id.to_string())
    }

    fn replace_if(&mut self, set: &ChangeSet, expected_version: u64) -> Result<bool, StoreError> {
        let in_memory = self.seen;
        let (replaced, seen) = self.write(|conn| {
            let Some(stored) =
                load(conn, &set.id().to_string())?.filter(|old| old.version() == expected_version)
            else {
                return Ok((false, None));
            };
            check_successor(&stored, set)?;
            let seen =
                if needs_clock(set) { Some(advance_clock(conn, in_memory, set.updated())?) } else { None };
            write_next(conn, set, expected_version)?;
            Ok((true, seen))
        })?;
        if let Some(seen) = seen {
            self.note_clock(seen);
        }
        Ok(replaced)
    }

    fn list(&self, filter: &Filter) -> Result<Vec<ChangeSet>, StoreError> {
        let mut sets = Vec::new();
        for id in ids(&self.conn, filter)? {
            sets.extend(load(&self.conn, &id)?.filter(|set| filter.admits(set)));
        }
        Ok(sets)
    }

    fn pending_for(
        &self,
        planner_token: &str,
        target: &Target,
        now: Timestamp,
    ) -> Result<Option<ChangeSetId>, StoreError> {
        pending_for(&self.conn, planner_token, target, now)
    }

    fn counts(&self) -> Result<Counts, StoreError> {
        let count = |condition: &str| {
            let sql = format!("SELECT count(*) FROM change_set {condition}");
            self.conn.query_row(&sql, [], as_usize).map_err(|error| engine(&error))
        };
        Ok(Counts {
            total: count("")?,
            planned: count("WHERE state = 'planned'")?,
            approved: count("WHERE state = 'approved'")?,
            applying: count("WHERE state = 'applying'")?,
            unknown: count("WHERE state = 'unknown'")?,
        })
    }

    fn observe_time(&mut self, now: Timestamp) -> Result<Timestamp, StoreError> {
        let seen = match clock(self.seen, now) {
            Ok(seen) => seen,
            // The disk decides, because a person may have accepted the time from another process.
            Err(_) => self.write(|conn| advance_clock(conn, None, now))?,
        };
        let write_from = self.seen_on_disk.map(|on_disk| crate::time::later(on_disk, CLOCK_STEP));
        if write_from.is_none_or(|from| seen >= from) {
            let seen = self.write(|conn| advance_clock(conn, Some(seen), now))?;
            self.note_clock(seen);
        } else if let Some(why) = &self.poisoned {
            return Err(StoreError::Poisoned { why: why.clone() });
        }
        self.seen = Some(seen);
        Ok(seen)
    }

    fn accept_time(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.write(|conn| write_clock(conn, now))?;
        self.note_clock(now);
        Ok(())
    }

    fn poisoned(&self) -> Option<&str> {
        self.poisoned.as_deref()
    }
}

fn configure(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", true)?;
    conn.pragma_update(None, "trusted_schema", false)?;
    conn.pragma_update(None, "cell_size_check", true)
}

/// What is wrong with the file; `None` when nothing is.
fn damage(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let journal: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if journal != "wal" {
        return Ok(Some(format!("its journal is `{journal}`, not `wal`")));
    }
    let verdict: String = conn.pragma_query_value(None, "quick_check", |row| row.get(0))?;
    if verdict != "ok" {
        return Ok(Some(verdict));
    }
    // A schema that lost a trigger still answers queries, but no longer keeps its promises.
    let reference = Connection::open_in_memory()?;
    reference.execute_batch(file::SCHEMA)?;
    if schema(conn)? != schema(&reference)? {
        return Ok(Some("its tables are not those of its schema version".to_owned()));
    }
    Ok(None)
}

fn schema(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement =
        conn.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn admission_facts(conn: &Connection, set: &ChangeSet) -> Result<AdmissionFacts, StoreError> {
    let planner = &set.plan().planner().token;
    let now = nanoseconds(set.updated());
    let same_key: Option<String> = conn
        .query_row(
            "SELECT id FROM change_set WHERE planner = ?1 AND idempotency_key = ?2",
            params![planner, set.plan().idempotency_key()],
            |row| row.get(0),
        )
        .optional()
        .map_err(|error| engine(&error))?;
    let same_key = match same_key {
        Some(id) => load(conn, &id)?,
        None => None,
    };
    let total = format!("SELECT count(*) FROM change_set WHERE {PENDING}");
    let by_planner = format!("{total} AND planner = ?2");
    Ok(AdmissionFacts {
        same_key,
        pending_on_target: pending_for(conn, planner, set.plan().target(), set.updated())?,
        pending_by_planner: conn
            .query_row(&by_planner, params![now, planner], as_usize)
            .map_err(|error| engine(&error))?,
        pending_total: conn.query_row(&total, params![now], as_usize).map_err(|error| engine(&error))?,
    })
}

fn pending_for(
    conn: &Connection,
    planner: &str,
    target: &Target,
    now: Timestamp,
) -> Result<Option<ChangeSetId>, StoreError> {
    let sql = format!(
        "SELECT id FROM change_set WHERE {PENDING} AND planner = ?2 AND cluster = ?3 AND target = ?4 ORDER BY id LIMIT 1"
    );
    let id: Option<String> = conn
        .query_row(&sql, params![nanoseconds(now), planner, target.cluster, target.key], |row| row.get(0))
        .optional()
        .map_err(|error| engine(&error))?;
    id.map(|id| parse_id(&id)).transpose()
}

fn version(conn: &Connection, id: &str) -> Result<Option<i64>, StoreError> {
    conn.query_row("SELECT version FROM change_set WHERE id = ?1", [id], |row| row.get(0))
        .optional()
        .map_err(|error| engine(&error))
}

fn ids(conn: &Connection, filter: &Filter) -> Result<Vec<String>, StoreError> {
    let mut statement = conn
        .prepare_cached(
            "SELECT id FROM change_set
             WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR planner = ?2) AND (?3 IS NULL OR cluster = ?3)
               AND (?4 = 0 OR state IN ('planned', 'approved', 'applying')) AND (?5 IS NULL OR created_ns >= ?5)
             ORDER BY created_ns DESC, id LIMIT ?6",
        )
        .map_err(|error| engine(&error))?;
    let rows = statement
        .query_map(
            params![
                filter.state.map(State::as_str),
                filter.planner,
                filter.cluster,
                filter.pending_only,
                filter.created_since.map(nanoseconds),
                // SQLite reads a negative limit as none.
                filter.newest.map_or(-1, |newest| i64::try_from(newest).unwrap_or(i64::MAX)),
            ],
            |row| row.get(0),
        )
        .map_err(|error| engine(&error))?;
    rows.collect::<Result<_, _>>().map_err(|error| engine(&error))
}

/// The columns that queries use; they repeat what the body says.
#[derive(Debug, PartialEq, Eq)]
struct Columns {
    planner: String,
    cluster: String,
    target: String,
    idempotency_key: Option<String>,
    created_ns: i64,
    deadline_ns: Option<i64>,
}

impl Columns {
    fn of(set: &ChangeSet) -> Self {
        Self {
            planner: set.plan().planner().token.clone(),
            cluster: set.plan().target().cluster.clone(),
            target: set.plan().target().key.clone(),
            idempotency_key: set.plan().idempotency_key().map(str::to_owned),
            created_ns: nanoseconds(set.plan().created()),
            deadline_ns: set.deadline().map(nanoseconds),
        }
    }
}

fn load(conn: &Connection, id: &str) -> Result<Option<ChangeSet>, StoreError> {
    let found = conn
        .prepare_cached(
            "SELECT version, state, digest, body, planner, cluster, target, idempotency_key, created_ns, deadline_ns
             FROM change_set WHERE id = ?1",
        )
        .and_then(|mut statement| statement.query_row([id], |row| Ok((read_row(row)?, read_columns(row)?))).optional())
        .map_err(|error| unreadable(id, &error))?;
    let Some(((version, state, digest, body), columns)) = found else {
        return Ok(None);
    };
    let damaged = |why: &str| StoreError::Damaged { id: id.to_owned(), why: why.to_owned() };
    let stored = Stored {
        id: parse_id(id)?,
        version: u64::try_from(version).map_err(|_| damaged("its version is negative"))?,
        state,
        digest,
        body,
        steps: load_steps(conn, id)?,
    };
    let set = codec::decode(&stored)?;
    if columns != Columns::of(&set) {
        return Err(damaged("its columns do not repeat its body"));
    }
    Ok(Some(set))
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<(i64, String, String, String)> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
}

fn read_columns(row: &Row<'_>) -> rusqlite::Result<Columns> {
    Ok(Columns {
        planner: row.get(4)?,
        cluster: row.get(5)?,
        target: row.get(6)?,
        idempotency_key: row.get(7)?,
        created_ns: row.get(8)?,
        deadline_ns: row.get(9)?,
    })
}

fn load_steps(conn: &Connection, id: &str) -> Result<Vec<StepRow>, StoreError> {
    let read = |row: &Row<'_>| -> rusqlite::Result<(usize, StepRow)> {
        let step: i64 = row.get(0)?;
        let marks = StepRow { intent: row.get(1)?, handle: row.get(2)?, outcome: row.get(3)? };
        Ok((usize::try_from(step).unwrap_or(usize::MAX), marks))
    };
    let rows: Vec<(usize, StepRow)> = conn
        .prepare_cached("SELECT step, intent, handle, outcome FROM step WHERE set_id = ?1 ORDER BY step")
        .and_then(|mut statement| statement.query_map([id], read)?.collect())
        .map_err(|error| unreadable(id, &error))?;
    if rows.iter().enumerate().any(|(expected, (step, _))| expected != *step) {
        return Err(StoreError::Damaged { id: id.to_owned(), why: "a step row is missing".to_owned() });
    }
    Ok(rows.into_iter().map(|(_, marks)| marks).collect())
}

fn write_new(conn: &Connection, set: &ChangeSet) -> Result<(), StoreError> {
    let (stored, columns) = (codec::encode(set)?, Columns::of(set));
    conn.execute(
        "INSERT INTO change_set (id, version, state, planner, cluster, target, idempotency_key, created_ns,
                                 deadline_ns, digest, body)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        params![
            stored.id.to_string(),
            integer(stored.version),
            stored.state,
            columns.planner,
            columns.cluster,
            columns.target,
            columns.idempotency_key,
            columns.created_ns,
            columns.deadline_ns,
            stored.digest,
            stored.body,
        ],
    )
    .map_err(|error| engine(&error))?;
    for (step, marks) in (0_i64..).zip(&stored.steps) {
        conn.execute(
            "INSERT INTO step (set_id, step, intent, handle, outcome) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![stored.id.to_string(), step, marks.intent, marks.handle, marks.outcome],
        )
        .map_err(|error| engine(&error))?;
    }
    Ok(())
}

fn write_next(conn: &Connection, set: &ChangeSet, expected_version: u64) -> Result<(), StoreError> {
    let (stored, columns) = (codec::encode(set)?, Columns::of(set));
    let id = stored.id.to_string();
    conn.execute(
        "UPDATE change_set SET version = ?2, state = ?3, deadline_ns = ?4, body = ?5 WHERE id = ?1 AND version = ?6",
        params![
            id,
            integer(stored.version),
            stored.state,
            columns.deadline_ns,
            stored.body,
            integer(expected_version)
        ],
    )
    .map_err(|error| engine(&error))?;
    for (step, marks) in (0_i64..).zip(&stored.steps) {
        conn.execute(
            "UPDATE step SET intent = ?3, handle = ?4, outcome = ?5 WHERE set_id = ?1 AND step = ?2
             AND (intent IS NOT ?3 OR handle IS NOT ?4 OR outcome IS NOT ?5)",
            params![id, step, marks.intent, marks.handle, marks.outcome],
        )
        .map_err(|error| engine(&error))?;
    }
    Ok(())
}

/// The latest time seen, here, on disk and now; written when it has grown.
fn advance_clock(
    conn: &Connection,
    in_memory: Option<Timestamp>,
    now: Timestamp,
) -> Result<Timestamp, StoreError> {
    let on_disk = read_clock(conn).map_err(|error| engine(&error))?;
    let seen = clock(on_disk.max(in_memory), now)?;
    if on_disk != Some(seen) {
        write_clock(conn, seen)?;
    }
    Ok(seen)
}

fn read_clock(conn: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let ns: Option<i64> =
        conn.query_row("SELECT seen_ns FROM clock WHERE one = 1", [], |row| row.get(0)).optional()?;
    Ok(ns.and_then(|ns| Timestamp::from_nanosecond(i128::from(ns)).ok()))
}

fn write_clock(conn: &Connection, seen: Timestamp) -> Result<(), StoreError> {
    conn.execute(
        "INSERT INTO clock (one, seen_ns) VALUES (1, ?1) ON CONFLICT (one) DO UPDATE SET seen_ns = excluded.seen_ns",
        [nanoseconds(seen)],
    )
    .map(|_| ())
    .map_err(|error| engine(&error))
}

/// For comparing, not for keeping: the body holds the exact time. Reaches to the year 2262.
fn nanoseconds(at: Timestamp) -> i64 {
    let within = at.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into());
    i64::try_from(within).unwrap_or_default()
}

/// SQLite has signed integers; no version counts that far.
fn integer(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// A `count(*)`, which is never negative.
fn as_usize(row: &Row<'_>) -> rusqlite::Result<usize> {
    row.get::<_, i64>(0).map(|n| usize::try_from(n).unwrap_or(0))
}

fn parse_id(id: &str) -> Result<ChangeSetId, StoreError> {
    id.parse()
        .map_err(|_| StoreError::Damaged { id: id.to_owned(), why: "its identifier is none".to_owned() })
}

/// A row that cannot be read as what its column should hold is damage; the rest is the engine's failure.
fn unreadable(id: &str, error: &rusqlite::Error) -> StoreError {
    match error {
        rusqlite::Error::SqliteFailure(..) => engine(error),
        _ => StoreError::Damaged { id: id.to_owned(), why: error.to_string() },
    }
}

fn engine(error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Busy,
        _ => StoreError::Engine { why: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::{draft, planned};

    fn open() -> (tempfile::TempDir, SqliteStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path().join("state.db")).unwrap();
        (dir, store)
    }

    #[test]
    fn cs_23_every_commit_is_synced() {
        let (_dir, store) = open();
        let pragma =
            |name: &str| store.conn.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(pragma("synchronous"), 2, "FULL");
        assert_eq!(pragma("foreign_keys"), 1);
        assert_eq!(pragma("user_version"), i64::from(file::SCHEMA_VERSION));
        assert_eq!(pragma("application_id"), i64::from(file::APPLICATION_ID));
        let journal: String = store.conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
        assert_eq!(journal, "wal");
    }

    #[test]
    fn a_bare_name_is_kept_in_the_working_directory() {
        for (path, directory) in
            [("state.db", "."), ("./state.db", "."), ("a/state.db", "a"), ("/state.db", "/")]
        {
            assert_eq!(file::directory_of(Path::new(path)), Path::new(directory), "{path}");
        }
    }

    #[test]
    fn times_beyond_the_column_are_compared_as_its_ends() {
        assert_eq!(nanoseconds(Timestamp::MIN), i64::MIN);
        assert_eq!(nanoseconds(Timestamp::UNIX_EPOCH), 0);
        assert_eq!(nanoseconds(Timestamp::MAX), i64::MAX);
    }

    #[test]
    fn what_the_engine_cannot_do_is_no_damage_to_a_set() {
        use rusqlite::{Error, ffi};
        let failure = |code| Error::SqliteFailure(ffi::Error::new(code), None);
        assert!(matches!(unreadable("cs_x", &failure(ffi::SQLITE_IOERR)), StoreError::Engine { .. }));
        assert_eq!(unreadable("cs_x", &failure(ffi::SQLITE_BUSY)), StoreError::Busy);
        assert_eq!(unreadable("cs_x", &failure(ffi::SQLITE_LOCKED)), StoreError::Busy);
        let wrong_type = Error::InvalidColumnType(3, "body".to_owned(), rusqlite::types::Type::Null);
        assert!(matches!(unreadable("cs_x", &wrong_type), StoreError::Damaged { id, .. } if id == "cs_x"));
    }

    #[test]
    fn cs_33_a_full_disk_poisons_the_store_and_loses_nothing() {
        let (_dir, mut store) = open();
        let pages: i64 = store.conn.pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
        store.conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
        let mut acknowledged = Vec::new();
        let error = loop {
            let mut plan = draft(u8::try_from(acknowledged.len()).unwrap());
            plan.preview.text = "x".repeat(30_000);
            let set = planned(plan);
            match store.insert(&set, &Limits { pending_per_planner: 99, pending_total: 99 }) {
                Ok(_) => acknowledged.push(set),
                Err(error) => break error,
            }
        };
        assert!(matches!(&error, StoreError::Engine { why } if why.contains("full")), "{error}");
        assert!(store.poisoned().is_some());
        for set in acknowledged {
            assert_eq!(store.load(&set.id()), Ok(Some(set)));
        }
        assert_eq!(store.check(), []);
    }
}
