//! From bytes to bytes: scans and decodes a request, asks the policy, and encodes the answer.
//!
//! [`Responder::respond`] is synchronous: it never waits, logs nothing, and takes no contended lock (metrics are atomics, demand uses
//! `try_lock` and gives up, signatures are cached in shards that are locked for one lookup each). Requests are decoded by hickory-server's
//! [`Request`], answers are encoded by its message encoder. Two parts of hickory-server are not used. Its `Server` loop logs two
//! lines per query, starts a task per datagram without a bound, does not limit TCP connections, and answers undecodable requests
//! without question and OPT record. The loops here are [`udp`] and [`tcp`] instead; the latter serves any byte stream, and so [`tls`] too;
//! [`https`] is separate. Its response builder never compresses a name against the question; `AskedQuestion` does.
//!
//! The reply to a request is a function of the request, the published state and, if the request has a cookie, the time
//! ([`Responder::reply`]). [`Responder::datagram`] adds the only thing that depends on earlier requests: [`limit`].

mod context;
pub mod cookie;
mod decide;
mod edns;
pub mod fast;
pub mod https;
pub mod identity;
pub mod limit;
mod sample;
mod sections;
mod signed;
pub mod streams;
pub mod tcp;
pub mod tls;
pub mod transfer;
pub mod tsig;
pub mod udp;
pub mod wire;

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;
use hickory_server::net::xfer::Protocol;
use hickory_server::server::Request;

use self::context::RequestContext;
use self::cookie::CookieKeys;
use self::identity::Identity;
use self::limit::{Class, Limiter, Outcome};
use self::sample::Sample;
use self::sections::encode;
use self::signed::is_nxname;
use self::transfer::{Transfers, decodable};
use self::tsig::Session;
use self::wire::{Failure, Reject};
use crate::dnssec::Signer;
use crate::metrics::{Metrics, QueryKind, Transport};
use crate::policy::Policy;
use crate::published::Published;
use crate::query_log::QueryLog;
use crate::sync::demand::Demand;

/// The smallest size that every client accepts over UDP (RFC 1035, section 4.2.1; RFC 6891, section 6.2.3).
const UDP_MIN: u16 = 512;

/// Turns requests into answers.
pub struct Responder {
    published: Arc<Published>,
    policy: Policy,
    demand: Arc<Demand>,
    metrics: Arc<Metrics>,
    /// The largest answer over UDP, in bytes, whatever the client accepts.
    udp_size: u16,
    guard: Guard,
    /// The signer, if the zone is signed.
    signer: Option<Arc<Signer>>,
    /// The query log, if it is enabled.
    query_log: Option<QueryLog>,
}

/// The configured protections: identification, cookies, limits and trusted keys.
#[derive(Debug, Default)]
pub struct Guard {
    /// The server's identification.
    pub identity: Identity,
    /// The cookie keys; without them cookies are ignored.
    pub cookies: Option<CookieKeys>,
    /// Rate limits on answers over UDP.
    pub limiter: Option<Limiter>,
    /// An answer over UDP must be shorter than this many times its request, unless a cookie proves that the client's address is not forged;
    /// a longer one is truncated. 0: no such limit.
    pub amplification: u16,
    /// The keys for zone transfers and other signed requests.
    pub transfers: Transfers,
}

/// An answer, and what decides whether it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The encoded message.
    pub bytes: Vec<u8>,
    /// Its class for the rate limits.
    pub class: Class,
    /// Whether a valid cookie proves that the client's address is not forged.
    pub verified: bool,
    /// The position of the question's name in the request.
    name: Range<usize>,
}

impl Reply {
    fn failure(packet: &[u8], failure: &Failure, udp_size: u16) -> Self {
        Self {
            bytes: failure.reply(packet, udp_size),
            class: Class::Error,
            verified: false,
            name: 0..0,
        }
    }
}

impl Responder {
    /// A responder over the published state, without limits and cookies.
    #[must_use]
    pub fn new(
        published: Arc<Published>,
        policy: Policy,
        demand: Arc<Demand>,
        metrics: Arc<Metrics>,
        udp_size: u16,
    ) -> Self {
        Self {
            published,
            policy,
            demand,
            metrics,
            udp_size,
            guard: Guard::default(),
            signer: None,
            query_log: None,
        }
    }

