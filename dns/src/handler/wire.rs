//! A first scan of a request's bytes, before anything is allocated for it.
//!
//! The decoder behind this server trusts the number of questions, tolerates surplus bytes and host bits in a client subnet, rejects
//! the subnet that means "do not use mine" (family 0), and logs a warning about malformed options. All of that is controlled by the
//! sender of the packet, so it is checked here first, on the bytes themselves:
//!
//! - a packet that is not a request is dropped, so that two servers never answer each other (RFC 1035, section 7.3);
//! - opcodes other than QUERY get NOTIMP; more than one question gets FORMERR (RFC 9619); no question at all is a request for a cookie if it
//!   has a cookie option (RFC 7873, section 5.4), otherwise FORMERR;
//! - at most one OPT record, in the additional section, owned by the root (RFC 6891, section 6.1.1);
//! - at most one signature, the last of all records (RFC 8945, section 5.1);
//! - a client subnet option must be exact (RFC 7871, sections 6 and 7.1.1), and so must a cookie (RFC 7873, section 5.2.2).
//!
//! An error answer repeats the questions if they can be parsed, and has an OPT record if the request had one (RFC 6891, section 7).

mod answers;
mod options;
pub mod tsig;

use std::ops::Range;

use hickory_proto::op::ResponseCode;

use self::tsig::{CLASS_ANY, TYPE_TSIG};

pub use self::answers::{lifetime, pad, signature, truncated};
pub use self::options::{
    CLIENT_SUBNET, COOKIE, Cookie, Edns, NSID, PADDING, Subnet, scope_as_asked,
};

/// The length of a message header in bytes (RFC 1035, section 4.1.1).
pub const HEADER: usize = 12;
const TYPE_OPT: u16 = 41;

/// A request that is worth decoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The OPT record, if there is one.
    pub edns: Option<Edns>,
    /// The position of the only question; empty for a request for a cookie.
    pub question: Range<usize>,
    /// The position of its signature, the last record, if there is one (RFC 8945).
    pub tsig: Option<usize>,
}

impl Scan {
    /// Renames the options that were read, so that the decoder ignores them.
    pub fn hide_options(&self, packet: &mut [u8]) {
        if let Some(edns) = &self.edns {
            edns.hide(packet);
        }
    }
}

/// Why a packet does not get a regular answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reject {
    /// The packet is dropped.
    Drop,
    /// The packet gets an error.
    Error(Failure),
}

/// An error, and the parts of the request that its answer repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The response code.
    pub code: ResponseCode,
    /// The position of the questions; empty if they could not be parsed.
    pub questions: Range<usize>,
    /// The number of questions.
    pub count: u16,
    /// Whether the request had an OPT record, so that the answer has one too (RFC 6891, section 7).
    pub edns: bool,
    /// Whether the request had the padding option.
    pub padded: bool,
}

impl Failure {
    /// An error for a request that was scanned.
    #[must_use]
    pub fn of(scan: &Scan, code: ResponseCode) -> Self {
        Self {
            code,
            questions: scan.question.clone(),
            count: u16::from(!scan.question.is_empty()),
            edns: scan.edns.is_some(),
            padded: scan.edns.as_ref().is_some_and(|edns| edns.padded),
        }
    }

    /// The answer, made from the request's own bytes: its id, its questions, and an OPT record if it had one.
    #[must_use]
    pub fn reply(&self, packet: &[u8], udp_size: u16) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        // RFC 6891, section 6.1.3: the code's upper bits are in the OPT record.
        let (high, low) = (self.code.high(), self.code.low());
        let questions = packet.get(self.questions.clone()).unwrap_or_default();
        out.extend_from_slice(&packet[..2]);
        out.extend_from_slice(&flags(packet, low));
        let [q0, q1] = self.count.to_be_bytes();
        out.extend_from_slice(&[q0, q1, 0, 0, 0, 0, 0, u8::from(self.edns)]);
        out.extend_from_slice(questions);
        if self.edns {
            let [s0, s1] = udp_size.to_be_bytes();
            out.extend_from_slice(&[0, 0, 41, s0, s1, high, 0, 0, 0, 0, 0]);
        }
        out
    }
}

/// The flags of an answer without records: QR set; opcode and RD copied (RFC 1035, section 4.1.1); AA, TC, RA, Z and AD clear; CD
/// copied (RFC 4035, section 3.1.6).
fn flags(packet: &[u8], code: u8) -> [u8; 2] {
    [0x80 | packet[2] & 0x79, packet[3] & 0x10 | code]
}

