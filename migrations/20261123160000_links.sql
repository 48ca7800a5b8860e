-- Round trips between clusters that their nodes measured, smoothed.
CREATE TABLE links (
    from_cluster TEXT NOT NULL,
    to_cluster   TEXT NOT NULL,
    rtt_ms       DOUBLE PRECISION NOT NULL CHECK (rtt_ms >= 0),
    samples      BIGINT NOT NULL CHECK (samples > 0),
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (from_cluster, to_cluster)
);
CREATE INDEX links_by_update ON links (updated_at);

-- What the plans ask of the clusters, as the controller that plans counted it last: for those that explain without planning.
CREATE TABLE asked (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    state      TEXT NOT NULL,
    updated_at BIGINT NOT NULL
);
