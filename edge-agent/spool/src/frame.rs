//! The format of records in a segment.
//!
//! ```text
//! segment = "FDNUSE" version:u16 frame*
//! frame   = length:u32 checksum:u32 payload      numbers little-endian; the checksum is CRC-32C of length and payload
//! ```
//!
//! The checksum covers the length, so that a hole of zeros, as a file system may leave it after a power loss, is not a valid frame.

/// The bytes that a segment begins with: the format and its version.
pub const HEADER: [u8; 8] = *b"FDNUSE\x01\x00";
/// The number of bytes before a payload.
const PREFIX: usize = 8;
/// The largest frame that is written, in bytes. A record consists of a few names of up to 63 letters and a few numbers.
pub const MAX: usize = 1408;
/// The largest frame that is read, in bytes. Records of later releases may be longer, and an agent downgraded to this release must find what
/// follows them; without a matching checksum nothing is a frame, whatever its length says.
const READ_MAX: usize = 64 << 10;

/// A payload as a frame; `None` if it is empty or too large.
#[must_use]
pub fn encode(payload: &[u8]) -> Option<Vec<u8>> {
    if payload.is_empty() || payload.len() + PREFIX > MAX {
        return None;
    }
    let mut frame = begin();
    frame.extend_from_slice(payload);
    seal(frame).ok()
}

/// A frame to which its payload is appended, so that it need not be copied there; then it is sealed.
pub(crate) fn begin() -> Vec<u8> {
    // Most records are smaller than this.
    let mut frame = Vec::with_capacity(MAX / 2);
    frame.resize(PREFIX, 0);
    frame
}

/// The complete frame, if its payload is neither empty nor too large.
///
/// # Errors
/// Otherwise the payload's size.
pub(crate) fn seal(mut frame: Vec<u8>) -> Result<Vec<u8>, usize> {
    let size = frame.len().saturating_sub(PREFIX);
    if frame.len() > MAX {
        return Err(size);
    }
    let Some((prefix, payload)) = frame.split_first_chunk_mut::<PREFIX>() else {
        return Err(size);
    };
    if payload.is_empty() {
        return Err(size);
    }
    let length = u32::try_from(size).map_err(|_| size)?.to_le_bytes();
    let [l0, l1, l2, l3] = length;
    let [s0, s1, s2, s3] = sum(length, payload).to_le_bytes();
    *prefix = [l0, l1, l2, l3, s0, s1, s2, s3];
    Ok(frame)
}

fn sum(length: [u8; 4], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), payload)
}

/// The content of a segment.
#[derive(Debug, PartialEq, Eq)]
pub struct Scan<'a> {
    /// The payloads up to the first incomplete or damaged frame.
    pub payloads: Vec<&'a [u8]>,
    /// The offset at which the last valid frame ends; 0 if not even the header is valid.
    pub end: usize,
}

/// Reads a segment up to its end or the first incomplete or damaged frame.
#[must_use]
pub fn scan(bytes: &[u8]) -> Scan<'_> {
    let mut payloads = Vec::new();
    if !bytes.starts_with(&HEADER) {
        return Scan { payloads, end: 0 };
    }
    let mut end = HEADER.len();
    while let Some(payload) = first(&bytes[end..]) {
        payloads.push(payload);
        end += PREFIX + payload.len();
    }
    Scan { payloads, end }
}

