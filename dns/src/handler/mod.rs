//! From bytes to bytes: scans and decodes a request, asks the policy, encodes the answer.
//!
//! [`Responder::respond`] is synchronous: it never waits, logs nothing, and takes no contended lock (metrics are atomics, demand uses
//! `try_lock` and gives up, signatures are kept in parts that are locked for a look-up each). Requests are decoded by hickory-server's
//! [`Request`], answers encoded by the message encoder under it. Two parts of hickory-server are not used. Its `Server` loop logs two
//! lines for every query, starts a task for every datagram without a bound, has no cap on TCP connections, and answers what it cannot
//! decode without question and OPT record; [`udp`] and [`tcp`] are the loops instead; the latter serves any byte stream, and so
//! [`tls`] too, beside which stands [`https`]. Its response builder never compresses a name against the question; `AskedQuestion` does.
//!
//! The reply to a request is a function of the request, the state that is published and, if it has a cookie, the time
//! ([`Responder::reply`]). [`Responder::datagram`] adds the one thing that depends on requests before: [`limit`].

mod asked;
pub mod cookie;
mod decide;
mod edns;
pub mod fast;
pub mod https;
pub mod identity;
pub mod limit;
mod sections;
mod signed;
pub mod streams;
pub mod tcp;
pub mod tls;
pub mod transfer;
pub mod tsig;
pub mod udp;
mod watch;
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

use self::asked::Asked;
use self::cookie::CookieKeys;
use self::identity::Identity;
use self::limit::{Class, Limiter, Outcome};
use self::sections::encode;
use self::signed::is_nxname;
use self::transfer::{Transfers, decodable};
use self::tsig::Session;
use self::watch::Watch;
use self::wire::{Failure, Reject};
use crate::dnssec::Signer;
use crate::metrics::{Metrics, QueryKind, Transport};
use crate::policy::Policy;
use crate::published::Published;
use crate::query_log::QueryLog;
use crate::sync::demand::Demand;

/// The smallest size that every asker takes over UDP (RFC 1035, section 4.2.1; RFC 6891, section 6.2.3).
const UDP_MIN: u16 = 512;

/// Turns requests into answers.
pub struct Responder {
    published: Arc<Published>,
    policy: Policy,
    demand: Arc<Demand>,
    metrics: Arc<Metrics>,
    /// The largest answer sent over UDP, whatever the asker takes.
    udp_size: u16,
    guard: Guard,
    /// Signs what is answered, if the zone is signed.
    signer: Option<Arc<Signer>>,
    /// Takes a sample of the questions, if the operator wants one.
    query_log: Option<QueryLog>,
}

/// What the operator lets the server tell, and whom it believes.
#[derive(Debug, Default)]
pub struct Guard {
    /// What the server tells about itself.
    pub identity: Identity,
    /// Keys of the cookies; without them cookies are ignored.
    pub cookies: Option<CookieKeys>,
    /// Limits on answers over UDP.
    pub limiter: Option<Limiter>,
    /// An answer over UDP is shorter than so many times its request, unless a cookie shows that the asker's address is its own; a
    /// longer one is truncated. 0: no such bound.
    pub amplification: u16,
    /// Who may have the whole zone, and whose signed requests are believed.
    pub transfers: Transfers,
}

