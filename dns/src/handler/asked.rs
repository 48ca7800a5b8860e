//! A request as the parts of this module hand it on.

use std::cell::OnceCell;
use std::net::SocketAddr;

use fdn_core::ClientPrefix;

use super::wire::{self, Scan};
use crate::metrics::Transport;
use crate::query_log::Told;

/// A request with all that its answer depends on.
pub(super) struct Asked<'a> {
    pub(super) packet: &'a [u8],
    pub(super) scan: &'a Scan,
    pub(super) from: SocketAddr,
    pub(super) transport: Transport,
    pub(super) now: u32,
    /// Whether it was signed, and rightly.
    pub(super) signed: bool,
    /// Bytes by which a signature will make the answer longer.
    pub(super) reserved: usize,
    /// What the answer followed from, if it is looked at.
    pub(super) told: Option<OnceCell<Told>>,
    /// Whether a line is written about it.
    pub(super) logged: bool,
}

impl Asked<'_> {
    pub(super) fn subnet(&self) -> Option<&wire::Subnet> {
        self.scan.edns.as_ref()?.subnet.as_ref()
    }

    /// The client. Without a client subnet the resolver stands for its clients (RFC 7871, section 7.2.1).
    pub(super) fn client(&self) -> ClientPrefix {
        let told = self.subnet().and_then(|subnet| subnet.client);
        told.unwrap_or_else(|| ClientPrefix::host(self.from.ip()))
    }
}
