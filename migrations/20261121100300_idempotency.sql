-- Requests that may be sent again. `done_at` is set in the transaction that carries the request out, the sealed answer after it.
CREATE TABLE idempotency (
    caller     TEXT NOT NULL,
    id         TEXT NOT NULL CHECK (length(id) BETWEEN 1 AND 255),
    request    TEXT NOT NULL CHECK (length(request) = 64),
    created_at BIGINT NOT NULL,
    done_at    BIGINT,
    answer     TEXT,
    PRIMARY KEY (caller, id)
);
CREATE INDEX idempotency_by_time ON idempotency (created_at);
