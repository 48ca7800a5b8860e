-- Devices that an operator put back into service: nodes do it once for each revision.
CREATE TABLE device_restores (
    node       TEXT NOT NULL,
    device     TEXT NOT NULL,
    revision   BIGINT NOT NULL CHECK (revision > 0),
    created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL,
    PRIMARY KEY (node, device)
);
