-- Tenants have members with roles; a user may have a role in the network besides. Nobody is lost: an admin of before is an admin of the
-- network and owns the default tenant, a viewer of before looks at it. Whoever was logged in stays so.
ALTER TABLE tenants ADD COLUMN suspended_at BIGINT;
ALTER TABLE tenants ADD COLUMN generation BIGINT NOT NULL DEFAULT 1;

-- SQLite cannot change a CHECK: the table is made anew. It gets its old name when the old one is gone.
CREATE TABLE users_next (
    name                TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63),
    network_role        TEXT CHECK (network_role IN ('admin', 'operator')),
    password_hash       TEXT NOT NULL,
    created_at          BIGINT NOT NULL,
    disabled_at         BIGINT,
    password_changed_at BIGINT NOT NULL,
    generation          BIGINT NOT NULL CHECK (generation > 0)
);
INSERT INTO users_next (name, network_role, password_hash, created_at, password_changed_at, generation)
SELECT name, CASE role WHEN 'admin' THEN 'admin' END, password_hash, created_at, created_at, 1
FROM users;

CREATE TABLE members (
    tenant     TEXT NOT NULL REFERENCES tenants (id),
    user_name  TEXT NOT NULL REFERENCES users_next (name),
    role       TEXT NOT NULL CHECK (role IN ('owner', 'developer', 'viewer')),
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    generation BIGINT NOT NULL CHECK (generation > 0),
    PRIMARY KEY (tenant, user_name)
);
CREATE INDEX members_by_user ON members (user_name);
INSERT INTO members (tenant, user_name, role, created_at, created_by, generation)
SELECT tenant, name, CASE role WHEN 'admin' THEN 'owner' ELSE 'viewer' END, created_at, 'the network', 1
FROM users;

-- Only the SHA-256 of what a session is known by is kept.
CREATE TABLE sessions (
    id           TEXT PRIMARY KEY,
    hash         TEXT NOT NULL UNIQUE CHECK (length(hash) = 64),
    user_name    TEXT NOT NULL REFERENCES users_next (name) ON DELETE CASCADE,
    kind         TEXT NOT NULL CHECK (kind IN ('bearer', 'cookie')),
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    address      TEXT,
    CHECK (expires_at > created_at)
);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_user ON sessions (user_name, last_used_at);
-- An id must not tell the secret: half of its hash does not.
INSERT INTO sessions (id, hash, user_name, kind, created_at, expires_at, last_used_at)
SELECT 'ses_' || substr(hash, 1, 32), hash, user_name, 'bearer', created_at, expires_at, last_used_at
FROM tokens;

DROP TABLE tokens;
DROP TABLE users;
ALTER TABLE users_next RENAME TO users;
