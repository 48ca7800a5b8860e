//! The fast path of most queries: one question for A or AAAA in class IN about an app, with at most a plain OPT record and a client
//! subnet. The answer is written straight into a buffer, from pre-encoded address records ([`Addresses::records`]): no allocation,
//! no waiting for a lock, no log line.
//!
//! Anything unusual is left to [`Responder::respond`], which knows all the rules. The answers of this path are byte for byte those of the
//! general path; `tests` compares the two over valid and mutated queries.
//!
//! A query is plain if its opcode is QUERY and no flag but RD is set (or AD, which has no effect on an answer without DNSSEC);
//! the question is not compressed; nothing follows the records; the only option is at most one client subnet of family 1 or 2 that is exact
//! (RFC 7871, sections 6 and 7.1.1) and not /0; and the DO bit is clear. The answer must come from a live cluster and must fit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use fdn_core::ClientPrefix;
use hickory_proto::op::ResponseCode;

use super::sample::Sample;
use super::wire::scope_as_asked;
use super::{Responder, UDP_MIN};
use crate::metrics::{QueryKind, Transport};
use crate::policy::fleet::{Addresses, Family};
use crate::policy::steer::{self, Pick};
use crate::query_log::SteeringNote;

/// The length of a message header in bytes (RFC 1035, section 4.1.1).
const HEADER: usize = 12;
/// The length of an OPT record without options in bytes (RFC 6891, section 6.1.2).
const OPT: usize = 11;
/// The bytes of a client subnet option before its address: code, length, family, source, scope.
const SUBNET: usize = 8;

/// A query that this path can answer.
#[derive(Debug)]
struct Plain<'a> {
    id: u16,
    /// The RD bit, which the answer repeats.
    recursion: u8,
    /// The bytes of the question: name, type and class.
    question: &'a [u8],
    family: Family,
    /// The OPT record, if there is one.
    edns: Option<PlainEdns<'a>>,
}

#[derive(Debug)]
struct PlainEdns<'a> {
    payload: u16,
    /// The client, and the bytes of its option.
    subnet: Option<(ClientPrefix, &'a [u8])>,
}

const fn number(bytes: [u8; 2]) -> u16 {
    u16::from_be_bytes(bytes)
}

impl<'a> Plain<'a> {
    fn parse(packet: &'a [u8]) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk::<HEADER>()?;
        let [
            i0,
            i1,
            flags,
            more,
            0,
            1,
            0,
            0,
            0,
            0,
            0,
            additionals @ 0..=1,
        ] = *header
        else {
            return None;
        };
        // Only RD may be set in the first byte, only AD in the second.
        if flags & 0xfe != 0 || more & 0xdf != 0 {
            return None;
        }
        let mut at = 0;
        loop {
            match usize::from(*rest.get(at)?) {
                0 => break,
                len @ 1..=63 => at += 1 + len,
                _ => return None,
            }
        }
        // The longest name in wire format (RFC 1035, section 2.3.4).
        if at > 254 {
            return None;
        }
        let (question, rest) = rest.split_at_checked(at + 5)?;
        let family = match question[at + 1..] {
            [0, 1, 0, 1] => Family::V4,
            [0, 28, 0, 1] => Family::V6,
            _ => return None,
        };
        let edns = match additionals {
            0 if rest.is_empty() => None,
            1 => Some(PlainEdns::parse(rest)?),
            _ => return None,
        };
        Some(Self {
            id: number([i0, i1]),
            recursion: flags,
            question,
            family,
            edns,
        })
    }

    /// The question's name in wire format.
    fn name(&self) -> &'a [u8] {
        &self.question[..self.question.len() - 4]
    }
}

impl<'a> PlainEdns<'a> {
    fn parse(record: &'a [u8]) -> Option<Self> {
        let (opt, option) = record.split_first_chunk::<OPT>()?;
        // The root name; type 41; the payload size; extended code, version and flags, all 0; the length of the options.
        let [0, 0, 41, p0, p1, 0, 0, 0, 0, l0, l1] = *opt else {
            return None;
        };
        if usize::from(number([l0, l1])) != option.len() {
            return None;
        }
        let subnet = if option.is_empty() {
            None
        } else {
            Some((client(option)?, option))
        };
        Some(Self {
            payload: number([p0, p1]),
            subnet,
        })
    }

    /// The bytes of the client subnet option; empty if there is none.
    fn option(&self) -> &'a [u8] {
        self.subnet.map_or(&[], |(_, option)| option)
    }
}

