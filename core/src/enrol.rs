//! How machines join the network: join tokens, the identity in a certificate, and the bodies of the calls.
//!
//! An operator creates a [`JoinToken`] for one cluster. A new machine creates a key, and sends the token with a certificate signing
//! request (RFC 2986) to `POST /v1/nodes/enrol`; it gets a certificate with a [`NodeIdentity`] as its URI name (RFC 5280, section
//! 4.2.1.6). Before that expires the node requests the next one at `POST /v1/nodes/renew`, and proves by a signature that it holds the
//! key.

mod identity;

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::digest::Digest;
use crate::error::ParseError;
use crate::geo::GeoPoint;
use crate::id::{ClusterId, HostName, JoinTokenId, NodeId, RegionName};
use crate::unit::{DurationMs, Revision, Timestamp};
pub use identity::{ControllerIdentity, Machine, NodeIdentity, Role};

/// The right to join one cluster: `fdn-join.ID.SECRET`, or `fdn-join.ID.SECRET.HASH` where the controllers' API has a certificate of the
/// operator's own authority. `Debug` hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// The token's id.
    pub id: JoinTokenId,
    secret: String,
    /// The SHA-256 of the certificate (DER) of the authority that must have issued the API's certificate: a joining machine sends the
    /// secret to nobody else. `None` if the token names none.
    pub authority: Option<Digest>,
}

/// The number of hexadecimal digits in a join token's secret: 256 bits.
const SECRET_LEN: usize = 64;

impl JoinToken {
    /// A token with a secret of 64 hexadecimal digits, drawn by the caller.
    ///
    /// # Errors
    /// When the secret has another form.
    pub fn new(id: JoinTokenId, secret: &str) -> Result<Self, ParseError> {
        if secret.len() != SECRET_LEN || !secret.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(malformed());
        }
        Ok(Self {
            id,
            secret: secret.to_ascii_lowercase(),
            authority: None,
        })
    }

    /// Sets the authority by which a machine must verify the API.
    #[must_use]
    pub fn with_authority(self, authority: Option<Digest>) -> Self {
        Self { authority, ..self }
    }

    /// The secret: for hashing, never for a log.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.secret
    }

    /// The complete token as text; shown once.
    #[must_use]
    pub fn expose(&self) -> String {
        match &self.authority {
            Some(authority) => format!("{}.{}", self.shown(), authority.hex()),
            None => self.shown(),
        }
    }

    /// The token as a joining machine sends it: without the authority, which only the machine needs.
    #[must_use]
    pub fn shown(&self) -> String {
        format!("fdn-join.{}.{}", self.id, self.secret)
    }
}

/// The value is a secret, so the error does not repeat it.
fn malformed() -> ParseError {
    ParseError::new(
        "join token",
        "…",
        "fdn-join.ID.SECRET or fdn-join.ID.SECRET.HASH, the whole line that `fdn node token` printed",
    )
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinToken({})", self.id)
    }
}

impl FromStr for JoinToken {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let parts = s.trim().strip_prefix("fdn-join.");
        let (id, secret) = parts
            .and_then(|rest| rest.split_once('.'))
            .ok_or_else(malformed)?;
        let (secret, authority) = match secret.split_once('.') {
            Some((secret, hash)) => {
                let hash: Digest = hash.parse().map_err(|_| malformed())?;
                (secret, Some(hash))
            }
            None => (secret, None),
        };
        let token = Self::new(id.parse().map_err(|_| malformed())?, secret)?;
        Ok(token.with_authority(authority))
    }
}

/// The addresses at which others reach a machine. They also become names in its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeAddresses {
    /// The address of its gateway (of a DNS server, the address at which it answers queries), as `IP:PORT`.
    #[schema(value_type = String)]
    pub gateway: SocketAddr,
    /// The address at which it serves health checks and metrics, as `IP:PORT`.
    #[schema(value_type = String)]
    pub admin: SocketAddr,
    /// The address at which the other nodes of its cluster reach it, as `IP:PORT`; absent if it takes no part in their scheduling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub peer: Option<SocketAddr>,
    /// Additional host names by which others reach it, at most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub names: Vec<HostName>,
}

