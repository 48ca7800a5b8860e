-- Workflows: apps of several stages. A version of a workflow is a version like any other, numbered and never changed, whose artifact is its
-- definition; what only workflows have stands beside it.

CREATE TABLE workflow_versions (
    tenant     TEXT NOT NULL,
    app        TEXT NOT NULL,
    number     BIGINT NOT NULL,
    definition TEXT NOT NULL,
    PRIMARY KEY (tenant, app, number),
    FOREIGN KEY (tenant, app, number) REFERENCES versions (tenant, function, number) ON DELETE CASCADE
);

-- The versions of functions that a workflow's version runs: they cannot be deleted before it.
CREATE TABLE workflow_stages (
    tenant   TEXT NOT NULL,
    app      TEXT NOT NULL,
    number   BIGINT NOT NULL,
    stage    TEXT NOT NULL CHECK (length(stage) BETWEEN 1 AND 63),
    function TEXT NOT NULL,
    version  BIGINT NOT NULL,
    PRIMARY KEY (tenant, app, number, stage),
    FOREIGN KEY (tenant, app, number) REFERENCES workflow_versions (tenant, app, number) ON DELETE CASCADE,
    FOREIGN KEY (tenant, function, version) REFERENCES versions (tenant, function, number)
);
CREATE INDEX workflow_stages_by_function ON workflow_stages (tenant, function, version);
