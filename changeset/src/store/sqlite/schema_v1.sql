CREATE TABLE change_set (
    id              TEXT PRIMARY KEY NOT NULL,
    version         INTEGER NOT NULL,
    state           TEXT NOT NULL,
    planner         TEXT NOT NULL,
    cluster         TEXT NOT NULL,
    target          TEXT NOT NULL,
    idempotency_key TEXT,
    created_ns      INTEGER NOT NULL,
    deadline_ns     INTEGER,
    digest          TEXT NOT NULL,
    body            TEXT NOT NULL
) STRICT;
CREATE TABLE step (
    set_id  TEXT NOT NULL REFERENCES change_set (id),
    step    INTEGER NOT NULL,
    intent  TEXT,
    handle  TEXT,
    outcome TEXT,
    PRIMARY KEY (set_id, step)
) STRICT;
CREATE TABLE clock (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    seen_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX change_set_by_state ON change_set (state, planner);
CREATE UNIQUE INDEX change_set_by_key ON change_set (planner, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TRIGGER change_set_stays BEFORE DELETE ON change_set
BEGIN
    SELECT RAISE(ABORT, 'change sets are never deleted');
END;
CREATE TRIGGER step_stays BEFORE DELETE ON step
BEGIN
    SELECT RAISE(ABORT, 'step marks are never deleted');
END;
CREATE TRIGGER step_marks_are_set_once BEFORE UPDATE ON step
WHEN (OLD.intent IS NOT NULL AND NEW.intent IS NOT OLD.intent)
    OR (OLD.handle IS NOT NULL AND NEW.handle IS NOT OLD.handle)
    OR (OLD.outcome IS NOT NULL AND NEW.outcome IS NOT OLD.outcome)
BEGIN
    SELECT RAISE(ABORT, 'step marks are set once');
END;
CREATE TRIGGER plan_is_fixed BEFORE UPDATE ON change_set
WHEN NEW.id IS NOT OLD.id OR NEW.digest IS NOT OLD.digest OR NEW.version <= OLD.version
BEGIN
    SELECT RAISE(ABORT, 'a plan never changes and versions only grow');
END;
