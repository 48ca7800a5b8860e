//! Identities of machines and controllers, as certificates state them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;
use crate::id::{ClusterId, NodeId};

/// The identity in a node's certificate: `fdn://cluster/CLUSTER/node/NODE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeIdentity {
    /// The node's cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
}

impl fmt::Display for NodeIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fdn://cluster/{}/node/{}", self.cluster, self.node)
    }
}

impl FromStr for NodeIdentity {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let parts = s
            .strip_prefix("fdn://cluster/")
            .and_then(|rest| rest.split_once("/node/"));
        let (cluster, node) = parts.ok_or_else(|| {
            ParseError::new("node identity", s, "fdn://cluster/CLUSTER/node/NODE")
        })?;
        Ok(Self {
            cluster: cluster.parse()?,
            node: node.parse()?,
        })
    }
}

impl TryFrom<String> for NodeIdentity {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<NodeIdentity> for String {
    fn from(value: NodeIdentity) -> String {
        value.to_string()
    }
}

/// The role of a machine in the network.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A node, which runs functions.
    #[default]
    Node,
    /// A DNS server, which answers queries.
    Dns,
}

impl Role {
    /// The kind as it appears in the identity's URI.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Dns => "dns",
        }
    }

    /// The kind in words, for messages.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Dns => "DNS server",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        match s {
            "node" => Ok(Self::Node),
            "dns" => Ok(Self::Dns),
            _ => Err(ParseError::new("role", s, "node or dns")),
        }
    }
}

/// The identity of a machine at the edge, from its certificate: `fdn://cluster/CLUSTER/node/NODE` or `fdn://cluster/CLUSTER/dns/SERVER`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine {
    /// The machine's role.
    pub role: Role,
    /// The cluster to which it belongs.
    pub cluster: ClusterId,
    /// The machine's name, unique among nodes and DNS servers.
    pub name: NodeId,
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            role,
            cluster,
            name,
        } = self;
        write!(f, "fdn://cluster/{cluster}/{role}/{name}")
    }
}

impl FromStr for Machine {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let expected = "fdn://cluster/CLUSTER/node/NODE or fdn://cluster/CLUSTER/dns/SERVER";
        let bad = || ParseError::new("machine identity", s, expected);
        let rest = s.strip_prefix("fdn://cluster/").ok_or_else(bad)?;
        let mut parts = rest.splitn(3, '/');
        let (Some(cluster), Some(role), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(bad());
        };
        Ok(Self {
            role: role.parse().map_err(|_| bad())?,
            cluster: cluster.parse()?,
            name: name.parse()?,
        })
    }
}

impl From<NodeIdentity> for Machine {
    fn from(node: NodeIdentity) -> Self {
        Self {
            role: Role::Node,
            cluster: node.cluster,
            name: node.node,
        }
    }
}

/// The identity of a controller, from the certificate of its edge listener: `fdn://controller/NAME`. Machines at the edge connect to nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerIdentity {
    /// The controller's name, for logs.
    pub name: NodeId,
}

impl fmt::Display for ControllerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fdn://controller/{}", self.name)
    }
}

impl FromStr for ControllerIdentity {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let name = s.strip_prefix("fdn://controller/");
        let name =
            name.ok_or_else(|| ParseError::new("controller identity", s, "fdn://controller/NAME"))?;
        Ok(Self {
            name: name.parse()?,
        })
    }
}
