-- Work that one controller at a time does for all: which one, and until when.
CREATE TABLE singletons (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    expires_at BIGINT NOT NULL
);
