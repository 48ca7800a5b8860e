-- Runs of workflows, the newest of each app: as the gateways that lead them told last.

CREATE TABLE runs (
    app     TEXT NOT NULL REFERENCES apps (name) ON DELETE CASCADE,
    id      TEXT NOT NULL,
    request TEXT NOT NULL,
    changes BIGINT NOT NULL CHECK (changes >= 0),
    record  TEXT NOT NULL,
    PRIMARY KEY (app, id)
);
CREATE INDEX runs_by_request ON runs (app, request);
