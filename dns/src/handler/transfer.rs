//! Zone transfers: the part of the zone that is the same for all clients, for those with a key. AXFR (RFC 5936), and IXFR, which is answered
//! with the whole zone, or with a single SOA record if nothing is new (RFC 1995, section 4).
//!
//! The transferred zone consists of the apex, the name servers and the operator's own records, unsigned. The addresses of an app depend on
//! the client, so apps are not included. Only signed requests over TCP get it; all others are refused.

use std::net::SocketAddr;

use hickory_proto::op::{Edns, LowerQuery, ResponseCode};
use hickory_proto::rr::rdata::SOA;
use hickory_proto::rr::{DNSClass, LowerName, RData, Record, RecordType, SerialNumber};
use hickory_proto::serialize::binary::BinEncodable as _;
use hickory_server::net::xfer::Protocol;
use hickory_server::server::Request;

use super::sections::{Sections, encode};
use super::tsig::{Keyring, Session};
use super::wire::{Scan, tsig};
use super::{RequestContext, Responder, seconds};
use crate::metrics::{QueryKind, Transport};
use crate::policy::Body;
use crate::policy::zone::{Entry, Names, ZoneData, name_of};

/// The bytes of records in one message, small enough that most names in it are within reach of compression pointers (RFC 1035, section 4.1.4).
const MESSAGE: usize = 16 * 1024;

/// The keys that may transfer the zone, and the names that it consists of.
#[derive(Clone, Debug, Default)]
pub struct Transfers {
    keys: Keyring,
    owners: Vec<LowerName>,
}

impl Transfers {
    /// Allows clients with one of these keys to transfer a zone.
    #[must_use]
    pub fn new(keys: Keyring, zone: &ZoneData) -> Self {
        let apex = LowerName::new(&name_of(&zone.name));
        let servers = zone.servers.iter().map(|(host, _)| name_of(host));
        let records = zone.records.iter().map(|named| named.name.clone());
        let mut owners: Vec<LowerName> = servers
            .chain(records)
            .map(|name| LowerName::new(&name))
            .filter(|name| apex.zone_of(name) && *name != apex)
            .collect();
        owners.sort();
        owners.dedup();
        owners.insert(0, apex);
        Self { keys, owners }
    }

    /// The keys.
    #[must_use]
    pub const fn keys(&self) -> &Keyring {
        &self.keys
    }

    /// The zone's name.
    #[must_use]
    pub fn apex(&self) -> Option<&LowerName> {
        self.owners.first()
    }

    /// All records except the SOA record.
    fn records<'a>(&self, names: &'a Names) -> Vec<&'a Record> {
        let mut all = Vec::new();
        for owner in &self.owners {
            let Entry::Fixed(set) = names.find(owner) else {
                continue;
            };
            for kind in set.types() {
                match set.body(kind) {
                    Body::Records(records, _) if kind != RecordType::SOA => all.extend(records),
                    _ => {}
                }
            }
        }
        all
    }
}

/// The SOA record of the zone.
#[must_use]
pub fn soa(names: &Names, apex: &LowerName) -> Option<Record> {
    let Entry::Fixed(set) = names.find(apex) else {
        return None;
    };
    match set.body(RecordType::SOA) {
        Body::Records(records, _) => records.first().map(|record| (*record).clone()),
        _ => None,
    }
}

/// Whether a secondary with this serial number has the newest version (RFC 1982, section 3.2).
fn is_current(held: u32, own: &SOA) -> bool {
    SerialNumber::new(held) >= SerialNumber::new(own.serial)
}

impl Responder {
    /// The messages that answer a message of a stream, in order; an empty list ends the stream.
    #[must_use]
    pub fn replies(&self, packet: &[u8], from: SocketAddr, transport: Transport) -> Vec<Vec<u8>> {
        match self.transfer(packet, from, transport) {
            Some(messages) => messages,
            None => self.respond(packet, from, transport).into_iter().collect(),
        }
    }

    /// The zone's SOA record, as the answer to a signed IXFR request over UDP.
    pub(super) fn newest(&self, query: &LowerQuery) -> Sections {
        let names = self.published.names();
        let apex = self
            .guard
            .transfers
            .apex()
            .filter(|apex| *apex == query.name());
        match apex.and_then(|apex| soa(&names, apex)) {
            Some(soa) => whole(vec![soa]),
            None => Sections::bare(ResponseCode::NotAuth),
        }
    }

