-- Who may call an app. The policy is JSON of one shape (core's `Policy`), checked before it is written; its revision is that of the app's desired
-- state that brought it. Keys of callers are kept as SHA-256; a key that was taken back stays, so that its name can be explained.
CREATE TABLE app_policies (
    app        TEXT PRIMARY KEY REFERENCES apps (name) ON DELETE CASCADE,
    tenant     TEXT NOT NULL,
    policy     TEXT NOT NULL,
    has_quota  BIGINT NOT NULL CHECK (has_quota IN (0, 1)),
    revision   BIGINT NOT NULL CHECK (revision > 0),
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL
);

CREATE TABLE app_keys (
    id         TEXT PRIMARY KEY,
    app        TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    hash       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);
CREATE INDEX app_keys_by_app ON app_keys (app, created_at);

-- Calls of apps with a quota, by day (days since 1970-01-01, UTC), counted as their usage records come in. A month is the sum of its days.
CREATE TABLE quota_days (
    app   TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    day   BIGINT NOT NULL CHECK (day >= 0),
    calls BIGINT NOT NULL CHECK (calls >= 0),
    PRIMARY KEY (app, day)
);

-- How the calls of an app are split between versions of its function: JSON of one shape (core's `Traffic`). Without a row all calls go to the current one.
CREATE TABLE app_traffic (
    app        TEXT PRIMARY KEY REFERENCES apps (name) ON DELETE CASCADE,
    tenant     TEXT NOT NULL,
    traffic    TEXT NOT NULL,
    revision   BIGINT NOT NULL CHECK (revision > 0),
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL
);
