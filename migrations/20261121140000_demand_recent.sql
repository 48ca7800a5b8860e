-- How much a prefix has asked lately: queries, faded with time; as of last_seen.
ALTER TABLE demand ADD COLUMN recent DOUBLE PRECISION NOT NULL DEFAULT 0;
UPDATE demand SET recent = queries;
