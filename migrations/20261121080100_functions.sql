-- Desired state of what runs: functions, their immutable versions, and the apps bound to them.

-- The source of every revision. Its row is locked by whoever changes desired state, so revisions are committed in their order.
CREATE TABLE counters (
    name  TEXT PRIMARY KEY,
    value BIGINT NOT NULL CHECK (value >= 0)
);
INSERT INTO counters (name, value) VALUES ('revision', 0);

-- The row of a deleted function stays, so that its version numbers are never given twice.
CREATE TABLE functions (
    tenant       TEXT NOT NULL REFERENCES tenants (id),
    name         TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 63),
    last_version BIGINT NOT NULL CHECK (last_version >= 0),
    created_at   BIGINT NOT NULL,
    deleted_at   BIGINT,
    PRIMARY KEY (tenant, name)
);

CREATE TABLE versions (
    tenant     TEXT NOT NULL,
    function   TEXT NOT NULL,
    number     BIGINT NOT NULL CHECK (number BETWEEN 1 AND 4294967295),
    digest     TEXT NOT NULL CHECK (length(digest) = 71),
    size       BIGINT NOT NULL CHECK (size > 0),
    manifest   TEXT NOT NULL,
    secrets    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (tenant, function, number),
    FOREIGN KEY (tenant, function) REFERENCES functions (tenant, name)
);
CREATE INDEX versions_by_digest ON versions (digest);

CREATE TABLE apps (
    name              TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63),
    tenant            TEXT NOT NULL REFERENCES tenants (id),
    host              TEXT NOT NULL UNIQUE,
    workflow          TEXT NOT NULL,
    version           BIGINT NOT NULL CHECK (version > 0),
    previous_version  BIGINT CHECK (previous_version > 0),
    primaries         TEXT NOT NULL,
    revision          BIGINT NOT NULL CHECK (revision > 0),
    bindings_revision BIGINT NOT NULL CHECK (bindings_revision > 0),
    deployed_at       BIGINT NOT NULL,
    FOREIGN KEY (tenant, name, version) REFERENCES versions (tenant, function, number)
);
