-- Machines that operators let in: regions and clusters they made, tokens to join with, certificates, who takes no new work, who is head.

CREATE TABLE regions (
    name       TEXT PRIMARY KEY,
    lat        DOUBLE PRECISION NOT NULL CHECK (lat BETWEEN -90 AND 90),
    lon        DOUBLE PRECISION NOT NULL CHECK (lon BETWEEN -180 AND 180),
    created_at BIGINT NOT NULL
);

INSERT INTO regions (name, lat, lon, created_at)
SELECT c.region, c.lat, c.lon, c.created_at
FROM clusters c
WHERE c.id = (SELECT MIN(first.id) FROM clusters first WHERE first.region = c.region);

-- Empty: the cluster is there because its nodes say so, and goes when the last one goes.
ALTER TABLE clusters ADD COLUMN created_by TEXT;

-- The key is sealed with the network key.
CREATE TABLE authorities (
    id          TEXT PRIMARY KEY,
    certificate TEXT NOT NULL,
    sealed_key  TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    CHECK (expires_at > created_at)
);

-- Only the SHA-256 of a secret is kept.
CREATE TABLE join_tokens (
    id         TEXT PRIMARY KEY,
    hash       TEXT NOT NULL CHECK (length(hash) = 64),
    cluster    TEXT NOT NULL REFERENCES clusters (id) ON DELETE CASCADE,
    uses       BIGINT NOT NULL CHECK (uses > 0),
    uses_left  BIGINT NOT NULL CHECK (uses_left >= 0 AND uses_left <= uses),
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT,
    CHECK (expires_at > created_at)
);
CREATE INDEX join_tokens_by_expiry ON join_tokens (expires_at);

-- A node that was removed stays here until its certificates have ended, so that what it still says is not believed.
CREATE TABLE enrolments (
    node        TEXT PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    cluster     TEXT NOT NULL REFERENCES clusters (id),
    token       TEXT NOT NULL,
    addresses   TEXT NOT NULL,
    enrolled_at BIGINT NOT NULL,
    removed_at  BIGINT
);

CREATE TABLE certificates (
    serial     TEXT PRIMARY KEY,
    node       TEXT NOT NULL REFERENCES enrolments (node) ON DELETE CASCADE,
    public_key TEXT NOT NULL,
    issued_at  BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    revoked_at BIGINT,
    CHECK (expires_at > issued_at)
);
CREATE INDEX certificates_by_node ON certificates (node, issued_at);

CREATE TABLE cordons (
    node       TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL
);

CREATE TABLE head_leases (
    cluster    TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    epoch      BIGINT NOT NULL CHECK (epoch > 0),
    expires_at BIGINT NOT NULL
);