impl NodeAddresses {
    /// The most additional host names of a machine.
    pub const NAMES_MAX: usize = 8;

    /// Fills what is not set with the values of `known`.
    #[must_use]
    pub fn or(&self, known: &Self) -> Self {
        let names = if self.names.is_empty() {
            &known.names
        } else {
            &self.names
        };
        Self {
            gateway: self.gateway,
            admin: self.admin,
            peer: self.peer.or(known.peer),
            names: names.clone(),
        }
    }

    /// Refuses addresses that others cannot reach.
    ///
    /// # Errors
    /// When an address has no host or port, or there are too many names.
    pub fn check(&self) -> Result<(), ParseError> {
        let all = [Some(self.gateway), Some(self.admin), self.peer];
        for address in all.into_iter().flatten() {
            if address.ip().is_unspecified() || address.port() == 0 {
                let expected =
                    "an address and port that other machines reach; set `advertise` or --advertise";
                return Err(ParseError::new("address", address.to_string(), expected));
            }
        }
        if self.names.len() > Self::NAMES_MAX {
            return Err(ParseError::new(
                "list of names",
                self.names.len().to_string(),
                "8 names at most",
            ));
        }
        Ok(())
    }
}

/// A request of a machine to join the network.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EnrolRequest {
    /// The complete join token.
    pub token: String,
    /// The role that the machine is to have; a token for another role is refused.
    #[serde(default)]
    pub role: Role,
    /// The name that the machine is to have, unique in the network.
    pub node: NodeId,
    /// A certificate signing request (PEM) for a P-256 key of the machine.
    pub csr: String,
    /// The addresses at which others will reach the machine.
    pub addresses: NodeAddresses,
    /// The cluster that the machine is meant for: a token for another one is refused. Absent to accept the token's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterId>,
    /// The region that the machine is meant for: a token for another one is refused. Absent to accept the token's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionName>,
}

/// An issued certificate, with the authorities that machines trust.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuedCertificate {
    /// The certificate (PEM).
    pub certificate: String,
    /// Its serial number in hexadecimal digits.
    pub serial: String,
    /// When the certificate was issued.
    pub issued_at: Timestamp,
    /// When the certificate expires.
    pub expires_at: Timestamp,
    /// The certificates (PEM) of the authorities by which machines are verified; several while the authority is being replaced.
    pub authorities: Vec<String>,
}

/// Another node of the cluster, to contact first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Seed {
    /// The node's name.
    pub node: NodeId,
    /// The addresses at which the node is reached.
    pub addresses: NodeAddresses,
}

/// Everything a new machine needs. It contains the machine's own token, so it is sent over HTTPS or loopback only.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct EnrolResponse {
    /// The machine's name.
    pub node: NodeId,
    /// The cluster that it joined.
    pub cluster: ClusterId,
    /// The cluster's region.
    pub region: RegionName,
    /// The cluster's position.
    pub location: GeoPoint,
    /// The machine's certificate.
    pub identity: IssuedCertificate,
    /// The machine's own token. Gateways on loopback that exchange stage calls without certificates recognise each other by it, as agents
    /// of earlier releases did controllers.
    pub node_token: String,
    /// Where machines reach the controllers, as `HOST:PORT`. If the host is empty, it is that of the controller that received this request.
    pub controllers: Vec<String>,
    /// Other nodes of the cluster, at most 64.
    pub seeds: Vec<Seed>,
    /// The revision of desired state at which the machine joined.
    pub revision: Revision,
}

