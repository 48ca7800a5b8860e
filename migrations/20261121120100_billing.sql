-- What usage costs, what was billed, and from when on somebody wants to know.

-- Days are milliseconds of their first moment in UTC; `valid_to` is the first day on which the list is valid no more.
CREATE TABLE price_lists (
    name       TEXT PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 63),
    valid_from BIGINT NOT NULL UNIQUE,
    valid_to   BIGINT CHECK (valid_to > valid_from),
    list       TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL
);

-- Statements that were issued. Rows are only ever added.
CREATE TABLE statements (
    tenant     TEXT NOT NULL REFERENCES tenants (id),
    month      BIGINT NOT NULL,
    issued_at  BIGINT NOT NULL,
    currency   TEXT NOT NULL CHECK (length(currency) = 3),
    micros     BIGINT NOT NULL,
    line_count BIGINT NOT NULL CHECK (line_count >= 0),
    meters     TEXT NOT NULL,
    PRIMARY KEY (tenant, month)
);

CREATE TABLE statement_lines (
    tenant TEXT NOT NULL,
    month  BIGINT NOT NULL,
    line   BIGINT NOT NULL CHECK (line >= 0),
    entry  TEXT NOT NULL,
    PRIMARY KEY (tenant, month, line),
    FOREIGN KEY (tenant, month) REFERENCES statements (tenant, month)
);

CREATE TABLE budgets (
    tenant     TEXT NOT NULL REFERENCES tenants (id),
    name       TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 63),
    budget     TEXT NOT NULL,
    changed_at BIGINT NOT NULL,
    changed_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- Each threshold alerts once in a month; a budget that was removed keeps the alerts it gave.
CREATE TABLE budget_alerts (
    tenant     TEXT NOT NULL REFERENCES tenants (id),
    budget     TEXT NOT NULL,
    month      BIGINT NOT NULL,
    threshold  BIGINT NOT NULL CHECK (threshold > 0),
    spent      BIGINT NOT NULL,
    spend_max  BIGINT NOT NULL,
    currency   TEXT NOT NULL CHECK (length(currency) = 3),
    at         BIGINT NOT NULL,
    PRIMARY KEY (tenant, budget, month, threshold)
);
CREATE INDEX budget_alerts_by_time ON budget_alerts (tenant, at);
