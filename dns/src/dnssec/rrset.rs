//! The data that a signature covers (RFC 4034, sections 3.1.8.1 and 6), and the validity period of signatures.

use hickory_proto::rr::{LowerName, Name, Record, RecordType};
use hickory_proto::serialize::binary::{BinEncodable, BinEncoder, NameEncoding};

use super::key::{ALGORITHM_NUMBER, PUBLIC};

/// How far signatures are backdated, in seconds, for validators whose clocks are behind.
const BACKDATED: u32 = 3600;
/// Class IN.
const CLASS: [u8; 2] = [0, 1];

/// The validity period of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    seconds: u32,
}

impl Validity {
    /// Signatures valid for `seconds`, at most a year: times are compared modulo 2^32 (RFC 4034, section 3.1.5).
    #[must_use]
    pub const fn new(seconds: u32) -> Self {
        const YEAR: u32 = 365 * 86_400;
        Self {
            seconds: if seconds < YEAR { seconds } else { YEAR },
        }
    }

    /// The inception and expiration of a signature made at `now`. `spread` differs between record sets and shortens the period by up to an
    /// eighth, so that sets that were signed at the same time are not all renewed at the same time.
    #[must_use]
    pub fn times(self, now: u32, spread: u8) -> (u32, u32) {
        let early = u64::from(self.seconds / 8) * u64::from(spread) / 255;
        let early = u32::try_from(early).unwrap_or(0);
        (
            now.wrapping_sub(BACKDATED),
            now.wrapping_add(self.seconds - early),
        )
    }

    /// Whether a signature with this expiration is still used: more than half of the validity period is left.
    #[must_use]
    pub const fn is_fresh(self, expiration: u32, now: u32) -> bool {
        let left = expiration.wrapping_sub(now);
        // Differences of 2^31 or more are negative (RFC 1982).
        left < 1 << 31 && left > self.seconds / 2
    }
}

/// Whether a signature's validity has begun (RFC 1982). One that was made while the clock ran ahead begins later, and validators refuse it
/// until then.
#[must_use]
pub const fn has_begun(inception: u32, now: u32) -> bool {
    now.wrapping_sub(inception) < 1 << 31
}

/// Whether a signature with this expiration is still valid (RFC 1982).
#[must_use]
pub const fn holds(expiration: u32, now: u32) -> bool {
    let left = expiration.wrapping_sub(now);
    left < 1 << 31 && left > 0
}

/// A record set, of one owner and one type, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSet {
    kind: RecordType,
    labels: u8,
    original_ttl: u32,
    /// The canonical records in canonical order, concatenated.
    bytes: Vec<u8>,
}

impl RecordSet {
    /// The canonical form of `records`, which have one owner and one type. `None` if there are none, or one cannot be encoded.
    #[must_use]
    pub fn new(records: &[Record], original_ttl: u32) -> Option<Self> {
        let first = records.first()?;
        let kind = first.record_type();
        let owner = wire(&first.name)?;
        let mut data = records
            .iter()
            .map(|record| {
                let mut out = Vec::new();
                let mut encoder = BinEncoder::new(&mut out);
                // RFC 4034, section 6.2: no compression, and lower case for the types that require it.
                encoder.set_canonical_form(true);
                encoder.set_name_encoding(NameEncoding::Uncompressed);
                record.data.emit(&mut encoder).ok()?;
                Some(out)
            })
            .collect::<Option<Vec<_>>>()?;
        // RFC 4034, section 6.3: sorted by their bytes, without duplicates.
        data.sort();
        data.dedup();
        let mut bytes = Vec::new();
        for data in &data {
            bytes.extend_from_slice(&owner);
            bytes.extend_from_slice(&u16::from(kind).to_be_bytes());
            bytes.extend_from_slice(&CLASS);
            bytes.extend_from_slice(&original_ttl.to_be_bytes());
            bytes.extend_from_slice(&u16::try_from(data.len()).ok()?.to_be_bytes());
            bytes.extend_from_slice(data);
        }
        Some(Self {
            kind,
            // RFC 4034, section 3.1.3: neither the root label nor a leading `*` is counted.
            labels: first.name.num_labels(),
            original_ttl,
            bytes,
        })
    }

    /// The type of the records.
    #[must_use]
    pub const fn kind(&self) -> RecordType {
        self.kind
    }

    /// The number of labels of the owner name, as in the RRSIG record.
    #[must_use]
    pub const fn labels(&self) -> u8 {
        self.labels
    }

    /// The time to live of the records in the zone.
    #[must_use]
    pub const fn original_ttl(&self) -> u32 {
        self.original_ttl
    }

    /// The cache key of the signature by a key: independent of the spelling and order of the records.
    #[must_use]
    pub fn id(&self, key: &[u8; PUBLIC]) -> [u8; 32] {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        context.update(key);
        context.update(&self.bytes);
        let mut id = [0; 32];
        id.copy_from_slice(context.finish().as_ref());
        id
    }

