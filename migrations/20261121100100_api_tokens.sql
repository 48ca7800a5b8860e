-- Tokens that users make for their tools. Only the SHA-256 of a secret is kept. One that ended stays for a while, so that its user sees it.
CREATE TABLE api_tokens (
    id           TEXT PRIMARY KEY,
    hash         TEXT NOT NULL CHECK (length(hash) = 64),
    user_name    TEXT NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    name         TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 63),
    scopes       TEXT NOT NULL,
    tenant       TEXT REFERENCES tenants (id),
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT NOT NULL,
    last_used_at BIGINT,
    revoked_at   BIGINT,
    CHECK (expires_at > created_at)
);
CREATE INDEX api_tokens_by_user ON api_tokens (user_name, id);
CREATE INDEX api_tokens_by_expiry ON api_tokens (expires_at);
