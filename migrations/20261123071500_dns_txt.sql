-- Text records that were set through the API. `app` is the app whose name the record's is below; without one, and then without a tenant, it is the
-- network's own. They go with the app, which is told to DNS servers: so nothing cascades. `texts` is a JSON array, `expires_at` NULL without an end.
CREATE TABLE dns_txt (
    name       TEXT NOT NULL PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 253),
    app        TEXT,
    tenant     TEXT,
    texts      TEXT NOT NULL,
    ttl_ms     BIGINT NOT NULL,
    expires_at BIGINT,
    revision   BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL
);
CREATE INDEX dns_txt_by_app ON dns_txt (app);
CREATE INDEX dns_txt_by_tenant ON dns_txt (tenant);
CREATE INDEX dns_txt_by_end ON dns_txt (expires_at);
