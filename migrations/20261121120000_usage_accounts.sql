-- To whom and where usage is booked. Noted when it is stored, because apps, nodes and clusters go while bills stay.
-- `booked_at` is the hour under which a record stands in the sums below; empty for records of before, which are booked by and by.
ALTER TABLE usage_records ADD COLUMN tenant TEXT;
ALTER TABLE usage_records ADD COLUMN cluster TEXT;
ALTER TABLE usage_records ADD COLUMN region TEXT;
ALTER TABLE usage_records ADD COLUMN booked_at BIGINT;
CREATE INDEX usage_records_not_booked ON usage_records (started_at) WHERE booked_at IS NULL;

-- Who owned an app from when on. Rows stay when the app goes: records of its calls may still come.
CREATE TABLE app_owners (
    app    TEXT NOT NULL,
    since  BIGINT NOT NULL,
    tenant TEXT NOT NULL REFERENCES tenants (id),
    PRIMARY KEY (app, since)
);
INSERT INTO app_owners (app, since, tenant)
SELECT name, MIN(created_at), MIN(tenant) FROM functions GROUP BY name;

-- Artifacts of versions, from when to when they were kept.
CREATE TABLE stored_artifacts (
    tenant    TEXT NOT NULL REFERENCES tenants (id),
    function  TEXT NOT NULL,
    version   BIGINT NOT NULL CHECK (version > 0),
    size      BIGINT NOT NULL CHECK (size > 0),
    stored_at BIGINT NOT NULL,
    gone_at   BIGINT CHECK (gone_at >= stored_at),
    PRIMARY KEY (tenant, function, version)
);
CREATE INDEX stored_artifacts_by_time ON stored_artifacts (tenant, stored_at);
INSERT INTO stored_artifacts (tenant, function, version, size, stored_at)
SELECT tenant, function, number, size, created_at FROM versions;

-- Sums of records, by hour and by day of use. `period` is the month on whose statement they stand, in months since the year 0. Quantities are
-- in the smallest units of the meters, and below zero where late records correct what a closed month holds. The bounds make a sum that does not fit an error in
-- both databases.
CREATE TABLE usage_hours (
    tenant      TEXT NOT NULL,
    period      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    app         TEXT NOT NULL,
    function    TEXT NOT NULL,
    version     BIGINT NOT NULL,
    cluster     TEXT NOT NULL,
    region      TEXT NOT NULL,
    invocations BIGINT NOT NULL CHECK (invocations BETWEEN -9000000000000000000 AND 9000000000000000000),
    memory      BIGINT NOT NULL CHECK (memory BETWEEN -9000000000000000000 AND 9000000000000000000),
    cpu         BIGINT NOT NULL CHECK (cpu BETWEEN -9000000000000000000 AND 9000000000000000000),
    gpu         BIGINT NOT NULL CHECK (gpu BETWEEN -9000000000000000000 AND 9000000000000000000),
    egress      BIGINT NOT NULL CHECK (egress BETWEEN -9000000000000000000 AND 9000000000000000000),
    PRIMARY KEY (tenant, period, at, app, function, version, cluster, region)
);

CREATE TABLE usage_days (
    tenant      TEXT NOT NULL,
    period      BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    app         TEXT NOT NULL,
    function    TEXT NOT NULL,
    version     BIGINT NOT NULL,
    cluster     TEXT NOT NULL,
    region      TEXT NOT NULL,
    invocations BIGINT NOT NULL CHECK (invocations BETWEEN -9000000000000000000 AND 9000000000000000000),
    memory      BIGINT NOT NULL CHECK (memory BETWEEN -9000000000000000000 AND 9000000000000000000),
    cpu         BIGINT NOT NULL CHECK (cpu BETWEEN -9000000000000000000 AND 9000000000000000000),
    gpu         BIGINT NOT NULL CHECK (gpu BETWEEN -9000000000000000000 AND 9000000000000000000),
    egress      BIGINT NOT NULL CHECK (egress BETWEEN -9000000000000000000 AND 9000000000000000000),
    PRIMARY KEY (tenant, period, at, app, function, version, cluster, region)
);

-- All months before `open_month` are closed, and the statements of all months before `issue_month` are issued; 0 until the first pass of the billing
-- loop. Who stores usage shares this row's lock, who closes a month takes it.
CREATE TABLE billing_clock (
    id          BIGINT PRIMARY KEY CHECK (id = 1),
    open_month  BIGINT NOT NULL CHECK (open_month >= 0),
    issue_month BIGINT NOT NULL CHECK (issue_month BETWEEN 0 AND open_month)
);
INSERT INTO billing_clock (id, open_month, issue_month) VALUES (1, 0, 0);
