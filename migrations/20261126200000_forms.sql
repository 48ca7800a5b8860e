-- Other forms of a version beside its first, with their artifacts, as a list in JSON; absent of a version with one form.
ALTER TABLE versions ADD COLUMN forms TEXT;

-- Which artifacts those are: they are kept for as long as the version is there. Size in octets.
CREATE TABLE form_artifacts (
    tenant   TEXT NOT NULL,
    function TEXT NOT NULL,
    number   BIGINT NOT NULL,
    form     TEXT NOT NULL,
    digest   TEXT NOT NULL CHECK (length(digest) = 71),
    size     BIGINT NOT NULL CHECK (size > 0),
    PRIMARY KEY (tenant, function, number, form),
    FOREIGN KEY (tenant, function, number) REFERENCES versions (tenant, function, number) ON DELETE CASCADE
);
CREATE INDEX form_artifacts_by_digest ON form_artifacts (digest);

-- The forms that clusters serve the stages of an app in, as JSON; absent where no function has several.
ALTER TABLE apps ADD COLUMN forms TEXT;
