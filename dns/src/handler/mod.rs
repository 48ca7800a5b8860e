//! From octets to octets: scans and decodes a request, asks the policy, encodes the answer.
//!
//! [`Responder::respond`] is synchronous: it never waits, logs nothing, and takes no contended lock (metrics are atomics, demand uses
//! `try_lock` and gives up). Requests are decoded by hickory-server's [`Request`], answers encoded by the message encoder under it.
//! Two parts of hickory-server are not used. Its `Server` loop logs two lines for every query, starts a task for every datagram
//! without a bound, has no cap on TCP connections, and answers what it cannot decode without question and OPT record; [`udp`]
//! and [`tcp`] are the loops instead, and the latter serves any byte stream. Its response builder never compresses a name against
//! the question; `AskedQuestion` does.

pub mod tcp;
pub mod udp;
pub(crate) mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use fdn_core::ClientPrefix;
use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, EmitAndCount, Metadata, ResponseCode, emit_message_parts};
use hickory_proto::rr::rdata::HINFO;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{Name, RData, Record};
use hickory_proto::serialize::binary::BinEncoder;
use hickory_server::net::xfer::Protocol;
use hickory_server::server::Request;

use self::wire::{Reject, Scan};
use crate::metrics::{Metrics, QueryKind, Transport};
use crate::policy::steer::{Pick, Steered};
use crate::policy::{Body, Policy, Question, Verdict, zone};
use crate::published::Published;
use crate::sync::demand::Demand;

/// The smallest size that every asker takes over UDP (RFC 1035, section 4.2.1; RFC 6891, section 6.2.3).
const UDP_MIN: u16 = 512;
/// One query in so many is timed.
const TIMED: u16 = 16;

/// Turns requests into answers.
pub struct Responder {
    published: Arc<Published>,
    policy: Policy,
    demand: Arc<Demand>,
    metrics: Arc<Metrics>,
    /// The largest answer sent over UDP, whatever the asker takes.
    udp_size: u16,
}

/// The records of an answer, section by section.
#[derive(Default)]
struct Sections {
    code: ResponseCode,
    authoritative: bool,
    answers: Vec<Record>,
    authority: Vec<Record>,
    additional: Vec<Record>,
}

impl Responder {
    /// A responder over the state that is published.
    #[must_use]
    pub const fn new(
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
        }
    }

    /// The metrics that it counts in.
    #[must_use]
    pub const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The answer to a packet, or nothing if it deserves none.
    #[must_use]
    pub fn respond(
        &self,
        packet: &[u8],
        from: SocketAddr,
        transport: Transport,
    ) -> Option<Vec<u8>> {
        match wire::scan(packet) {
            Ok(scan) => {
                let id = u16::from_be_bytes([packet[0], packet[1]]);
                let started = id.is_multiple_of(TIMED).then(Instant::now);
                let reply = self.answer(packet, &scan, from, transport);
                if let Some(started) = started {
                    self.metrics.timed(started.elapsed());
                }
                Some(reply)
            }
            Err(Reject::Drop) => {
                self.metrics.ignored();
                None
            }
            Err(Reject::Error {
                code,
                question,
                edns,
            }) => {
                self.metrics.query(QueryKind::Other, code, transport);
                Some(wire::error_reply(
                    packet,
                    code,
                    question,
                    edns,
                    self.udp_size,
                ))
            }
        }
    }

    fn answer(
        &self,
        packet: &[u8],
        scan: &Scan,
        from: SocketAddr,
        transport: Transport,
    ) -> Vec<u8> {
        let mut octets = packet.to_vec();
        scan.hide_subnet(&mut octets);
        let protocol = match transport {
            Transport::Udp => Protocol::Udp,
            Transport::Tcp => Protocol::Tcp,
        };
        let failed = |code| {
            self.metrics.query(QueryKind::Other, code, transport);
            wire::error_reply(
                packet,
                code,
                Some(scan.question.clone()),
                scan.edns.is_some(),
                self.udp_size,
            )
        };
        let Ok(request) = Request::from_bytes(octets, from, protocol) else {
            return failed(ResponseCode::FormErr);
        };
        let Some(query) = request.queries.queries().first() else {
            return failed(ResponseCode::FormErr);
        };
        let subnet = scan.edns.as_ref().and_then(|edns| edns.subnet.as_ref());
        // Without a client subnet the resolver stands for its clients (RFC 7871, section 7.2.1).
        let client = subnet
            .and_then(|s| s.client)
            .unwrap_or_else(|| ClientPrefix::host(from.ip()));
        let (names, serving) = (self.published.names(), self.published.serving());
        let question = Question {
            name: query.name(),
            kind: query.query_type(),
            class: query.query_class(),
        };
        let locate = self.published.locate();
        let verdict = self.policy.answer(
            question,
            client,
            request.metadata.id,
            &names,
            &serving.fleet,
            locate,
        );
        if let Some(steered) = &verdict.steered {
            self.demand.record(&steered.table.app, client.to_demand());
            count(steered, &serving.answers);
        }
        let sections = sections(&verdict, query.original().name(), &names);
        self.metrics
            .query(QueryKind::of(question.kind), sections.code, transport);
        let edns = scan.edns.as_ref().map(|asked| {
            let mut edns = Edns::new();
            edns.set_max_payload(self.udp_size)
                .set_dnssec_ok(asked.dnssec_ok);
            let tailorable = matches!(
                sections.code,
                ResponseCode::NoError | ResponseCode::NXDomain
            );
            if let Some(subnet) = subnet {
                self.metrics.with_subnet();
                if tailorable {
                    edns.options_mut().insert(EdnsOption::Unknown(
                        wire::CLIENT_SUBNET,
                        subnet.answer(verdict.scope),
                    ));
                }
            }
            edns
        });
        let limit = match (transport, &scan.edns) {
            (Transport::Tcp, _) => u16::MAX,
            (Transport::Udp, Some(edns)) => edns.payload.clamp(UDP_MIN, self.udp_size.max(UDP_MIN)),
            (Transport::Udp, None) => UDP_MIN,
        };
        let question = &packet[scan.question.clone()];
        encode(&request.metadata, question, &sections, edns.as_ref(), limit)
            .unwrap_or_else(|| failed(ResponseCode::ServFail))
    }
}