    /// The data to be signed: the RRSIG fields, then the records (RFC 4034, section 3.1.8.1). `None` if it cannot be encoded.
    #[must_use]
    pub fn signed_data(
        &self,
        signer: &LowerName,
        tag: u16,
        inception: u32,
        expiration: u32,
    ) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(self.bytes.len() + 64);
        out.extend_from_slice(&u16::from(self.kind).to_be_bytes());
        out.extend_from_slice(&[ALGORITHM_NUMBER, self.labels]);
        for number in [self.original_ttl, expiration, inception] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&tag.to_be_bytes());
        out.extend_from_slice(&wire(signer)?);
        out.extend_from_slice(&self.bytes);
        Some(out)
    }
}

/// A name in wire format, in lower case and uncompressed.
fn wire(name: &Name) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(64);
    let mut encoder = BinEncoder::new(&mut out);
    encoder.set_name_encoding(NameEncoding::UncompressedLowercase);
    name.emit(&mut encoder).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::RData;
    use hickory_proto::rr::rdata::{A, NS, TXT};

    use super::*;

    fn record(name: &str, data: RData) -> Record {
        Record::from_rdata(Name::from_ascii(name).expect("name"), 20, data)
    }

    fn texts(texts: &[&str]) -> Vec<Record> {
        let data = |text: &&str| RData::TXT(TXT::new(vec![(*text).to_owned()]));
        texts
            .iter()
            .map(|text| record("a.fn.test.", data(text)))
            .collect()
    }

    #[test]
    fn the_bytes_of_the_rfc() {
        let a = [record("Host.FN.test.", RData::A(A([192, 0, 2, 1].into())))];
        let record_set = RecordSet::new(&a, 300).expect("a set");
        let expected =
            b"\x04host\x02fn\x04test\x00\x00\x01\x00\x01\x00\x00\x01\x2c\x00\x04\xc0\x00\x02\x01";
        assert_eq!(record_set.bytes, expected);
        assert_eq!((record_set.labels(), record_set.kind()), (3, RecordType::A));
        let apex = LowerName::from(Name::from_ascii("fn.test.").expect("name"));
        let data = record_set.signed_data(&apex, 0x1234, 1, 2).expect("data");
        let head = b"\x00\x01\x0d\x03\x00\x00\x01\x2c\x00\x00\x00\x02\x00\x00\x00\x01\x12\x34\x02fn\x04test\x00";
        assert_eq!(data, [head.as_slice(), expected].concat());
    }

    #[test]
    fn order_spelling_and_repetition_make_no_difference() {
        let key = [7; PUBLIC];
        let one = RecordSet::new(&texts(&["b", "a", "ab"]), 20).expect("a set");
        let other = RecordSet::new(&texts(&["ab", "a", "b", "a"]), 20).expect("a set");
        assert_eq!(one, other);
        assert_eq!(one.id(&key), other.id(&key));
        assert_ne!(one.id(&key), one.id(&[8; PUBLIC]));
        assert_ne!(
            one.id(&key),
            RecordSet::new(&texts(&["b", "a", "ab"]), 21)
                .expect("a set")
                .id(&key)
        );
        // Sorted by their bytes, not by the text alone: a one-byte text begins with the length 1, "ab" with 2.
        let at = |needle: &[u8]| one.bytes.windows(needle.len()).position(|w| w == needle);
        assert!(at(b"\x01a") < at(b"\x01b") && at(b"\x01b") < at(b"\x02ab"));
        // Names inside NS data are in lower case (RFC 4034, section 6.2).
        let ns = |name: &str| {
            let data = RData::NS(NS(Name::from_ascii(name).expect("name")));
            RecordSet::new(&[record("fn.test.", data)], 20)
        };
        assert_eq!(ns("NS1.fn.test."), ns("ns1.fn.test."));
        assert!(RecordSet::new(&[], 1).is_none());
    }

    #[test]
    fn a_wildcard_is_no_label() {
        let wild = [record("*.fn.test.", RData::A(A([192, 0, 2, 1].into())))];
        assert_eq!(RecordSet::new(&wild, 1).expect("a set").labels(), 2);
    }

    #[test]
    fn signatures_are_renewed_at_half_and_spread() {
        let validity = Validity::new(1000);
        for now in [5_000, u32::MAX - 10] {
            let (inception, expiration) = validity.times(now, 0);
            assert_eq!(now.wrapping_sub(inception), 3600);
            assert_eq!(expiration.wrapping_sub(now), 1000);
            assert_eq!(validity.times(now, 255).1.wrapping_sub(now), 875);
            let fresh = |after: u32| validity.is_fresh(expiration, now.wrapping_add(after));
            assert!(fresh(0) && fresh(499) && !fresh(500) && !fresh(1000) && !fresh(2000));
            let held = |after: u32| holds(expiration, now.wrapping_add(after));
            assert!(held(0) && held(999) && !held(1000) && !held(2000));
        }
    }
}