/// The payload of the frame at the beginning of `bytes`, if it is valid.
fn first(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (given, rest) = rest.split_first_chunk::<4>()?;
    let size = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if size == 0 || size + PREFIX > READ_MAX {
        return None;
    }
    let payload = rest.get(..size)?;
    (sum(*length, payload) == u32::from_le_bytes(*given)).then_some(payload)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segment(payloads: &[Vec<u8>]) -> Vec<u8> {
        let frames = payloads
            .iter()
            .flat_map(|p| encode(p).expect("small enough"));
        HEADER.into_iter().chain(frames).collect()
    }

    #[test]
    fn zeros_and_rubbish_are_no_frames() {
        let whole = segment(&[b"one".to_vec()]);
        for tail in [vec![0; 64], vec![0xFF; 64], b"three".to_vec()] {
            let mut torn = whole.clone();
            torn.extend(tail);
            let scan = scan(&torn);
            assert_eq!((scan.payloads.len(), scan.end), (1, whole.len()));
        }
        assert_eq!(scan(b"FDNUSE\x02\x00").end, 0, "another version");
        assert_eq!(encode(&[0; MAX]), None);
        assert_eq!(encode(b""), None);
    }

    #[test]
    fn a_longer_frame_of_a_later_release_is_read_with_what_follows_it() {
        let frame = |payload: &[u8]| {
            let length = u32::try_from(payload.len()).expect("short").to_le_bytes();
            let mut frame = length.to_vec();
            frame.extend(sum(length, payload).to_le_bytes());
            frame.extend(payload);
            frame
        };
        let longest = vec![b'l'; READ_MAX - PREFIX];
        for long in [vec![b'l'; MAX], longest] {
            assert_eq!(encode(&long), None, "this release writes none");
            let mut bytes = segment(&[b"before".to_vec()]);
            bytes.extend(frame(&long));
            bytes.extend(frame(b"after"));
            let scan = scan(&bytes);
            assert_eq!(scan.payloads, [&b"before"[..], &long[..], &b"after"[..]]);
            assert_eq!(scan.end, bytes.len());
        }
        let mut bytes = segment(&[]);
        bytes.extend(frame(&vec![b'l'; READ_MAX]));
        assert_eq!(scan(&bytes).payloads, [&b""[..]; 0]);
    }

    #[test]
    fn the_longest_record_fits() {
        use fdn_core::usage::{CallFacts, CallRecord, InterimUsage, PlanUse, Routed};
        use fdn_core::usage::{UsageOutcome, UsageRecord};
        use fdn_core::{InvocationId, MebiBytes, Revision, Timestamp, VersionNumber};

        let (name, long) = ("a".repeat(63), u64::MAX);
        let used = UsageRecord {
            invocation: InvocationId::from_uuid(uuid::Uuid::from_u128(1)),
            app: name.parse().expect("app"),
            function: name.parse().expect("function"),
            version: VersionNumber::try_from(u32::MAX).expect("version"),
            started_at: Timestamp(10_000_000_000_000),
            duration_us: long,
            cpu_us: long,
            memory_mib: MebiBytes(u32::MAX.into()),
            gpu_memory_mib: MebiBytes(u32::MAX.into()),
            egress_bytes: long,
            outcome: UsageOutcome::FunctionEnded,
        };
        let facts = CallFacts {
            request: "r".repeat(128),
            trace: "t".repeat(32),
            method: "M".repeat(16),
            status: Some(503),
            wait_us: long,
            start_us: long,
            head_us: long,
            total_us: long,
            routed: Routed {
                revision: Some(Revision(long)),
                plan_use: PlanUse::Leaving,
                client: Some("2001:db8:1234:5678::/56".parse().expect("prefix")),
                via: Some(name.parse().expect("node")),
                stage: Some(name.parse().expect("stage")),
                form: Some(name.parse().expect("form")),
            },
        };
        let record = CallRecord {
            noted: Some(InterimUsage {
                duration_us: long,
                cpu_us: long,
                egress_bytes: long,
            }),
            used,
            call: Some(facts),
        };
        let json = serde_json::to_vec(&record).expect("JSON");
        assert!(encode(&json).is_some(), "{} bytes", json.len());
    }

    proptest! {
        #[test]
        fn what_is_cut_or_changed_is_noticed(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..50), 1..20),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
            cut in any::<bool>(),
        ) {
            let good = segment(&payloads);
            let whole = scan(&good);
            prop_assert_eq!(whole.end, good.len());
            prop_assert_eq!(whole.payloads.iter().map(|p| p.to_vec()).collect::<Vec<_>>(), payloads.clone());
            let mut bad = good.clone();
            let at = at.index(bad.len());
            if cut { bad.truncate(at) } else { bad[at] ^= 1 << bit }
            let seen = scan(&bad);
            // Everything before the damage is read, and nothing that was never written.
            prop_assert!(seen.end <= at);
            let sure = payloads.iter().zip(&seen.payloads).all(|(a, b)| a == b);
            prop_assert!(sure && seen.payloads.len() <= payloads.len());
            let mut end = HEADER.len();
            let before = payloads.iter().take_while(|p| { end += PREFIX + p.len(); end <= at }).count();
            let expected = if at < HEADER.len() { 0 } else { before };
            prop_assert_eq!(seen.payloads.len(), expected);
        }
    }
}
