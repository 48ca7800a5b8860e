-- What is billed: one row for each call, handed over by nodes in batches. A batch that was stored is remembered for as long as the
-- settings say, so that it is counted once however often it comes; the key of the records holds beyond that.
CREATE TABLE usage_batches (
    id          TEXT PRIMARY KEY,
    node        TEXT NOT NULL,
    records     BIGINT NOT NULL CHECK (records >= 0),
    received_at BIGINT NOT NULL
);
CREATE INDEX usage_batches_by_time ON usage_batches (received_at);

-- Neither apps nor functions are referenced: a bill outlives what it is for.
CREATE TABLE usage_records (
    invocation     TEXT PRIMARY KEY,
    app            TEXT NOT NULL,
    function       TEXT NOT NULL,
    version        BIGINT NOT NULL CHECK (version > 0),
    node           TEXT NOT NULL,
    started_at     BIGINT NOT NULL,
    duration_us    BIGINT NOT NULL CHECK (duration_us >= 0),
    cpu_us         BIGINT NOT NULL CHECK (cpu_us >= 0),
    memory_mib     BIGINT NOT NULL CHECK (memory_mib >= 0),
    gpu_memory_mib BIGINT NOT NULL CHECK (gpu_memory_mib >= 0),
    egress_bytes   BIGINT NOT NULL CHECK (egress_bytes >= 0),
    outcome        TEXT NOT NULL CHECK (outcome IN ('ok', 'function_error', 'function_ended', 'client', 'internal', 'running'))
);
CREATE INDEX usage_records_by_app ON usage_records (app, started_at);
CREATE INDEX usage_records_by_time ON usage_records (started_at);
