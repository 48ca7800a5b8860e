-- The clusters that hold an app, and those of them that DNS sends clients to, as lists in JSON; all clusters if absent.
ALTER TABLE apps ADD COLUMN holders TEXT;
ALTER TABLE apps ADD COLUMN answering TEXT;

-- The clusters that were ever told of an app: their nodes may say how it runs, and hand over usage of it, also after it has left them.
-- '*' is every cluster, also those that come later: with `planner.spread = 0` alone.
CREATE TABLE app_clusters (
    app     TEXT NOT NULL,
    cluster TEXT NOT NULL,
    PRIMARY KEY (app, cluster)
);
-- Every cluster that there is was told of all apps from before.
INSERT INTO app_clusters (app, cluster) SELECT DISTINCT o.app, c.id FROM app_owners o CROSS JOIN clusters c;

-- What a machine is: 'node' or 'dns'.
ALTER TABLE join_tokens ADD COLUMN role TEXT NOT NULL DEFAULT 'node';
ALTER TABLE enrolments ADD COLUMN role TEXT NOT NULL DEFAULT 'node';
