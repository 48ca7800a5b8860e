-- Who may do what: tenants, their users, the tokens users hold, and the log of what they did.
CREATE TABLE tenants (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
);

-- Everything belongs to this tenant until tenants are managed.
INSERT INTO tenants (id, name, created_at) VALUES ('ten_00000000000000000000000000000001', 'default', 0);

CREATE TABLE users (
    name          TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63),
    tenant        TEXT NOT NULL REFERENCES tenants (id),
    role          TEXT NOT NULL CHECK (role IN ('admin', 'viewer')),
    password_hash TEXT NOT NULL,
    created_at    BIGINT NOT NULL
);

-- Only the SHA-256 of a token is kept.
CREATE TABLE tokens (
    hash         TEXT PRIMARY KEY CHECK (length(hash) = 64),
    user_name    TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    CHECK (expires_at > created_at)
);
CREATE INDEX tokens_by_expiry ON tokens (expires_at);

-- Rows are only ever added.
CREATE TABLE audit (
    id           TEXT PRIMARY KEY,
    at           BIGINT NOT NULL,
    actor        TEXT NOT NULL,
    action       TEXT NOT NULL,
    subject      TEXT NOT NULL,
    before_state TEXT,
    after_state  TEXT
);
CREATE INDEX audit_by_time ON audit (at);
