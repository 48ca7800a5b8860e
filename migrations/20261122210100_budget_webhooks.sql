-- What is still to be told of alerts of budgets.
CREATE TABLE budget_webhooks (
    id          TEXT PRIMARY KEY,
    tenant      TEXT NOT NULL,
    budget      TEXT NOT NULL,
    url         TEXT NOT NULL,
    body        TEXT NOT NULL,
    due_at      BIGINT NOT NULL,
    failures    BIGINT NOT NULL CHECK (failures >= 0),
    lease_until BIGINT NOT NULL
);
CREATE INDEX budget_webhooks_due ON budget_webhooks (due_at);