    /// The same responder with these protections.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self { guard, ..self }
    }

    /// The same responder with this signer.
    #[must_use]
    pub fn signing(self, signer: Option<Arc<Signer>>) -> Self {
        Self { signer, ..self }
    }

    /// The same responder with this query log.
    #[must_use]
    pub fn logging(self, query_log: Option<QueryLog>) -> Self {
        Self { query_log, ..self }
    }

    /// The metrics.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The answer to a packet, or `None` if it is dropped. No rate limits apply: for streams, whose source addresses cannot be forged.
    #[must_use]
    pub fn respond(
        &self,
        packet: &[u8],
        from: SocketAddr,
        transport: Transport,
    ) -> Option<Vec<u8>> {
        self.reply(packet, from, transport, seconds())
            .map(|reply| reply.bytes)
    }

    /// Writes the answer to a datagram that arrived at `now` into `out`, and returns whether there is one: there is none if the packet is dropped,
    /// or if its network has exceeded its rate.
    pub fn datagram(
        &self,
        packet: &[u8],
        from: SocketAddr,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some(name) = self.respond_fast(packet, from, out) {
            return self.within_limits((packet, from, now), (Class::Name, name), out);
        }
        let signed_at = seconds();
        let Some((reply, session)) = self.unsigned_reply(packet, from, Transport::Udp, signed_at)
        else {
            return false;
        };
        *out = reply.bytes;
        let sent = reply.verified
            || self.within_limits((packet, from, now), (reply.class, reply.name), out);
        // As it is sent: truncated beyond a limit.
        if let Some(mut session) = session.filter(|_| sent) {
            session.sign(out, u64::from(signed_at));
        }
        sent
    }

    /// Whether an answer is sent, before its session signs it; the one in `out` is truncated if the client is to retry over TCP.
    fn within_limits(
        &self,
        (packet, from, now): (&[u8], SocketAddr, Instant),
        (class, name): (Class, Range<usize>),
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(limiter) = &self.guard.limiter else {
            return true;
        };
        let name = packet.get(name).unwrap_or_default();
        let id = u16::from_be_bytes([packet[0], packet[1]]);
        match limiter.decide(limiter.nanos(now), from.ip(), class, name, id) {
            Outcome::Send => true,
            Outcome::Slip => {
                self.metrics.limited_slipped.inc();
                // What refuses a signature has no other record to leave out, and its header may be signed. If it is the longer one, because names
                // are compressed in the request, a forged address must not gain by it.
                let is_refusal = wire::signature(out).is_some();
                if is_refusal && out.len() <= packet.len() + tsig::OTHER {
                    return true;
                }
                match wire::truncated(out) {
                    Some(cut) => *out = cut,
                    None => return false,
                }
                true
            }
            Outcome::Drop => {
                self.metrics.limited_dropped.inc();
                false
            }
        }
    }

    /// The answer to a packet at `now` (seconds since 1970, modulo 2^32), or `None` if it is dropped.
    #[must_use]
    pub fn reply(
        &self,
        packet: &[u8],
        from: SocketAddr,
        transport: Transport,
        now: u32,
    ) -> Option<Reply> {
        let (mut reply, session) = self.unsigned_reply(packet, from, transport, now)?;
        if let Some(mut session) = session {
            session.sign(&mut reply.bytes, u64::from(now));
        }
        Some(reply)
    }

    /// The answer to a packet, and the session that signs it if the request was signed. An answer that refuses a signature is complete.
    fn unsigned_reply(
        &self,
        packet: &[u8],
        from: SocketAddr,
        transport: Transport,
        now: u32,
    ) -> Option<(Reply, Option<Session>)> {
        match wire::scan(packet) {
            Ok(scan) => {
                let id = u16::from_be_bytes([packet[0], packet[1]]);
                let sample = self.sample(id);
                let session = match self.session(packet, &scan, (transport, now)) {
                    Ok(session) => session,
                    Err(denied) => return Some((denied, None)),
                };
                let context = RequestContext {
                    packet,
                    scan: &scan,
                    from,
                    transport,
                    now,
                    signed: session.is_some(),
                    reserved: session.as_ref().map_or(0, Session::added),
                    note: sample.as_ref().map(|_| OnceCell::new()),
                    logged: sample.as_ref().is_some_and(Sample::is_logged),
                };
                let mut reply = self.answer(&context);
                // RFC 7830, section 6: no padding where others can read the answer anyway.
                if transport.is_encrypted() && scan.edns.as_ref().is_some_and(|e| e.padded) {
                    wire::pad(&mut reply.bytes);
                }
                if let Some(sample) = sample {
                    let code = ResponseCode::from(0, reply.bytes[3] & 0x0f);
                    let question = (&packet[scan.question.clone()], context.client());
                    let note = context.note.and_then(OnceCell::into_inner);
                    self.record_sample(&sample, question, (code, transport), note);
                }
                Some((reply, session))
            }
            Err(Reject::Drop) => {
                self.metrics.ignored();
                None
            }
            Err(Reject::Error(failure)) => {
                self.metrics
                    .query(QueryKind::Other, failure.code, transport);
                let mut reply = Reply::failure(packet, &failure, self.udp_size);
                if transport.is_encrypted() && failure.padded {
                    wire::pad(&mut reply.bytes);
                }
                Some((reply, None))
            }
        }
    }

    fn answer(&self, context: &RequestContext<'_>) -> Reply {
        let scan = context.scan;
        let failed = |code| {
            self.metrics
                .query(QueryKind::Other, code, context.transport);
            Reply::failure(context.packet, &Failure::of(scan, code), self.udp_size)
        };
        if scan.question.is_empty() {
            return self.cookie_only(context);
        }
        let bytes = match scan.tsig {
            Some(start) => decodable(context.packet, scan, start),
            None => {
                let mut bytes = context.packet.to_vec();
                scan.hide_options(&mut bytes);
                bytes
            }
        };
        let protocol = match context.transport {
            Transport::Udp => Protocol::Udp,
            // The encryption around a stream makes no difference to the decoder.
            Transport::Tcp | Transport::Tls | Transport::Https => Protocol::Tcp,
        };
        let Ok(request) = Request::from_bytes(bytes, context.from, protocol) else {
            return failed(ResponseCode::FormErr);
        };
        let Some(query) = request.queries.queries().first() else {
            return failed(ResponseCode::FormErr);
        };
        let kind = query.query_type();
        if self.signer.is_some() && is_nxname(kind) {
            return failed(ResponseCode::FormErr);
        }
        if let Some(code) = without_meaning(kind) {
            return failed(code);
        }
        let verified = self.verified(context);
        let resolved = self.decide(&request, query, context, verified);
        let (sections, class) = (&resolved.sections, resolved.class);
        self.metrics
            .query(QueryKind::of(kind), sections.code, context.transport);
        let followed = (resolved.scope, resolved.revision);
        let edns = self.edns(context, sections.code, followed);
        let limit = self.size_limit(context, verified);
        let question = &context.packet[scan.question.clone()];
        match encode(&request.metadata, question, sections, edns.as_ref(), limit) {
            Some(bytes) => Reply {
                bytes,
                class,
                verified,
                // Type and class follow the name, four bytes.
                name: scan.question.start..scan.question.end - 4,
            },
            None => failed(ResponseCode::ServFail),
        }
    }
}

/// Query types that no record has (RFC 6895, section 3.1: OPT, and 128 to 255) and that have no meaning here. Zone transfers and ANY
/// do have one.
fn without_meaning(kind: RecordType) -> Option<ResponseCode> {
    match kind {
        RecordType::OPT => Some(ResponseCode::FormErr),
        RecordType::ANY | RecordType::AXFR | RecordType::IXFR => None,
        other if (128..=255).contains(&u16::from(other)) => Some(ResponseCode::NotImp),
        _ => None,
    }
}

/// The current time in seconds since 1970, modulo 2^32.
fn seconds() -> u32 {
    let seconds = fdn_service::now().get() / 1000;
    u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
