-- What was written of machines, in the order of its commits: controllers read only what is new. Rows from before have the first stamp.
ALTER TABLE enrolments ADD COLUMN stamp BIGINT NOT NULL DEFAULT 1;
CREATE INDEX enrolments_by_stamp ON enrolments (stamp);
CREATE INDEX enrolments_by_cluster ON enrolments (cluster, node);
