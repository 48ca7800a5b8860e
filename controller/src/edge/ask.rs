//! Asking nodes: for logs and single calls, and by calls of their gateways, for jobs and to try apps.
//!
//! Over TLS 1.3 with this controller's certificate, at the port that a node says and the host where it joined. Nothing is sent before the other end has
//! shown the certificate of the very node that is meant: what a node says of its address decides at most that nobody answers.

use std::net::SocketAddr;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use fdn_core::enrol::NodeIdentity;
use fdn_core::message::NodeStatus;
use fdn_service::http_client;
use fdn_service::pki::tls::{self, Credentials, Revoked};
use reqwest::{Client, Method, RequestBuilder};

use crate::Error;

/// The longest silence of a node that is asked: a log may have nothing to tell for long.
const IDLE: Duration = Duration::from_secs(3600);

/// Bytes of a node's answers that may be on their way before anybody reads them: of one, and of all on a connection.
type Windows = (u32, u32);
/// Of calls, which are read as they come.
const OF_CALLS: Windows = (2 << 20, 16 << 20);
/// Of logs, whose readers may be slow: hundreds of them do not hold each other up.
const OF_LOGS: Windows = (64 << 10, 32 << 20);

/// A node that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reached {
    /// Which must answer.
    pub node: NodeIdentity,
    /// Where.
    pub address: SocketAddr,
}

impl Reached {
    /// Where the node of a status is asked; nothing of an agent of an older release, which controllers cannot ask.
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

    /// The address of a target there.
    #[must_use]
    pub fn url(&self, target: &str) -> String {
        let host = tls::host(&self.node, self.address.ip());
        format!("https://{host}:{}{target}", self.address.port())
    }
}

/// What asks, with this controller's certificate.
#[derive(Default)]
pub struct Asker(RwLock<Option<Clients>>);

/// Readers of logs that are slow do not hold up calls: they have connections of their own.
#[derive(Clone)]
struct Clients {
    calls: Client,
    logs: Client,
}

impl Asker {
    /// Asks with this certificate from now on.
    ///
    /// # Errors
    /// When it cannot be used.
    pub(super) fn renew(&self, credentials: &Credentials, revoked: Revoked) -> Result<(), Error> {
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

    /// A request to a node, to be completed.
    ///
    /// # Errors
    /// When this controller has no certificate yet.
    pub fn request(
        &self,
        method: Method,
        node: &Reached,
        target: &str,
    ) -> Result<RequestBuilder, Error> {
        Ok(self.clients()?.calls.request(method, node.url(target)))
    }

    /// A request for a log, whose reader may be slow.
    ///
    /// # Errors
    /// As [`Self::request`].
    pub fn log(&self, node: &Reached, target: &str) -> Result<RequestBuilder, Error> {
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
        assert_eq!(Reached::of(&status), None);
        status.controller_port = Some(8444);
        let reached = Reached::of(&status).expect("it can be asked");
        assert_eq!(
            reached.url("/logs/x"),
            "https://a.eu.c0000207.node.fdn:8444/logs/x"
        );
    }
}
