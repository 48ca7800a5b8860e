//! What an answer carries besides its records: the OPT record with the requested options (RFC 6891), among them cookies (RFC 7873). Also the
//! maximum length of an answer.

use fdn_core::Revision;
use fdn_core::api::edns::REVISION;
use hickory_proto::op::{Edns, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;

use super::context::RequestContext;
use super::wire::{self, Failure};
use super::{Reply, Responder, UDP_MIN};
use crate::metrics::QueryKind;

impl Responder {
    /// The OPT record of an answer: present if the request had one (RFC 6891, section 6.1.1), with the requested options.
    pub(super) fn edns(
        &self,
        context: &RequestContext<'_>,
        code: ResponseCode,
        (scope, revision): (u8, Option<Revision>),
    ) -> Option<Edns> {
        let theirs = context.scan.edns.as_ref()?;
        let mut edns = Edns::new();
        edns.set_max_payload(self.udp_size)
            .set_dnssec_ok(theirs.dnssec_ok);
        let mut add = |code, data| edns.options_mut().insert(EdnsOption::Unknown(code, data));
        if let Some(subnet) = &theirs.subnet {
            self.metrics.with_subnet();
            // RFC 7871, section 7.2.1: an answer that does not depend on the client has scope 0; an error has no client subnet option.
            if matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
                add(wire::CLIENT_SUBNET, subnet.answer(scope));
            }
        }
        if let (Some(cookie), Some(keys)) = (&theirs.cookie, &self.guard.cookies) {
            let data = keys.answer(cookie, context.from.ip(), context.now);
            add(wire::COOKIE, data.to_vec());
        }
        if let (true, Some(name)) = (theirs.nsid, &self.guard.identity.name) {
            add(wire::NSID, name.clone().into_bytes());
        }
        if let (true, Some(revision)) = (theirs.revision, revision) {
            add(REVISION, revision.get().to_be_bytes().to_vec());
        }
        Some(edns)
    }

    /// The answer to a request without a question: a server cookie (RFC 7873, section 5.4).
    pub(super) fn cookie_only(&self, context: &RequestContext<'_>) -> Reply {
        let cookie = context.scan.edns.as_ref().and_then(|e| e.cookie.as_ref());
        let (Some(cookie), Some(keys)) = (cookie, &self.guard.cookies) else {
            let failure = Failure::of(context.scan, ResponseCode::FormErr);
            self.metrics
                .query(QueryKind::Other, failure.code, context.transport);
            return Reply::failure(context.packet, &failure, self.udp_size);
        };
        self.metrics
            .query(QueryKind::Other, ResponseCode::NoError, context.transport);
        let data = keys.answer(cookie, context.from.ip(), context.now);
        let failure = Failure::of(context.scan, ResponseCode::NoError);
        let mut reply = Reply::failure(context.packet, &failure, self.udp_size);
        // The OPT record is the last record, and its two-byte data length the last field.
        reply.bytes.truncate(reply.bytes.len() - 2);
        for word in [4 + data.len(), usize::from(wire::COOKIE), data.len()] {
            let word = u16::try_from(word).unwrap_or(u16::MAX);
            reply.bytes.extend_from_slice(&word.to_be_bytes());
        }
        reply.bytes.extend_from_slice(&data);
        reply.verified = self.verified(context);
        reply
    }

    /// Whether a valid cookie proves that the client's address is not forged.
    pub(super) fn verified(&self, context: &RequestContext<'_>) -> bool {
        let cookie = context.scan.edns.as_ref().and_then(|e| e.cookie.as_ref());
        match (cookie, &self.guard.cookies) {
            (Some(cookie), Some(keys)) => keys.accepts(cookie, context.from.ip(), context.now),
            _ => false,
        }
    }

    /// The maximum length of an answer, in bytes.
    pub(super) fn size_limit(&self, context: &RequestContext<'_>, verified: bool) -> u16 {
        let reserved = u16::try_from(context.reserved).unwrap_or(u16::MAX);
        if context.transport.is_stream() {
            return u16::MAX - reserved;
        }
        let taken = match &context.scan.edns {
            Some(edns) => edns.payload.clamp(UDP_MIN, self.udp_size.max(UDP_MIN)),
            None => UDP_MIN,
        };
        let taken = taken.saturating_sub(reserved);
        if verified {
            return taken;
        }
        let unverified = self.unverified_limit(context.packet);
        taken.min(unverified.saturating_sub(reserved))
    }

    /// The maximum length, in bytes, of an answer over UDP to a client whose address may be forged.
    pub(super) fn unverified_limit(&self, packet: &[u8]) -> u16 {
        match usize::from(self.guard.amplification) * packet.len() {
            0 => u16::MAX,
            most => u16::try_from(most - 1).unwrap_or(u16::MAX),
        }
    }
}
