-- Artifacts in the artifact store. `object` is the name that one incarnation has there; an artifact that was collected and comes again gets
-- another one, so a late removal never takes what was written after it. Empty: the name that artifacts of before have.
-- `touched_at` is the last moment when somebody was about to use it, or a version that did went.
CREATE TABLE artifacts (
    digest     TEXT PRIMARY KEY CHECK (length(digest) = 71),
    object     TEXT NOT NULL,
    size       BIGINT NOT NULL CHECK (size > 0),
    touched_at BIGINT NOT NULL
);
CREATE INDEX artifacts_by_touch ON artifacts (touched_at);
-- The definitions of workflows have versions too, and no artifact.
INSERT INTO artifacts (digest, object, size, touched_at)
SELECT v.digest, '', MAX(v.size), MAX(v.created_at) FROM versions v
WHERE NOT EXISTS (SELECT 1 FROM workflow_versions w WHERE w.tenant = v.tenant AND w.app = v.function AND w.number = v.number)
GROUP BY v.digest;

-- What is to be removed from the artifact store: nobody can come to use it any more.
CREATE TABLE artifact_trash (
    digest    TEXT NOT NULL,
    object    TEXT NOT NULL,
    size      BIGINT NOT NULL,
    marked_at BIGINT NOT NULL,
    PRIMARY KEY (digest, object)
);