fn count(steered: &Steered<'_>, answers: &[prometheus::IntCounter]) {
    if let Pick::Live(index) = &steered.pick
        && let Some(counter) = answers.get(*index)
    {
        counter.inc();
    }
}

/// Writes the verdict as records. Names are written as the asker wrote them, so that its own spelling comes back (and compresses).
fn sections(verdict: &Verdict<'_>, asked: &Name, names: &zone::Names) -> Sections {
    let mut out = Sections {
        authoritative: true,
        ..Sections::default()
    };
    match &verdict.body {
        Body::Records(records, additional) => {
            out.answers = records
                .iter()
                .map(|record| renamed(record, asked.clone()))
                .collect();
            out.additional = additional.iter().map(|record| (*record).clone()).collect();
        }
        Body::Addresses { ttl, addresses } => {
            let record = |addr| Record::from_rdata(asked.clone(), *ttl, zone::address(addr));
            out.answers = addresses.iter().copied().map(record).collect();
        }
        Body::Any(ttl) => {
            let data = RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new()));
            out.answers = vec![Record::from_rdata(asked.clone(), *ttl, data)];
        }
        Body::NoData | Body::NxDomain => {
            if matches!(verdict.body, Body::NxDomain) {
                out.code = ResponseCode::NXDomain;
            }
            let apex = asked.trim_to(names.zone_labels());
            out.authority = vec![renamed(names.negative(), apex)];
        }
        Body::Refused | Body::Failure => {
            out.authoritative = false;
            out.code = match verdict.body {
                Body::Refused => ResponseCode::Refused,
                _ => ResponseCode::ServFail,
            };
        }
    }
    out
}

fn renamed(record: &Record, name: Name) -> Record {
    let mut record = record.clone();
    record.name = name;
    record
}

/// The question as it was asked, octet by octet, and a target for the compression of every name after it (RFC 1035, section 4.1.4).
struct AskedQuestion<'a>(&'a [u8]);

impl EmitAndCount for AskedQuestion<'_> {
    fn emit(&mut self, encoder: &mut BinEncoder<'_>) -> Result<usize, ProtoError> {
        let start = encoder.offset();
        encoder.emit_vec(self.0)?;
        // Type and class follow the name, whose last octet is the root; the scan has seen that the name is whole.
        let end = self.0.len().saturating_sub(5);
        let mut at = 0;
        while at < end {
            encoder.store_label_pointer(start + at, start + end);
            at += 1 + usize::from(self.0[at]);
        }
        Ok(1)
    }
}

/// Encodes within `limit` octets. An answer that does not fit is sent without records, marked as truncated and with its OPT record
/// (RFC 2181, section 9; RFC 6891, section 7), and the asker comes back over TCP. `None` when it cannot be encoded at all.
fn encode(
    request: &Metadata,
    question: &[u8],
    sections: &Sections,
    edns: Option<&Edns>,
    limit: u16,
) -> Option<Vec<u8>> {
    let mut metadata = Metadata::response_from_request(request);
    metadata.response_code = sections.code;
    metadata.authoritative = sections.authoritative;
    let write =
        |metadata: &Metadata, answers: &[Record], authority: &[Record], additional: &[Record]| {
            let mut octets = Vec::with_capacity(256);
            let mut encoder = BinEncoder::new(&mut octets);
            encoder.set_max_size(limit);
            let header = emit_message_parts(
                metadata,
                &mut AskedQuestion(question),
                &mut answers.iter(),
                &mut authority.iter(),
                &mut additional.iter(),
                edns,
                None,
                &mut encoder,
            );
            header
                .ok()
                .map(|header| (octets, header.metadata.truncation))
        };
    match write(
        &metadata,
        &sections.answers,
        &sections.authority,
        &sections.additional,
    )? {
        (octets, false) => Some(octets),
        (_, true) => {
            metadata.truncation = true;
            write(&metadata, &[], &[], &[]).map(|(octets, _)| octets)
        }
    }
}

#[cfg(test)]
mod tests;