/// Reads bytes in order; every method returns `None` if there are not enough.
struct Cursor<'a> {
    packet: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(len)?;
        let bytes = self.packet.get(self.at..end)?;
        self.at = end;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|o| o[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|o| u16::from_be_bytes([o[0], o[1]]))
    }

    /// Skips a name, which may end in a compression pointer into the range `targets` (RFC 1035, section 4.1.4). Returns its encoded length in
    /// bytes.
    fn name(&mut self, targets: &Range<usize>) -> Option<usize> {
        let start = self.at;
        loop {
            match self.u8()? {
                0 => break,
                len @ 1..=63 => drop(self.take(usize::from(len))?),
                high @ 192..=255 => {
                    let to = usize::from(high & 0x3f) << 8 | usize::from(self.u8()?);
                    if !targets.contains(&to) {
                        return None;
                    }
                    break;
                }
                _ => return None,
            }
        }
        let len = self.at - start;
        (len <= 255).then_some(len)
    }
}

/// Scans a packet.
///
/// # Errors
/// When it is not a request that can be answered; the error says how to respond.
pub fn scan(packet: &[u8]) -> Result<Scan, Reject> {
    if packet.len() < HEADER || packet[2] & 0x80 != 0 {
        return Err(Reject::Drop);
    }
    let count = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
    let counts = [count(4), count(6), count(8), count(10)];
    let mut cursor = Cursor { packet, at: HEADER };
    let question = questions(&mut cursor, counts[0]);
    let mut scanned = ScannedRecords::default();
    let whole = question.is_some() && records(&mut cursor, counts, &mut scanned).is_some();
    let cookie = scanned.edns.as_ref().is_some_and(|e| e.cookie.is_some());
    let code = if packet[2] >> 3 & 0x0f != 0 {
        ResponseCode::NotImp
    } else if !whole || counts[0] > 1 {
        ResponseCode::FormErr
    } else if scanned.edns.as_ref().is_some_and(|e| e.version != 0) {
        // RFC 6891, section 6.1.3.
        ResponseCode::BADVERS
    } else if counts[0] == 0 && !cookie {
        ResponseCode::FormErr
    } else {
        return Ok(Scan {
            edns: scanned.edns,
            question: question.unwrap_or(HEADER..HEADER),
            tsig: scanned.tsig,
        });
    };
    Err(Reject::Error(Failure {
        code,
        count: question.as_ref().map_or(0, |_| counts[0]),
        questions: question.unwrap_or(HEADER..HEADER),
        edns: scanned.opt,
        padded: scanned.edns.is_some_and(|edns| edns.padded),
    }))
}

/// Skips the question section. The first name cannot contain a pointer; later ones may point to earlier ones.
fn questions(cursor: &mut Cursor<'_>, count: u16) -> Option<Range<usize>> {
    for _ in 0..count {
        let targets = HEADER..cursor.at;
        cursor.name(&targets)?;
        cursor.take(4)?;
    }
    Some(HEADER..cursor.at)
}

/// What was found in the records of a request.
#[derive(Default)]
struct ScannedRecords {
    edns: Option<Edns>,
    /// Whether there was an OPT record, valid or not.
    opt: bool,
    /// The position of the signature.
    tsig: Option<usize>,
}

/// Skips the other sections. Each record takes at least eleven bytes, so large counts cannot make this loop longer than the packet.
fn records(cursor: &mut Cursor<'_>, counts: [u16; 4], scanned: &mut ScannedRecords) -> Option<()> {
    let before = u32::from(counts[1]) + u32::from(counts[2]);
    for index in 0..before + u32::from(counts[3]) {
        // RFC 8945, section 5.1: nothing may follow a signature.
        if scanned.tsig.is_some() {
            return None;
        }
        record(cursor, index >= before, scanned)?;
    }
    (scanned.tsig.is_none() || cursor.at == cursor.packet.len()).then_some(())
}

/// Skips one record, and reads it if it is the OPT record.
fn record(cursor: &mut Cursor<'_>, additional: bool, scanned: &mut ScannedRecords) -> Option<()> {
    let begin = cursor.at;
    let owner = cursor.name(&(HEADER..begin))?;
    let kind = cursor.u16()?;
    scanned.opt |= kind == TYPE_OPT && additional;
    let class = cursor.u16()?;
    let ttl = cursor.take(4)?;
    let len = usize::from(cursor.u16()?);
    let start = cursor.at;
    let data = cursor.take(len)?;
    if kind == TYPE_TSIG {
        scanned.tsig = Some(begin);
        return (additional && class == CLASS_ANY).then_some(());
    }
    if kind != TYPE_OPT {
        return Some(());
    }
    if !additional || owner != 1 || scanned.edns.is_some() {
        return None;
    }
    let mut edns = Edns {
        payload: class,
        version: ttl[1],
        dnssec_ok: ttl[2] & 0x80 != 0,
        compact_ok: ttl[2] & 0x40 != 0,
        ..Edns::default()
    };
    // RFC 6891, section 6.1.3: the rest of an unknown version must not be interpreted.
    if edns.version == 0 {
        edns.read(data, start)?;
    }
    scanned.edns = Some(edns);
    Some(())
}

#[cfg(test)]
mod tests;