/// A request for a new certificate for the same key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RenewRequest {
    /// The serial number of the present certificate, in hexadecimal digits.
    pub serial: String,
    /// When the request was made, by the node's clock; it must not differ from the controller's by more than 5 minutes.
    pub at: Timestamp,
    /// The addresses at which others reach the node. `peer` and `names` stay as they were if they are absent.
    pub addresses: NodeAddresses,
    /// A signature by the present certificate's key over the lines `fdn-renew-v1`, `serial`, `at`, `gateway`, `admin`, `peer` (`-` if
    /// absent) and the `names` joined by commas, separated by newlines: ECDSA P-256 with SHA-256, ASN.1, in base64.
    pub signature: String,
}

/// How far a node's clock may deviate when it requests a certificate; requests older than this are refused.
pub const RENEW_WINDOW: DurationMs = DurationMs::from_secs(300);

impl RenewRequest {
    /// The text that the node signs. Every part has a fixed form and its own line, so that no two requests have the same text.
    #[must_use]
    pub fn signed_text(serial: &str, at: Timestamp, addresses: &NodeAddresses) -> String {
        let NodeAddresses {
            gateway,
            admin,
            peer,
            names,
        } = addresses;
        let peer = peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
        let names: Vec<&str> = names.iter().map(HostName::as_str).collect();
        format!(
            "fdn-renew-v1\n{serial}\n{}\n{gateway}\n{admin}\n{peer}\n{}",
            at.get(),
            names.join(",")
        )
    }
}

/// The answer to a request for a new certificate.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct RenewResponse {
    /// The new certificate.
    pub identity: IssuedCertificate,
    /// The machine's own token.
    pub node_token: String,
    /// Other nodes of the cluster.
    pub seeds: Vec<Seed>,
}

/// When a certificate should be renewed: after two thirds of its lifetime, so that a controller may be unavailable for the last third.
#[must_use]
pub const fn renew_at(issued_at: Timestamp, expires_at: Timestamp) -> Timestamp {
    let life = expires_at.0.saturating_sub(issued_at.0);
    Timestamp(issued_at.0.saturating_add(life / 3 * 2))
}

/// A request to become, or to remain, the head of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseRequest {
    /// The node that asks.
    pub node: NodeId,
    /// The epoch that the node holds, to renew its lease; `None` to acquire a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The requested duration, in milliseconds from now; the controller bounds it.
    pub ttl_ms: u64,
}