/// The client of an exact client subnet option, which must be the only option.
fn client(option: &[u8]) -> Option<ClientPrefix> {
    let (head, address) = option.split_first_chunk::<SUBNET>()?;
    let [0, 8, l0, l1, 0, family, source, 0] = *head else {
        return None;
    };
    if usize::from(number([l0, l1])) != address.len() + 4
        || source == 0
        || address.len() != usize::from(source).div_ceil(8)
    {
        return None;
    }
    let spare = u32::from((8 - source % 8) % 8);
    if address.last()?.trailing_zeros() < spare {
        return None;
    }
    let mut bytes = [0u8; 16];
    let width = match family {
        1 => 4,
        2 => 16,
        _ => return None,
    };
    bytes[..width]
        .get_mut(..address.len())?
        .copy_from_slice(address);
    let addr = if width == 4 {
        IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
    } else {
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    Some(ClientPrefix::new(addr, source))
}

/// Writes the answer with `count` of the records, which are `size` bytes each, starting at byte offset `first` and wrapping around.
fn write(
    query: &Plain<'_>,
    (records, size, count, first): (&[u8], usize, usize, usize),
    (ttl, scope, udp_size): (u32, u8, u16),
    out: &mut Vec<u8>,
) -> Option<()> {
    out.clear();
    let [i0, i1] = query.id.to_be_bytes();
    let [c0, c1] = u16::try_from(count).ok()?.to_be_bytes();
    let opt = u8::from(query.edns.is_some());
    // QR and AA are set, RD is copied, all others are clear.
    let flags = 0x84 | query.recursion;
    out.extend_from_slice(&[i0, i1, flags, 0, 0, 1, c0, c1, 0, 0, 0, opt]);
    out.extend_from_slice(query.question);
    let (before, from) = records.split_at_checked(first)?;
    for record in from
        .chunks_exact(size)
        .chain(before.chunks_exact(size))
        .take(count)
    {
        let start = out.len();
        out.extend_from_slice(record);
        out[start + Addresses::TTL_AT..][..4].copy_from_slice(&ttl.to_be_bytes());
    }
    if let Some(edns) = &query.edns {
        let [s0, s1] = udp_size.to_be_bytes();
        let [l0, l1] = u16::try_from(edns.option().len()).ok()?.to_be_bytes();
        out.extend_from_slice(&[0, 0, 41, s0, s1, 0, 0, 0, 0, l0, l1]);
        let start = out.len();
        out.extend_from_slice(edns.option());
        // The option is returned as it came, with the scope set (RFC 7871, section 7.2.1).
        if let Some((client, option)) = edns.subnet {
            let family = number([option[4], option[5]]);
            out[start + SUBNET - 1] = scope_as_asked(client, family, scope);
        }
    }
    Some(())
}

impl Responder {
    /// Writes the answer to a plain query over UDP into `out`, and returns the position of the query's name. If it returns `None`, the content of
    /// `out` is undefined and nothing has been counted. Rate limits are left to the caller.
    pub fn respond_fast(
        &self,
        packet: &[u8],
        from: SocketAddr,
        out: &mut Vec<u8>,
    ) -> Option<Range<usize>> {
        let query = Plain::parse(packet)?;
        let sample = self.sample(query.id);
        let most = self.unverified_limit(packet);
        let (client, note) = self.answer_plain(&query, from, (most, sample.as_ref()), out)?;
        if let Some(sample) = sample {
            let question = (query.question, client);
            let answered = (ResponseCode::NoError, Transport::Udp);
            self.record_sample(&sample, question, answered, note);
        }
        Some(HEADER..HEADER + query.name().len())
    }

    fn answer_plain(
        &self,
        query: &Plain<'_>,
        from: SocketAddr,
        (most, sample): (u16, Option<&Sample>),
        out: &mut Vec<u8>,
    ) -> Option<(ClientPrefix, Option<SteeringNote>)> {
        let (names, serving) = (self.published.names(), self.published.serving());
        let table = names.app_of_wire(query.name())?;
        let subnet = query.edns.as_ref().and_then(|edns| edns.subnet);
        // Without a client subnet option, the resolver's address represents its clients (RFC 7871, section 7.2.1).
        let client = subnet.map_or_else(|| ClientPrefix::host(from.ip()), |(client, _)| client);
        let decision = steer::choose(
            table,
            query.family,
            client,
            &serving.fleet,
            self.published.locate(),
            self.policy.when_all_dead,
        );
        let Pick::Live(cluster) = decision.pick else {
            return None;
        };
        let addresses = serving.fleet.cluster(cluster);
        let records = addresses.records(query.family);
        let size = Addresses::record_size(query.family);
        let count = (records.len() / size).min(self.policy.max_addresses);
        let (limit, added) = match &query.edns {
            None => (UDP_MIN, 0),
            Some(edns) => {
                let limit = edns.payload.clamp(UDP_MIN, self.udp_size.max(UDP_MIN));
                (limit, OPT + edns.option().len())
            }
        };
        let length = HEADER + query.question.len() + count * size + added;
        if count == 0 || length > usize::from(limit.min(most)) {
            return None;
        }
        let fields = (table.ttl, decision.scope, self.udp_size);
        let first = addresses.first(query.family, query.id) * size;
        write(query, (records, size, count, first), fields, out)?;
        self.demand.record(&table.app, client.to_demand());
        table.count();
        if let Some(counter) = serving.answers.get(cluster) {
            counter.inc();
        }
        if subnet.is_some() {
            self.metrics.with_subnet();
        }
        let kind = match query.family {
            Family::V4 => QueryKind::A,
            Family::V6 => QueryKind::Aaaa,
        };
        self.metrics
            .query(kind, ResponseCode::NoError, Transport::Udp);
        let note = sample.map(|sample| {
            let what = (subnet.is_some(), sample.is_logged());
            SteeringNote::of(&decision, client, &serving.fleet, what)
        });
        Some((client, note))
    }
}

#[cfg(test)]
mod tests;
