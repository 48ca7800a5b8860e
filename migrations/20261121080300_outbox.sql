-- Messages that leave together with the state change that made them. A newer message on a topic replaces an unsent older one, so the
-- table never holds more rows than there are things to tell about.
CREATE TABLE outbox (
    revision   BIGINT NOT NULL CHECK (revision > 0),
    part       BIGINT NOT NULL CHECK (part >= 0),
    topic      TEXT NOT NULL UNIQUE,
    envelope   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (revision, part)
);