/// The head of a cluster. The node that asked is the head if `holder` is its own name and `epoch` the one it asked to renew, or if it
/// asked to acquire one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseResponse {
    /// The node that is the head.
    pub holder: NodeId,
    /// Increases with every change of the holder, and when the same node acquires the lease anew.
    pub epoch: u64,
    /// The remaining duration of the lease, in milliseconds from now; relative, so that the clocks of node and controller need not agree.
    pub expires_ms: u64,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn addresses() -> NodeAddresses {
        NodeAddresses {
            gateway: "192.0.2.1:8080".parse().expect("address"),
            admin: "192.0.2.1:8081".parse().expect("address"),
            peer: None,
            names: Vec::new(),
        }
    }

    #[test]
    fn an_identity_survives_its_text_and_nothing_else_is_one() {
        let text = "fdn://cluster/eu-west/node/eu-west-1";
        let identity: NodeIdentity = text.parse().expect("an identity");
        assert_eq!(
            (identity.cluster.as_str(), identity.node.as_str()),
            ("eu-west", "eu-west-1")
        );
        assert_eq!(identity.to_string(), text);
        for bad in [
            "",
            "fdn://cluster/eu",
            "fdn://cluster/eu/node/",
            "fdn://cluster/eu/node/a/node/b",
            "fdn://cluster/EU/node/a",
            "https://cluster/eu/node/a",
        ] {
            assert!(bad.parse::<NodeIdentity>().is_err(), "{bad}");
        }
    }

    #[test]
    fn nobody_is_taken_for_what_it_is_not() {
        let dns = "fdn://cluster/eu/dns/ns1";
        let machine: Machine = dns.parse().expect("a machine");
        assert_eq!((machine.role, machine.name.as_str()), (Role::Dns, "ns1"));
        assert_eq!(machine.to_string(), dns);
        assert!(dns.parse::<NodeIdentity>().is_err());
        assert!(dns.parse::<ControllerIdentity>().is_err());
        let node: NodeIdentity = "fdn://cluster/eu/node/a".parse().expect("a node");
        let machine: Machine = node.to_string().parse().expect("a machine");
        assert_eq!(machine, Machine::from(node));
        let controller = "fdn://controller/c-1";
        let parsed: ControllerIdentity = controller.parse().expect("a controller");
        assert_eq!(parsed.to_string(), controller);
        for bad in [
            controller,
            "fdn://cluster/eu/controller/a",
            "fdn://cluster/eu/dns/",
            "fdn://cluster/eu/dns/a/node/b",
            "fdn://cluster/eu",
        ] {
            assert!(bad.parse::<Machine>().is_err(), "{bad}");
        }
        assert!("fdn://controller/".parse::<ControllerIdentity>().is_err());
    }

    #[test]
    fn a_join_token_is_shown_only_on_purpose() {
        let id = JoinTokenId::from_uuid(Uuid::from_u128(7));
        let token = JoinToken::new(id, &"aB".repeat(32)).expect("a token");
        let text = token.expose();
        assert_eq!(
            format!(" {text}\n").parse::<JoinToken>().expect("own text"),
            token
        );
        assert!(!format!("{token:?}").contains(token.secret()));
        let pinned = token.clone().with_authority(Some(Digest::of(b"one")));
        let long = pinned.expose();
        assert_eq!(long.parse::<JoinToken>().expect("own text"), pinned);
        assert!(long.starts_with(&text) && pinned.shown() == text);
        for bad in [
            &text[..text.len() - 1],
            &text[1..],
            "fdn-join.x.y",
            "",
            &long[..long.len() - 1],
            &format!("{text}."),
        ] {
            let error = bad.parse::<JoinToken>().expect_err(bad).to_string();
            assert!(!error.contains(&token.secret()[..60]), "{error}");
        }
    }

    #[test]
    fn requests_for_renewal_differ_in_what_is_signed() {
        let text = |serial: &str, at, change: fn(&mut NodeAddresses)| {
            let mut addresses = addresses();
            change(&mut addresses);
            RenewRequest::signed_text(serial, Timestamp(at), &addresses)
        };
        let all = [
            text("ab", 1, |_| {}),
            text("ac", 1, |_| {}),
            text("ab", 2, |_| {}),
            text("ab", 1, |a| a.peer = Some(a.gateway)),
            text("ab", 1, |a| a.names = vec!["a.b".parse().expect("name")]),
        ];
        let different: std::collections::BTreeSet<&String> = all.iter().collect();
        assert_eq!(different.len(), all.len());
    }

    #[test]
    fn addresses_that_nobody_reaches_are_refused() {
        addresses().check().expect("fine");
        for bad in ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:0"] {
            let mut addresses = addresses();
            addresses.admin = bad.parse().expect("address");
            let error = addresses.check().expect_err(bad).to_string();
            assert!(error.contains("advertise"), "{error}");
        }
        let with_peer = NodeAddresses {
            peer: Some("192.0.2.1:8082".parse().expect("address")),
            names: vec!["a.b".parse().expect("name")],
            ..addresses()
        };
        assert_eq!(addresses().or(&with_peer), with_peer);
        assert_eq!(with_peer.or(&addresses()), with_peer);
        let mut many = addresses();
        many.names = vec!["a.b".parse().expect("name"); 9];
        assert!(many.check().is_err());
    }

    #[test]
    fn a_certificate_is_renewed_after_two_thirds() {
        assert_eq!(renew_at(Timestamp(1000), Timestamp(4000)), Timestamp(3000));
        assert_eq!(renew_at(Timestamp(5), Timestamp(1)), Timestamp(5));
    }
}
