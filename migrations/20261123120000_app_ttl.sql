-- For how long resolvers keep the answers for an app's name, in ms; the network's `planner.ttl` if absent.
ALTER TABLE apps ADD COLUMN ttl_ms BIGINT;
