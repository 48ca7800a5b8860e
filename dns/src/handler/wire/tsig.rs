//! The encoding of transaction signatures in a message (RFC 8945, section 4.2).

use hickory_proto::rr::Name;
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder, BinEncodable as _};

use super::{Cursor, HEADER};

/// The record type TSIG.
pub(super) const TYPE_TSIG: u16 = 250;
/// The class of TSIG records.
pub(super) const CLASS_ANY: u16 = 255;

/// The content of a TSIG record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tsig<'a> {
    /// The message without the TSIG record, as received.
    before: &'a [u8],
    /// The name of the key, in lower case.
    pub name: Name,
    /// The name of the algorithm, in lower case.
    pub algorithm: Name,
    /// When the message was signed, in seconds since 1970.
    pub time: u64,
    /// The allowed difference between the clocks, in seconds.
    pub fudge: u16,
    /// The signature.
    pub mac: &'a [u8],
    /// The message id at the time of signing.
    original: u16,
    /// The TSIG error code, in an answer.
    pub error: u16,
    /// The server's time, in an answer that rejects the request's time.
    pub other: &'a [u8],
}

impl<'a> Tsig<'a> {
    /// Parses the record that begins at `start` and is the last of the message. `None` if it is malformed.
    #[must_use]
    pub fn read(packet: &'a [u8], start: usize) -> Option<Self> {
        let mut cursor = Cursor { packet, at: start };
        let name = name(&mut cursor)?;
        // Type, class, TTL and length.
        cursor.take(10)?;
        let algorithm = self::name(&mut cursor)?;
        let [t0, t1, t2, t3, t4, t5] = *cursor.take(6)?.first_chunk()?;
        let time = u64::from_be_bytes([0, 0, t0, t1, t2, t3, t4, t5]);
        let fudge = cursor.u16()?;
        let len = cursor.u16()?;
        let mac = cursor.take(usize::from(len))?;
        let (original, error, len) = (cursor.u16()?, cursor.u16()?, cursor.u16()?);
        let other = cursor.take(usize::from(len))?;
        (cursor.at == packet.len()).then_some(Self {
            before: packet.get(..start)?,
            name,
            algorithm,
            time,
            fudge,
            mac,
            original,
            error,
            other,
        })
    }

    /// The message as it was signed: with its original id, and without the TSIG record (RFC 8945, section 4.3.2).
    #[must_use]
    pub fn message(&self) -> Vec<u8> {
        let mut message = without(self.before);
        if let Some(id) = message.first_chunk_mut() {
            *id = self.original.to_be_bytes();
        }
        message
    }

    /// The signed data besides the message (RFC 8945, section 4.3.3).
    #[must_use]
    pub fn variables(&self) -> Vec<u8> {
        let mut out = wire(&self.name);
        out.extend_from_slice(&[0, 255, 0, 0, 0, 0]);
        out.extend(wire(&self.algorithm));
        out.extend(timers(self.time, self.fudge));
        out.extend(self.error.to_be_bytes());
        out.extend(counted(self.other));
        out
    }

    /// The encoded TSIG record with this signature, for a message with this id.
    #[must_use]
    pub fn record(&self, mac: &[u8], id: [u8; 2]) -> Vec<u8> {
        let mut data = wire(&self.algorithm);
        data.extend(timers(self.time, self.fudge));
        data.extend(counted(mac));
        data.extend_from_slice(&id);
        data.extend(self.error.to_be_bytes());
        data.extend(counted(self.other));
        let mut out = wire(&self.name);
        for word in [TYPE_TSIG, CLASS_ANY, 0, 0] {
            out.extend(word.to_be_bytes());
        }
        out.extend(counted(&data));
        out
    }

    /// The content of a new record, before it is signed.
    #[must_use]
    pub fn fresh(
        (name, algorithm): (Name, Name),
        (time, fudge): (u64, u16),
        (error, other): (u16, &'a [u8]),
    ) -> Self {
        Self {
            before: &[],
            name,
            algorithm,
            time,
            fudge,
            mac: &[],
            original: 0,
            error,
            other,
        }
    }
}

/// A message whose last record was cut off: the count of additional records is decremented.
#[must_use]
pub fn without(before: &[u8]) -> Vec<u8> {
    changed(before, -1)
}

/// Appends a record to the additional section.
pub fn append(message: &mut Vec<u8>, record: &[u8]) {
    *message = changed(message, 1);
    message.extend_from_slice(record);
}

fn changed(message: &[u8], by: i16) -> Vec<u8> {
    let mut message = message.to_vec();
    if let Some(count) = message.get_mut(HEADER - 2..HEADER) {
        let records = u16::from_be_bytes([count[0], count[1]]).wrapping_add_signed(by);
        count.copy_from_slice(&records.to_be_bytes());
    }
    message
}

/// The time and the tolerance: the only fields that the signatures of further messages cover (RFC 8945, section 5.3.1).
#[must_use]
pub fn timers(time: u64, fudge: u16) -> [u8; 8] {
    let [_, _, t0, t1, t2, t3, t4, t5] = time.to_be_bytes();
    let [f0, f1] = fudge.to_be_bytes();
    [t0, t1, t2, t3, t4, t5, f0, f1]
}

/// Bytes preceded by their length.
#[must_use]
pub fn counted(bytes: &[u8]) -> Vec<u8> {
    let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    [&len.to_be_bytes(), bytes].concat()
}

/// Reads a name that may end in a pointer to earlier bytes.
fn name(cursor: &mut Cursor<'_>) -> Option<Name> {
    let at = cursor.at;
    cursor.name(&(HEADER..at))?;
    let mut decoder = BinDecoder::new(cursor.packet).clone(u16::try_from(at).ok()?);
    Some(Name::read(&mut decoder).ok()?.to_lowercase())
}

/// A name in wire format, uncompressed.
fn wire(name: &Name) -> Vec<u8> {
    // Encoding a valid name of at most 255 bytes cannot fail.
    name.to_bytes().unwrap_or_default()
}
