-- What new versions must keep to, and how the newest of each app does.
CREATE TABLE app_objectives (
    app        TEXT PRIMARY KEY REFERENCES apps (name) ON DELETE CASCADE,
    tenant     TEXT NOT NULL,
    objective  TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL
);

-- One row for each app: the version that is or was watched last. `by_deploy`: the split was made by a deploy, and ends when the objective has held.
-- `fresh`: the version had no calls before it was watched.
CREATE TABLE rollouts (
    app        TEXT PRIMARY KEY REFERENCES apps (name) ON DELETE CASCADE,
    id         TEXT NOT NULL,
    candidate  BIGINT NOT NULL CHECK (candidate > 0),
    baseline   BIGINT NOT NULL CHECK (baseline > 0),
    by_deploy  BIGINT NOT NULL CHECK (by_deploy IN (0, 1)),
    fresh      BIGINT NOT NULL CHECK (fresh IN (0, 1)),
    state      TEXT NOT NULL CHECK (state IN ('watching', 'held', 'broken')),
    since      BIGINT NOT NULL,
    calls      BIGINT NOT NULL CHECK (calls >= 0),
    failures   BIGINT NOT NULL CHECK (failures >= 0),
    reason     TEXT NOT NULL
);
CREATE INDEX rollouts_by_state ON rollouts (state);

-- What each start of each node counted of the watched version: when its window began, and last. Kept here so that neither a restarted node nor another
-- controller loses a window.
CREATE TABLE rollout_counts (
    app    TEXT NOT NULL REFERENCES rollouts (app) ON DELETE CASCADE,
    node   TEXT NOT NULL,
    boot   TEXT NOT NULL,
    base   TEXT NOT NULL,
    latest TEXT NOT NULL,
    PRIMARY KEY (app, node, boot)
);

-- Versions that broke their objective.
CREATE TABLE bad_versions (
    tenant    TEXT NOT NULL,
    function  TEXT NOT NULL,
    number    BIGINT NOT NULL,
    reason    TEXT NOT NULL,
    marked_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, function, number),
    FOREIGN KEY (tenant, function, number) REFERENCES versions (tenant, function, number) ON DELETE CASCADE
);
