//! A first look at a request's octets, before anything is allocated for it.
//!
//! The decoder behind this server takes the number of questions at its word, forgives surplus octets and host bits in a client
//! subnet, refuses the subnet that means "do not use mine" (family 0), and warns in the log about malformed options. All of that
//! is in the hands of whoever sends the packet, so it is checked here first, on the octets themselves:
//!
//! - a packet that is no request is dropped, so that two servers never answer each other (RFC 1035, section 7.3);
//! - opcodes other than QUERY get NOTIMP; not exactly one question gets FORMERR (RFC 9619);
//! - at most one OPT record, in the additional section, owned by the root (RFC 6891, section 6.1.1);
//! - a client subnet option must be exact (RFC 7871, sections 6 and 7.1.1): [`Subnet::parse`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use fdn_core::ClientPrefix;
use hickory_proto::op::ResponseCode;

/// Octets of a message header (RFC 1035, section 4.1.1).
pub(crate) const HEADER: usize = 12;
/// The option code of a client subnet (RFC 7871, section 6).
pub(crate) const CLIENT_SUBNET: u16 = 8;
/// A code of the range for local use (RFC 6891, section 9), which no decoder interprets.
const UNINTERPRETED: u16 = 65_001;
const TYPE_OPT: u16 = 41;

/// What an EDNS request says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edns {
    /// The largest answer that the asker takes over UDP.
    pub(crate) payload: u16,
    /// The version; only 0 is known.
    pub(crate) version: u8,
    /// Whether DNSSEC records are welcome (RFC 3225): copied into the answer.
    pub(crate) dnssec_ok: bool,
    /// The client subnet option.
    pub(crate) subnet: Option<Subnet>,
}

/// A valid client subnet option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subnet {
    /// The client, unless the asker wants no use made of it (source length 0).
    pub(crate) client: Option<ClientPrefix>,
    /// The option's octets as they came: an answer repeats them, with the scope set.
    octets: Vec<u8>,
}

impl Subnet {
    /// Checks and reads the option's data.
    ///
    /// The address has exactly the octets that the source length needs and no bits beyond it; the scope is 0 in requests (RFC 7871,
    /// section 6). Family 0 with source length 0 is what tools send for "no subnet".
    fn parse(data: &[u8]) -> Option<Self> {
        let [f0, f1, source, scope, address @ ..] = data else {
            return None;
        };
        if *scope != 0 || address.len() != usize::from(*source).div_ceil(8) {
            return None;
        }
        let spare = (8 - source % 8) % 8;
        if address
            .last()
            .is_some_and(|last| last.trailing_zeros() < u32::from(spare))
        {
            return None;
        }
        let mut octets = [0u8; 16];
        let width = match u16::from_be_bytes([*f0, *f1]) {
            0 => 0,
            1 => 4,
            2 => 16,
            _ => return None,
        };
        octets[..width]
            .get_mut(..address.len())?
            .copy_from_slice(address);
        let addr = match width {
            4 => IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3])),
            _ => IpAddr::V6(Ipv6Addr::from(octets)),
        };
        let client = (*source > 0).then(|| ClientPrefix::new(addr, *source));
        Some(Self {
            client,
            octets: data.to_vec(),
        })
    }

    /// The option's data in an answer (RFC 7871, section 7.2.1): family, source and address as asked, and the scope. With a source
    /// length of 0 the scope is 0 too.
    pub(crate) fn answer(&self, scope: u8) -> Vec<u8> {
        let mut octets = self.octets.clone();
        octets[3] = if self.client.is_some() { scope } else { 0 };
        octets
    }
}

/// A request worth decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    /// What its OPT record says, if it has one.
    pub(crate) edns: Option<Edns>,
    /// Where its one question stands.
    pub(crate) question: Range<usize>,
    /// Where the code of the client subnet option stands.
    subnet_code: Option<usize>,
}

impl Scan {
    /// Renames the client subnet option, which has been read, so that the decoder leaves it alone.
    pub(crate) fn hide_subnet(&self, packet: &mut [u8]) {
        if let Some(code) = self.subnet_code.and_then(|at| packet.get_mut(at..at + 2)) {
            code.copy_from_slice(&UNINTERPRETED.to_be_bytes());
        }
    }
}

/// Why a packet is not answered properly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    /// It gets no answer.
    Drop,
    /// It gets an error.
    Error {
        /// The code.
        code: ResponseCode,
        /// Where its one question stands, to be repeated.
        question: Option<Range<usize>>,
        /// Whether it had an OPT record, so that the answer has one too (RFC 6891, section 7).
        edns: bool,
    },
}

struct Cursor<'a> {
    packet: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let octets = self.packet.get(self.at..end)?;
        self.at = end;
        Some(octets)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|o| o[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|o| u16::from_be_bytes([o[0], o[1]]))
    }

    /// Skips a name; `pointers` says whether it may end in a compression pointer. Returns its length in octets as written.
    fn name(&mut self, pointers: bool) -> Option<usize> {
        let start = self.at;
        loop {
            match self.u8()? {
                0 => break,
                len @ 1..=63 => drop(self.take(usize::from(len))?),
                192..=255 if pointers => {
                    self.u8()?;
                    break;
                }
                _ => return None,
            }
        }
        let len = self.at - start;
        (len <= 255).then_some(len)
    }
}

