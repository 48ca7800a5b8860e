//! A scanned request with its context, as passed between the submodules.

use std::cell::OnceCell;
use std::net::SocketAddr;

use fdn_core::ClientPrefix;

use super::wire::{self, Scan};
use crate::metrics::Transport;
use crate::query_log::SteeringNote;

/// A request and everything that its answer depends on.
pub(super) struct RequestContext<'a> {
    pub(super) packet: &'a [u8],
    pub(super) scan: &'a Scan,
    pub(super) from: SocketAddr,
    pub(super) transport: Transport,
    pub(super) now: u32,
    /// Whether the request has a valid signature (TSIG).
    pub(super) signed: bool,
    /// The number of bytes reserved for the answer's signature.
    pub(super) reserved: usize,
    /// What the answer was based on, filled in if the query is sampled.
    pub(super) note: Option<OnceCell<SteeringNote>>,
    /// Whether a line is written to the query log.
    pub(super) logged: bool,
}

impl RequestContext<'_> {
    pub(super) fn subnet(&self) -> Option<&wire::Subnet> {
        self.scan.edns.as_ref()?.subnet.as_ref()
    }

    /// The client. Without a client subnet option, the resolver's address represents its clients (RFC 7871, section 7.2.1).
    pub(super) fn client(&self) -> ClientPrefix {
        let subnet_client = self.subnet().and_then(|subnet| subnet.client);
        subnet_client.unwrap_or_else(|| ClientPrefix::host(self.from.ip()))
    }
}
