-- Host names beside an app's own. Anybody may claim a name, so that a claim keeps nobody else from it; `proven` is the host once its owner has shown
-- that it is theirs, and one app alone can have it. Times are NULL until they are.
CREATE TABLE app_domains (
    app           TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    host          TEXT NOT NULL CHECK (length(host) BETWEEN 3 AND 253),
    tenant        TEXT NOT NULL,
    token         TEXT NOT NULL,
    proven        TEXT UNIQUE,
    created_at    BIGINT NOT NULL,
    created_by    TEXT NOT NULL,
    verified_at   BIGINT,
    checked_at    BIGINT,
    failing_since BIGINT,
    problem       TEXT,
    PRIMARY KEY (app, host)
);
CREATE INDEX app_domains_by_check ON app_domains (checked_at);
