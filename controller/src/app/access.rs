//! Who may do what.

use std::fmt;
use std::str::FromStr;

use fdn_core::{Digest, ParseError};

use crate::Error;
use crate::state::State;
use crate::store::StoreError;
use crate::store::account::{token_find, token_touch};

/// A token's last use is noted once in this many milliseconds.
const TOUCH_MS: u128 = 60_000;

/// What a user is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May do everything that people do.
    Admin,
    /// May look.
    Viewer,
}

impl Role {
    /// The name in the store.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Viewer => "viewer",
        }
    }
}

impl FromStr for Role {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        match s {
            "admin" => Ok(Self::Admin),
            "viewer" => Ok(Self::Viewer),
            _ => Err(ParseError::new("role", s, "admin or viewer")),
        }
    }
}

/// A right that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// See apps, clusters, nodes, logs.
    Read,
    /// Deploy, roll back, delete.
    Manage,
    /// Be part of the network: agents and DNS servers.
    Serve,
}

impl Right {
    /// The right in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "look at apps",
            Self::Manage => "change apps",
            Self::Serve => "serve the network",
        }
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A person or a person's tool.
    User {
        /// The name.
        name: String,
        /// What the user is.
        role: Role,
    },
    /// A process of the network.
    Network,
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { name, .. } => f.write_str(name),
            Self::Network => f.write_str("the network token"),
        }
    }
}

impl Caller {
    /// Whether this caller has a right.
    #[must_use]
    pub const fn has(&self, right: Right) -> bool {
        match (self, right) {
            (
                Self::User {
                    role: Role::Admin, ..
                },
                Right::Read | Right::Manage,
            )
            | (
                Self::User {
                    role: Role::Viewer, ..
                },
                Right::Read,
            )
            | (Self::Network, Right::Serve) => true,
            (Self::User { .. }, Right::Serve | Right::Manage)
            | (Self::Network, Right::Read | Right::Manage) => false,
        }
    }
}

/// The hash under which a token is stored.
#[must_use]
pub fn token_hash(token: &str) -> String {
    Digest::of(token.as_bytes()).hex()
}

/// Who holds `token`, if they have `right`.
///
/// # Errors
/// When the token is absent or not known, the right is not theirs, or the store fails.
pub async fn authorize(state: &State, token: Option<&str>, right: Right) -> Result<Caller, Error> {
    let Some(token) = token else {
        return Err(Error::Unauthenticated(
            "this needs credentials: send the header `authorization: Bearer TOKEN`; `fdn login` gets a token",
        ));
    };
    let caller = if state.token.matches(token) {
        Caller::Network
    } else {
        user(state, token).await?
    };
    if caller.has(right) {
        Ok(caller)
    } else {
        Err(Error::Forbidden {
            who: caller.to_string(),
            right: right.as_str(),
        })
    }
}

async fn user(state: &State, token: &str) -> Result<Caller, Error> {
    let (hash, now) = (token_hash(token), fdn_service::now());
    let mut connection = state.store.read().await?;
    let Some(session) = token_find(&mut connection, &hash, now).await? else {
        return Err(Error::Unauthenticated(
            "the token is not known or has expired; `fdn login` gets a new one",
        ));
    };
    if now.since(session.last_used_at).as_millis() >= TOUCH_MS {
        match token_touch(&mut connection, &hash, now).await {
            // Somebody else writes; the next request notes it.
            Ok(()) | Err(StoreError::Contended(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Caller::User {
        name: session.user,
        role: session.role,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_cell_by_cell() {
        let user = |role| Caller::User {
            name: "u".to_owned(),
            role,
        };
        for (caller, read, manage, serve) in [
            (user(Role::Admin), true, true, false),
            (user(Role::Viewer), true, false, false),
            (Caller::Network, false, false, true),
        ] {
            let has = [Right::Read, Right::Manage, Right::Serve].map(|right| caller.has(right));
            assert_eq!(has, [read, manage, serve], "{caller}");
        }
    }

    #[test]
    fn roles_keep_their_names() {
        for role in [Role::Admin, Role::Viewer] {
            assert_eq!(role.as_str().parse::<Role>().expect("own name"), role);
        }
        assert!("root".parse::<Role>().is_err());
    }
}
