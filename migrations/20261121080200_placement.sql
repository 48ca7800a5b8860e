-- Where calls go. Desired: plans, bindings, what DNS was told of the network. Observed: everything else.

CREATE TABLE plans (
    app          TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    client_group TEXT NOT NULL,
    stages       TEXT NOT NULL,
    explanation  TEXT NOT NULL,
    revision     BIGINT NOT NULL CHECK (revision > 0),
    planned_at   BIGINT NOT NULL,
    PRIMARY KEY (app, client_group)
);

CREATE TABLE bindings (
    app          TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    prefix       TEXT NOT NULL,
    cluster      TEXT NOT NULL,
    client_group TEXT NOT NULL,
    revision     BIGINT NOT NULL CHECK (revision > 0),
    PRIMARY KEY (app, prefix)
);

CREATE TABLE network (
    id       BIGINT PRIMARY KEY CHECK (id = 1),
    state    TEXT NOT NULL,
    revision BIGINT NOT NULL CHECK (revision > 0)
);

CREATE TABLE demand (
    app       TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    prefix    TEXT NOT NULL,
    queries   BIGINT NOT NULL CHECK (queries >= 0),
    last_seen BIGINT NOT NULL,
    PRIMARY KEY (app, prefix)
);
CREATE INDEX demand_by_last_seen ON demand (app, last_seen);

CREATE TABLE clusters (
    id         TEXT PRIMARY KEY,
    region     TEXT NOT NULL,
    lat        DOUBLE PRECISION NOT NULL CHECK (lat BETWEEN -90 AND 90),
    lon        DOUBLE PRECISION NOT NULL CHECK (lon BETWEEN -180 AND 180),
    created_at BIGINT NOT NULL
);

CREATE TABLE nodes (
    id         TEXT PRIMARY KEY,
    cluster    TEXT NOT NULL REFERENCES clusters (id),
    gateway    TEXT NOT NULL,
    admin      TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE node_status (
    node     TEXT PRIMARY KEY REFERENCES nodes (id) ON DELETE CASCADE,
    boot     TEXT NOT NULL,
    sequence BIGINT NOT NULL CHECK (sequence >= 0),
    status   TEXT NOT NULL,
    seen_at  BIGINT NOT NULL
);

CREATE TABLE rtt (
    prefix     TEXT NOT NULL,
    cluster    TEXT NOT NULL,
    rtt_ms     DOUBLE PRECISION NOT NULL CHECK (rtt_ms >= 0),
    samples    BIGINT NOT NULL CHECK (samples > 0),
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (prefix, cluster)
);
CREATE INDEX rtt_by_update ON rtt (updated_at);