    /// The answer to a signed transfer request, which is refused if the signature is not valid; `None` if the packet is not one.
    fn transfer(
        &self,
        packet: &[u8],
        from: SocketAddr,
        transport: Transport,
    ) -> Option<Vec<Vec<u8>>> {
        if transport != Transport::Tcp {
            return None;
        }
        let scan = super::wire::scan(packet).ok()?;
        let start = scan.tsig?;
        // The question ends with type and class.
        let kind = packet
            .get(scan.question.end.checked_sub(4)?..)?
            .first_chunk()?;
        let kind = RecordType::from(u16::from_be_bytes(*kind));
        if !matches!(kind, RecordType::AXFR | RecordType::IXFR) {
            return None;
        }
        let now = seconds();
        let session = match self.session(packet, &scan, (transport, now)) {
            Ok(session) => session?,
            // This is the answer: checked once more elsewhere, the request would be counted twice.
            Err(denied) => return Some(vec![denied.bytes]),
        };
        let request = Request::from_bytes(decodable(packet, &scan, start), from, Protocol::Tcp);
        let request = request.ok()?;
        let context = RequestContext {
            packet,
            scan: &scan,
            from,
            transport,
            now,
            signed: true,
            reserved: 0,
            note: None,
            logged: false,
        };
        Some(self.messages(&request, &context, session))
    }

    fn messages(
        &self,
        request: &Request,
        context: &RequestContext<'_>,
        mut session: Session,
    ) -> Vec<Vec<u8>> {
        let query = request.queries.queries().first();
        let ours = query.is_some_and(|query| {
            query.query_class() == DNSClass::IN && self.guard.transfers.apex() == Some(query.name())
        });
        let names = self.published.names();
        let soa = self
            .guard
            .transfers
            .apex()
            .and_then(|apex| soa(&names, apex));
        let (Some(query), Some(soa), true) = (query, soa, ours) else {
            // RFC 5936, section 2.2.1: not authoritative for this zone.
            let refused = Sections::bare(ResponseCode::NotAuth);
            return self.write(request, context, &mut session, vec![refused]);
        };
        let held = request
            .authorities
            .iter()
            .find_map(|record| match &record.data {
                RData::SOA(soa) => Some(soa.serial),
                _ => None,
            });
        let current = match (&soa.data, held) {
            (RData::SOA(own), Some(held)) => is_current(held, own),
            _ => false,
        };
        let kind = query.query_type();
        if kind == RecordType::IXFR && current {
            self.metrics.transfers.current.inc();
            return self.write(request, context, &mut session, vec![whole(vec![soa])]);
        }
        self.metrics.transfers.whole.inc();
        let records = self.guard.transfers.records(&names);
        let mut parts = vec![vec![soa.clone()]];
        let mut bytes = 0;
        for record in records.into_iter().chain([&soa]) {
            let len = record.to_bytes().map_or(MESSAGE, |bytes| bytes.len());
            if bytes > 0 && bytes + len > MESSAGE {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += len;
            if let Some(part) = parts.last_mut() {
                part.push(record.clone());
            }
        }
        let parts = parts.into_iter().map(whole).collect();
        self.write(request, context, &mut session, parts)
    }

    /// Encodes and signs the messages of one answer.
    fn write(
        &self,
        request: &Request,
        context: &RequestContext<'_>,
        session: &mut Session,
        parts: Vec<Sections>,
    ) -> Vec<Vec<u8>> {
        let code = parts
            .first()
            .map_or(ResponseCode::ServFail, |part| part.code);
        self.metrics
            .query(QueryKind::Other, code, context.transport);
        let question = &context.packet[context.scan.question.clone()];
        let room = usize::from(u16::MAX).saturating_sub(session.added());
        let room = u16::try_from(room).unwrap_or(u16::MAX);
        // RFC 5936, section 2.2.5: the OPT record is in the first message only.
        let mut edns: Option<Edns> = self.edns(context, code, (0, None));
        let mut messages = Vec::with_capacity(parts.len());
        for part in parts {
            let encoded = encode(&request.metadata, question, &part, edns.as_ref(), room);
            let Some(mut message) = encoded else {
                // The messages so far are an incomplete zone, which the client does not accept.
                break;
            };
            session.sign(&mut message, u64::from(context.now));
            messages.push(message);
            edns = None;
        }
        messages
    }
}

fn whole(answers: Vec<Record>) -> Sections {
    Sections {
        authoritative: true,
        answers,
        ..Sections::default()
    }
}

/// A signed request in a form for the decoder: without its signature, which begins at `start`, and with the options hidden that were read.
pub(super) fn decodable(packet: &[u8], scan: &Scan, start: usize) -> Vec<u8> {
    let mut bytes = tsig::without(&packet[..start]);
    scan.hide_options(&mut bytes);
    bytes
}
