-- Invitations: whoever has the secret of one chooses the password of its user, once. One for each user who has chosen none yet; a new one takes the place
-- of the one before. Only the SHA-256 of the secret is kept. `password_changed_at` is the user's as the invitation was made: a password that was set since
-- ends it, also one that a controller of the release before has set.
CREATE TABLE invitations (
    user_name           TEXT PRIMARY KEY REFERENCES users (name) ON DELETE CASCADE,
    hash                TEXT NOT NULL CHECK (length(hash) = 64),
    created_at          BIGINT NOT NULL,
    created_by          TEXT NOT NULL,
    expires_at          BIGINT NOT NULL,
    password_changed_at BIGINT NOT NULL
);
