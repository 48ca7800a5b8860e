-- Values of secrets, sealed in an envelope: each value under its tenant's data key, each data key under a master key that never comes here.
-- Changing the master key rewrites this table's rows and no value. Removing a row makes everything sealed under it unreadable for ever.
CREATE TABLE data_keys (
    id         TEXT PRIMARY KEY,
    tenant     TEXT NOT NULL UNIQUE REFERENCES tenants (id) ON DELETE CASCADE,
    master     TEXT NOT NULL,
    wrapped    TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    wrapped_at BIGINT NOT NULL
);
CREATE INDEX data_keys_by_master ON data_keys (master, id);

-- A secret belongs to a function, not to one of its versions: a new value reaches all of them, and going back to an old version does not bring
-- an old value back. `versions.secrets` holds what was stored before this table was; it is moved here and emptied.
CREATE TABLE secrets (
    tenant     TEXT NOT NULL,
    function   TEXT NOT NULL,
    name       TEXT NOT NULL,
    data_key   TEXT NOT NULL REFERENCES data_keys (id) ON DELETE CASCADE,
    sealed     TEXT NOT NULL,
    revision   BIGINT NOT NULL CHECK (revision >= 0),
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    PRIMARY KEY (tenant, function, name),
    FOREIGN KEY (tenant, function) REFERENCES functions (tenant, name) ON DELETE CASCADE
);
CREATE INDEX secrets_by_data_key ON secrets (data_key);
