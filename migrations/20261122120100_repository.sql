-- The code repository: what was checked of a version, labels, whose signatures count, how much a tenant may store; and tenants that are gone
-- but for their bills.
ALTER TABLE versions ADD COLUMN validation TEXT NOT NULL DEFAULT '[]';
-- What a tenant stores is summed up often.
CREATE INDEX versions_by_tenant ON versions (tenant, size);

-- Limits of their own; those of the settings where absent.
ALTER TABLE tenants ADD COLUMN storage_octets BIGINT CHECK (storage_octets >= 0);
ALTER TABLE tenants ADD COLUMN storage_versions BIGINT CHECK (storage_versions >= 0);
ALTER TABLE tenants ADD COLUMN signature_policy TEXT NOT NULL DEFAULT 'optional' CHECK (signature_policy IN ('optional', 'required'));
ALTER TABLE tenants ADD COLUMN deleted_at BIGINT;

-- Version 0 is the function itself.
CREATE TABLE labels (
    tenant   TEXT NOT NULL,
    function TEXT NOT NULL,
    version  BIGINT NOT NULL CHECK (version >= 0),
    label    TEXT NOT NULL CHECK (length(label) BETWEEN 1 AND 63),
    value    TEXT NOT NULL CHECK (length(value) <= 63),
    PRIMARY KEY (tenant, function, version, label),
    FOREIGN KEY (tenant, function) REFERENCES functions (tenant, name)
);
CREATE INDEX labels_by_label ON labels (label, value);

-- Public keys only.
CREATE TABLE signing_keys (
    tenant      TEXT NOT NULL REFERENCES tenants (id),
    name        TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 63),
    algorithm   TEXT NOT NULL CHECK (algorithm IN ('ecdsa-p256', 'ed25519')),
    fingerprint TEXT NOT NULL CHECK (length(fingerprint) = 71),
    public_key  TEXT NOT NULL,
    created_at  BIGINT NOT NULL,
    created_by  TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
);
