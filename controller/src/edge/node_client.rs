//! Requests from controllers to nodes: for logs and single calls, and calls through their gateways, for jobs and to try apps.
//!
//! They use TLS 1.3 with this controller's certificate, to the port that the node reports and the host with which it joined. Nothing is sent before
//! the other end has presented the certificate of the very node that is meant: a wrong address in a node's report means at most that nobody answers.

use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use fdn_core::enrol::NodeIdentity;
use fdn_core::message::NodeStatus;
use fdn_service::http_client;
use fdn_service::pki::tls::{self, Credentials, RevocationCheck};
use reqwest::{Client, Method, RequestBuilder};

use crate::Error;

/// The longest silence of a node: a log may have nothing new for long.
const IDLE: Duration = Duration::from_secs(3600);

/// HTTP/2 flow-control windows for a node's answers, in bytes: of one stream, and of a connection.
type Windows = (u32, u32);
/// For calls, whose answers are read as they arrive.
const OF_CALLS: Windows = (2 << 20, 16 << 20);
/// For logs, whose readers may be slow: hundreds of them do not block each other.
const OF_LOGS: Windows = (64 << 10, 32 << 20);

/// A node that can be asked, with its address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeAddress {
    /// The node that must answer.
    pub node: NodeIdentity,
    /// The address to connect to.
    pub address: SocketAddr,
}

impl NodeAddress {
    /// The address to ask a node at, from its status; `None` for an agent of an older release, which controllers cannot ask.
    #[must_use]
    pub fn of(status: &NodeStatus) -> Option<Self> {
        let port = status.controller_port?;
        Some(Self {
            node: NodeIdentity {
                cluster: status.cluster.clone(),
                node: status.node.clone(),
            },
            address: SocketAddr::new(status.admin.ip(), port),
        })
    }

    /// The URL of a target on the node.
    #[must_use]
    pub fn url(&self, target: &str) -> String {
        let host = tls::host(&self.node, self.address.ip());
        format!("https://{host}:{}{target}", self.address.port())
    }
}

/// The clients that ask nodes, with this controller's certificate.
#[derive(Default)]
pub struct NodeClients(RwLock<Option<Clients>>);

/// Logs have connections of their own, so that slow readers do not block calls.
#[derive(Clone)]
struct Clients {
    calls: Client,
    logs: Client,
}

impl NodeClients {
    /// Uses this certificate for requests from now on.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub(super) fn renew(
        &self,
        credentials: &Credentials,
        revoked: RevocationCheck,
    ) -> Result<(), Error> {
        let client = |windows: Windows| -> Result<Client, Error> {
            let tls = credentials.client_of_nodes(revoked.clone())?;
            Ok(http_client::of_nodes(tls, IDLE, windows)?)
        };
        let clients = Clients {
            calls: client(OF_CALLS)?,
            logs: client(OF_LOGS)?,
        };
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(clients);
        Ok(())
    }

    /// Begins a request to a node; the caller completes it.
    ///
    /// # Errors
    /// When this controller has no certificate yet.
    pub fn request(
        &self,
        method: Method,
        node: &NodeAddress,
        target: &str,
    ) -> Result<RequestBuilder, Error> {
        Ok(self.clients()?.calls.request(method, node.url(target)))
    }

    /// Begins a request for a log, whose reader may be slow.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn log(&self, node: &NodeAddress, target: &str) -> Result<RequestBuilder, Error> {
        Ok(self.clients()?.logs.get(node.url(target)))
    }

    fn clients(&self) -> Result<Clients, Error> {
        let clients = self.0.read().unwrap_or_else(PoisonError::into_inner);
        clients.clone().ok_or_else(|| {
            Error::Internal("this controller has no certificate yet to ask nodes with".to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_asked_where_it_joined_and_an_older_one_not_at_all() {
        let mut status = crate::fixture::status("a", "eu");
        status.admin = "192.0.2.7:81".parse().expect("address");
        assert_eq!(NodeAddress::of(&status), None);
        status.controller_port = Some(8444);
        let reached = NodeAddress::of(&status).expect("it can be asked");
        assert_eq!(
            reached.url("/logs/x"),
            "https://a.eu.c0000207.node.fdn:8444/logs/x"
        );
    }
}
