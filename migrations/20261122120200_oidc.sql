-- Who logs in with an identity provider. A user with `oidc` is one that the first login under its name there becomes; one with a password never
-- is taken over by a name.
ALTER TABLE users ADD COLUMN oidc BIGINT NOT NULL DEFAULT 0 CHECK (oidc IN (0, 1));
CREATE TABLE oidc_identities (
    issuer        TEXT NOT NULL,
    subject       TEXT NOT NULL,
    user_name     TEXT NOT NULL REFERENCES users (name),
    created_at    BIGINT NOT NULL,
    last_login_at BIGINT NOT NULL,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX oidc_identities_by_user ON oidc_identities (user_name);
