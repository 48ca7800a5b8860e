//! Who may do what.

use std::fmt;
use std::str::FromStr;

use fdn_core::{ClusterId, Digest, NodeId, ParseError};
use fdn_service::secret::Secret;

use crate::Error;
use crate::state::State;
use crate::store::StoreError;
use crate::store::account::{token_find, token_touch};
use crate::store::enrolment::{EnrolmentRow, enrolment_get};

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
    /// Let machines in, drain and remove them.
    Operate,
    /// Be a node of the network.
    Serve,
    /// Be a DNS server of the network.
    Resolve,
}

impl Right {
    /// The right in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "look at apps",
            Self::Manage => "change apps",
            Self::Operate => "run the network's machines",
            Self::Serve => "serve the network",
            Self::Resolve => "answer for the network",
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
    /// A process of the network that holds its token.
    Network,
    /// A node that was let in.
    Node {
        /// Its name.
        node: NodeId,
        /// Its cluster.
        cluster: ClusterId,
    },
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { name, .. } => f.write_str(name),
            Self::Network => f.write_str("the network token"),
            Self::Node { node, .. } => write!(f, "node {node}"),
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
                Right::Read | Right::Manage | Right::Operate,
            )
            | (
                Self::User {
                    role: Role::Viewer, ..
                },
                Right::Read,
            )
            | (Self::Network, Right::Serve | Right::Resolve)
            | (Self::Node { .. }, Right::Serve) => true,
            (Self::User { .. }, Right::Manage | Right::Operate | Right::Serve | Right::Resolve)
            | (Self::Network, Right::Read | Right::Manage | Right::Operate)
            | (Self::Node { .. }, Right::Read | Right::Manage | Right::Operate | Right::Resolve) => {
                false
            }
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
    } else if let Some(node) = token.strip_prefix(NODE_PREFIX) {
        self::node(state, node).await?
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

/// What the token of a node begins with.
const NODE_PREFIX: &str = "fdn-node.";

/// The token by which one enrolment of a node is known. It follows from the network token, so that it need not be kept and any controller can
/// say it, and from the enrolment, so that it ends with it.
#[must_use]
pub fn node_token(network: &Secret, enrolment: &EnrolmentRow) -> Secret {
    let EnrolmentRow { node, id, .. } = enrolment;
    let proof = network.derive(&format!("fdn-node-token\n{node}\n{id}"));
    Secret::new(format!("{NODE_PREFIX}{node}.{}", proof.expose()))
}

/// The node whose token, without its beginning, is `token`.
async fn node(state: &State, token: &str) -> Result<Caller, Error> {
    let unknown = Error::Unauthenticated(
        "the node's token is not known: the node was removed, or joined anew; join with a new join token",
    );
    let name = token
        .split_once('.')
        .and_then(|(name, _)| name.parse().ok());
    let Some(name) = name else {
        return Err(unknown);
    };
    let mut connection = state.store.read().await?;
    let row = enrolment_get(&mut connection, &name).await?;
    let row = row.filter(|row| row.removed_at.is_none());
    match row {
        Some(row) if node_token(&state.token, &row).matches(&format!("{NODE_PREFIX}{token}")) => {
            Ok(Caller::Node {
                node: row.node,
                cluster: row.cluster,
            })
        }
        _ => Err(unknown),
    }
}

/// The token by which a node knows its controllers: its own if it was let in with a join token, else the network's.
///
/// # Errors
/// When the store fails.
pub async fn token_for(state: &State, node: &NodeId) -> Result<Secret, Error> {
    let mut connection = state.store.read().await?;
    let row = enrolment_get(&mut connection, node).await?;
    Ok(match row {
        Some(row) if row.removed_at.is_none() => node_token(&state.token, &row),
        _ => state.token.clone(),
    })
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
        let node = Caller::Node {
            node: "n".parse().expect("node"),
            cluster: "c".parse().expect("cluster"),
        };
        let rights = [
            Right::Read,
            Right::Manage,
            Right::Operate,
            Right::Serve,
            Right::Resolve,
        ];
        for (caller, expected) in [
            (user(Role::Admin), [true, true, true, false, false]),
            (user(Role::Viewer), [true, false, false, false, false]),
            (Caller::Network, [false, false, false, true, true]),
            (node, [false, false, false, true, false]),
        ] {
            assert_eq!(rights.map(|right| caller.has(right)), expected, "{caller}");
        }
    }

    #[test]
    fn a_nodes_token_ends_with_its_enrolment() {
        let row = |id: u128| EnrolmentRow {
            node: "n".parse().expect("node"),
            id: fdn_core::EnrolmentId::from_uuid(uuid::Uuid::from_u128(id)),
            cluster: "c".parse().expect("cluster"),
            token: fdn_core::JoinTokenId::from_uuid(uuid::Uuid::from_u128(1)),
            addresses: fdn_core::enrol::NodeAddresses {
                gateway: "192.0.2.1:80".parse().expect("address"),
                admin: "192.0.2.1:81".parse().expect("address"),
                peer: None,
                names: Vec::new(),
            },
            enrolled_at: fdn_core::Timestamp(1),
            removed_at: None,
        };
        let network = Secret::new("network");
        let token = node_token(&network, &row(1));
        assert_eq!(token, node_token(&network, &row(1)));
        assert_ne!(token, node_token(&network, &row(2)), "it joined anew");
        assert_ne!(token, node_token(&Secret::new("other"), &row(1)));
        assert!(!token.expose().contains("network"));
    }

    #[test]
    fn roles_keep_their_names() {
        for role in [Role::Admin, Role::Viewer] {
            assert_eq!(role.as_str().parse::<Role>().expect("own name"), role);
        }
        assert!("root".parse::<Role>().is_err());
    }
}
