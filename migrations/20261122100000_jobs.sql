-- Jobs: asynchronous runs of an app. The row is the job's record; a message in the broker only wakes a dispatcher. A job changes by a step of core's
-- `job::course`, and only from the generation that the step was computed from.
CREATE TABLE jobs (
    id             TEXT PRIMARY KEY,
    tenant         TEXT NOT NULL,
    app            TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('submitted', 'queued', 'running', 'succeeded', 'failed', 'cancelled', 'dropped', 'dead')),
    generation     BIGINT NOT NULL CHECK (generation > 0),
    attempt        BIGINT NOT NULL CHECK (attempt >= 0),
    failures       BIGINT NOT NULL CHECK (failures >= 0),
    misses         BIGINT NOT NULL CHECK (misses >= 0),
    priority       BIGINT NOT NULL CHECK (priority BETWEEN 0 AND 9),
    due_at         BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL,
    deadline       BIGINT,
    submitted_at   BIGINT NOT NULL,
    submitted_by   TEXT NOT NULL,
    started_at     BIGINT,
    ended_at       BIGINT,
    kept_until     BIGINT,
    lease_until    BIGINT,
    holder         TEXT,
    cluster        TEXT,
    reason         TEXT,
    target         TEXT NOT NULL,
    content_type   TEXT,
    input_size     BIGINT NOT NULL CHECK (input_size >= 0),
    -- Base64 of a small input; a large one lies in the object store under the job's id.
    input          TEXT,
    status         BIGINT,
    result_type    TEXT,
    result_size    BIGINT,
    result         TEXT,
    -- The attempt whose large result lies in the object store.
    result_attempt BIGINT,
    webhook        TEXT,
    idempotency    TEXT,
    request        TEXT,
    CHECK ((state = 'running') = (lease_until IS NOT NULL)),
    CHECK ((state IN ('succeeded', 'failed', 'cancelled', 'dropped', 'dead')) = (ended_at IS NOT NULL))
);
-- What is listed, newest first (ids grow with time), and what is counted of an app.
CREATE INDEX jobs_by_app ON jobs (tenant, app, id);
CREATE INDEX jobs_by_app_state ON jobs (app, state, id);
-- What dispatchers look for.
CREATE INDEX jobs_waiting ON jobs (tenant, priority, due_at) WHERE state = 'queued';
CREATE INDEX jobs_expiring ON jobs (expires_at) WHERE state = 'queued';
CREATE INDEX jobs_running ON jobs (lease_until) WHERE state = 'running';
CREATE INDEX jobs_submitted ON jobs (submitted_at) WHERE state = 'submitted';
CREATE INDEX jobs_kept ON jobs (kept_until) WHERE kept_until IS NOT NULL;
CREATE UNIQUE INDEX jobs_idempotency ON jobs (tenant, app, submitted_by, idempotency);

-- One row for each app with jobs: locked by whoever counts or claims them, so that limits hold with several dispatchers.
CREATE TABLE job_lanes (
    app     TEXT PRIMARY KEY,
    touched BIGINT NOT NULL
);

-- What is still to be told of jobs that ended.
CREATE TABLE job_webhooks (
    id          TEXT PRIMARY KEY,
    job         TEXT NOT NULL,
    tenant      TEXT NOT NULL,
    app         TEXT NOT NULL,
    url         TEXT NOT NULL,
    body        TEXT NOT NULL,
    due_at      BIGINT NOT NULL,
    failures    BIGINT NOT NULL CHECK (failures >= 0),
    lease_until BIGINT NOT NULL
);
CREATE INDEX job_webhooks_due ON job_webhooks (due_at);

-- Jobs that are submitted again and again.
CREATE TABLE job_schedules (
    app        TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    schedule   TEXT NOT NULL,
    next_at    BIGINT,
    last_at    BIGINT,
    last_job   TEXT,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (app, name)
);
CREATE INDEX job_schedules_due ON job_schedules (next_at);
