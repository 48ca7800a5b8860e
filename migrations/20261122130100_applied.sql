-- What was applied together from declared files, so that what is no longer declared can be told from what was never.
CREATE TABLE applied (
    tenant     TEXT NOT NULL REFERENCES tenants (id),
    name       TEXT NOT NULL,
    items      TEXT NOT NULL,
    applied_at BIGINT NOT NULL,
    applied_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
);