/// Looks at a packet.
///
/// # Errors
/// When it is not a request that can be answered; the error says how to react.
pub(crate) fn scan(packet: &[u8]) -> Result<Scan, Reject> {
    if packet.len() < HEADER || packet[2] & 0x80 != 0 {
        return Err(Reject::Drop);
    }
    let count = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let (questions, answers, authorities, additionals) = (count(4), count(6), count(8), count(10));
    let mut cursor = Cursor { packet, at: HEADER };
    let question = (questions == 1).then(|| {
        cursor.name(false)?;
        cursor.take(4)?;
        Some(HEADER..cursor.at)
    });
    let question = question.flatten();
    let error = |code, edns| Reject::Error {
        code,
        question: question.clone(),
        edns,
    };
    if packet[2] >> 3 & 0x0f != 0 {
        return Err(error(ResponseCode::NotImp, false));
    }
    let Some(place) = question.clone() else {
        return Err(error(ResponseCode::FormErr, false));
    };
    let mut scan = Scan {
        edns: None,
        question: place,
        subnet_code: None,
    };
    let before = u32::from(answers) + u32::from(authorities);
    for index in 0..before + u32::from(additionals) {
        match record(&mut cursor, index >= before, &mut scan) {
            Ok(()) => {}
            Err(saw_opt) => {
                return Err(error(ResponseCode::FormErr, saw_opt || scan.edns.is_some()));
            }
        }
    }
    match &scan.edns {
        // RFC 6891, section 6.1.3.
        Some(edns) if edns.version != 0 => Err(error(ResponseCode::BADVERS, true)),
        _ => Ok(scan),
    }
}

/// Walks over one record and reads it if it is the OPT record. The error says whether an OPT record was seen.
fn record(cursor: &mut Cursor<'_>, additional: bool, scan: &mut Scan) -> Result<(), bool> {
    let owner = cursor.name(true).ok_or(false)?;
    let kind = cursor.u16().ok_or(false)?;
    let class = cursor.u16().ok_or(false)?;
    let ttl = cursor.take(4).ok_or(false)?;
    let len = usize::from(cursor.u16().ok_or(false)?);
    let start = cursor.at;
    let data = cursor.take(len).ok_or(kind == TYPE_OPT)?;
    if kind != TYPE_OPT {
        return Ok(());
    }
    if !additional || owner != 1 || scan.edns.is_some() {
        return Err(true);
    }
    let mut edns = Edns {
        payload: class,
        version: ttl[1],
        dnssec_ok: ttl[2] & 0x80 != 0,
        subnet: None,
    };
    // RFC 6891, section 6.1.3: what follows the version in an unknown version is not ours to judge.
    if edns.version == 0 {
        options(data, start, &mut edns, scan).ok_or(true)?;
    }
    scan.edns = Some(edns);
    Ok(())
}

fn options(data: &[u8], start: usize, edns: &mut Edns, scan: &mut Scan) -> Option<()> {
    let mut cursor = Cursor {
        packet: data,
        at: 0,
    };
    while cursor.at < data.len() {
        let at = cursor.at;
        let code = cursor.u16()?;
        let len = usize::from(cursor.u16()?);
        let value = cursor.take(len)?;
        if code == CLIENT_SUBNET {
            if edns.subnet.is_some() {
                return None;
            }
            edns.subnet = Some(Subnet::parse(value)?);
            scan.subnet_code = Some(start + at);
        }
    }
    Some(())
}

/// An error answer made of the request's own octets: its id, its question, and an OPT record if it had one.
pub(crate) fn error_reply(
    packet: &[u8],
    code: ResponseCode,
    question: Option<Range<usize>>,
    edns: bool,
    udp_size: u16,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(64);
    let (high, low) = (code.high(), code.low());
    out.extend_from_slice(&packet[..2]);
    // QR set; opcode and RD as asked (RFC 1035, section 4.1.1); AA, TC, RA, Z and AD clear; CD as asked (RFC 4035, section 3.1.6).
    out.extend_from_slice(&[0x80 | packet[2] & 0x79, packet[3] & 0x10 | low]);
    let question = question
        .and_then(|range| packet.get(range))
        .unwrap_or_default();
    out.extend_from_slice(&[
        0,
        u8::from(!question.is_empty()),
        0,
        0,
        0,
        0,
        0,
        u8::from(edns),
    ]);
    out.extend_from_slice(question);
    if edns {
        let [s0, s1] = udp_size.to_be_bytes();
        out.extend_from_slice(&[0, 0, 41, s0, s1, high, 0, 0, 0, 0, 0]);
    }
    out
}

#[cfg(test)]
mod tests;