/// An answer and what decides whether it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The message.
    pub bytes: Vec<u8>,
    /// What it counts as.
    pub class: Class,
    /// Whether a cookie shows that the asker's address is its own.
    pub verified: bool,
    /// Where the question's name stands in the request.
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
    /// A responder over the state that is published, with neither limits nor cookies.
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

    /// The same with what the operator set.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self { guard, ..self }
    }

    /// The same for a zone that is signed.
    #[must_use]
    pub fn signing(self, signer: Option<Arc<Signer>>) -> Self {
        Self { signer, ..self }
    }

    /// The same with a log of some of the questions.
    #[must_use]
    pub fn logging(self, query_log: Option<QueryLog>) -> Self {
        Self { query_log, ..self }
    }

    /// The metrics that it counts in.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The answer to a packet, or nothing if it deserves none. Nothing is limited: for streams, whose peers are who they say they are.
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

    /// Writes the answer to a datagram that came at `now` into `out`, and says whether there is one: there is none if the packet deserves
    /// none, or if its network has had enough.
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
        let Some(reply) = self.reply(packet, from, Transport::Udp, seconds()) else {
            return false;
        };
        *out = reply.bytes;
        reply.verified || self.within_limits((packet, from, now), (reply.class, reply.name), out)
    }

    /// Whether an answer is sent; the one in `out` is cut short if its asker is to come again over TCP.
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

    /// The answer to a packet at `now` (seconds since 1970, modulo 2^32), or nothing if it deserves none.
    #[must_use]
    pub fn reply(
        &self,
        packet: &[u8],
        from: SocketAddr,
        transport: Transport,
        now: u32,
    ) -> Option<Reply> {
        match wire::scan(packet) {
            Ok(scan) => {
                let id = u16::from_be_bytes([packet[0], packet[1]]);
                let watch = self.watch(id);
                let mut session = match self.session(packet, &scan, (transport, now)) {
                    Ok(session) => session,
                    Err(denied) => return Some(denied),
                };
                let asked = Asked {
                    packet,
                    scan: &scan,
                    from,
                    transport,
                    now,
                    signed: session.is_some(),
                    reserved: session.as_ref().map_or(0, Session::added),
                    told: watch.as_ref().map(|_| OnceCell::new()),
                    logged: watch.as_ref().is_some_and(Watch::is_logged),
                };
                let mut reply = self.answer(&asked);
                // RFC 7830, section 6: not where others can read the answer anyway.
                if transport.is_encrypted() && scan.edns.as_ref().is_some_and(|e| e.padded) {
                    wire::pad(&mut reply.bytes);
                }
                if let Some(session) = &mut session {
                    session.sign(&mut reply.bytes, u64::from(now));
                }
                if let Some(watch) = watch {
                    let code = ResponseCode::from(0, reply.bytes[3] & 0x0f);
                    let question = (&packet[scan.question.clone()], asked.client());
                    let told = asked.told.and_then(OnceCell::into_inner);
                    self.watched(&watch, question, (code, transport), told);
                }
                Some(reply)
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
                Some(reply)
            }
        }
    }

    fn answer(&self, asked: &Asked<'_>) -> Reply {
        let scan = asked.scan;
        let failed = |code| {
            self.metrics.query(QueryKind::Other, code, asked.transport);
            Reply::failure(asked.packet, &Failure::of(scan, code), self.udp_size)
        };
        if scan.question.is_empty() {
            return self.cookie_only(asked);
        }
        let bytes = match scan.tsig {
            Some(start) => decodable(asked.packet, scan, start),
            None => {
                let mut bytes = asked.packet.to_vec();
                scan.hide_options(&mut bytes);
                bytes
            }
        };
        let protocol = match asked.transport {
            Transport::Udp => Protocol::Udp,
            // What a stream is wrapped in makes no difference to the decoder.
            Transport::Tcp | Transport::Tls | Transport::Https => Protocol::Tcp,
        };
        let Ok(request) = Request::from_bytes(bytes, asked.from, protocol) else {
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
        let verified = self.verified(asked);
        let decided = self.decide(&request, query, asked, verified);
        let (sections, class) = (&decided.sections, decided.class);
        self.metrics
            .query(QueryKind::of(kind), sections.code, asked.transport);
        let followed = (decided.scope, decided.revision);
        let edns = self.edns(asked, sections.code, followed);
        let limit = self.size_limit(asked, verified);
        let question = &asked.packet[scan.question.clone()];
        match encode(&request.metadata, question, sections, edns.as_ref(), limit) {
            Some(bytes) => Reply {
                bytes,
                class,
                verified,
                // Type and class follow the name.
                name: scan.question.start..scan.question.end - 4,
            },
            None => failed(ResponseCode::ServFail),
        }
    }
}

/// Types that no record has (RFC 6895, section 3.1: OPT, and 128 to 255) and that mean nothing here as a question. Zone transfers and
/// ANY do.
fn without_meaning(kind: RecordType) -> Option<ResponseCode> {
    match kind {
        RecordType::OPT => Some(ResponseCode::FormErr),
        RecordType::ANY | RecordType::AXFR | RecordType::IXFR => None,
        other if (128..=255).contains(&u16::from(other)) => Some(ResponseCode::NotImp),
        _ => None,
    }
}

/// Seconds since 1970, modulo 2^32.
fn seconds() -> u32 {
    let seconds = fdn_service::now().get() / 1000;
    u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests;
