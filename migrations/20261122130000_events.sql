-- What happened, numbered, for readers who follow it: the newest rows only, older ones are removed. `source` says what a row was made from, so
-- that it is made once.
CREATE TABLE events (
    id      BIGINT PRIMARY KEY CHECK (id > 0),
    at      BIGINT NOT NULL,
    kind    TEXT NOT NULL,
    action  TEXT NOT NULL,
    subject TEXT NOT NULL,
    tenant  TEXT,
    app     TEXT,
    detail  TEXT,
    source  TEXT NOT NULL UNIQUE
);
-- How far what events are made from was read, and what was last said of each thing.
CREATE TABLE event_marks (
    subject TEXT PRIMARY KEY,
    value   TEXT NOT NULL
);
CREATE INDEX plans_by_revision ON plans (revision);
