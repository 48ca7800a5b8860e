//! Reads and modifies encoded answers of this server.

use super::tsig::{TYPE_TSIG, Tsig};
use super::{Cursor, HEADER, TYPE_OPT, questions};

const TYPE_SOA: u16 = 6;
/// Padded answers have a multiple of this length, in bytes (RFC 8467, section 4.1).
const BLOCK: usize = 468;

/// The answer that sends a client to TCP instead of `reply`: its header with TC set, its question and its OPT record (RFC 2181, section 9; RFC
/// 6891, section 7). `None` if `reply` is not a complete message.
#[must_use]
pub fn truncated(reply: &[u8]) -> Option<Vec<u8>> {
    let (mut cursor, counts) = sections(reply)?;
    let mut out = reply.get(..cursor.at)?.to_vec();
    out[2] |= 0x02;
    out[6..HEADER].fill(0);
    for _ in 0..counts.iter().sum::<u32>() {
        let start = cursor.at;
        if RecordHeader::next(&mut cursor)?.kind == TYPE_OPT {
            out[HEADER - 1] = 1;
            out.extend_from_slice(&reply[start..cursor.at]);
        }
    }
    Some(out)
}

/// How long an answer may be cached, in seconds: the lowest TTL of its answer section or, if that is empty, the negative TTL of its SOA record
/// (RFC 2308, section 5; RFC 8484, section 5.1). `None` if there is neither, as in errors.
#[must_use]
pub fn lifetime(reply: &[u8]) -> Option<u32> {
    let (mut cursor, [answers, authority, _]) = sections(reply)?;
    let mut shortest = None;
    for _ in 0..answers {
        let ttl = RecordHeader::next(&mut cursor)?.ttl;
        shortest = Some(shortest.map_or(ttl, |known: u32| known.min(ttl)));
    }
    if shortest.is_some() {
        return shortest;
    }
    for _ in 0..authority {
        let record = RecordHeader::next(&mut cursor)?;
        if record.kind == TYPE_SOA {
            // The minimum TTL is the last field (RFC 1035, section 3.3.13).
            let minimum = record.data.last_chunk().copied();
            return Some(record.ttl.min(u32::from_be_bytes(minimum?)));
        }
    }
    None
}

/// Pads an answer whose last record is its OPT record, so that its length reveals less of its content (RFC 7830; RFC 8467, section 4.1). An
/// answer without such a record, or one that is too long, is left unchanged.
pub fn pad(reply: &mut Vec<u8>) {
    // The option's code and length precede its bytes.
    let len = reply.len() + 4;
    let whole = len.next_multiple_of(BLOCK).min(usize::from(u16::MAX));
    let (Some(zeros), Some(at)) = (whole.checked_sub(len), data_of_last(reply)) else {
        return;
    };
    let (Ok(data), Ok(option)) = (
        u16::try_from(reply.len() - at + 4 + zeros),
        u16::try_from(zeros),
    ) else {
        return;
    };
    reply[at - 2..at].copy_from_slice(&data.to_be_bytes());
    reply.extend_from_slice(&super::PADDING.to_be_bytes());
    reply.extend_from_slice(&option.to_be_bytes());
    reply.resize(whole, 0);
}

/// The signature of an answer, if its last record is one.
#[must_use]
pub fn signature(reply: &[u8]) -> Option<Tsig<'_>> {
    let (mut cursor, counts) = sections(reply)?;
    let mut last = None;
    for _ in 0..counts.iter().sum::<u32>() {
        let start = cursor.at;
        last = (RecordHeader::next(&mut cursor)?.kind == TYPE_TSIG).then_some(start);
    }
    Tsig::read(reply, last?)
}

/// The position of the last record's data, if that is the OPT record.
fn data_of_last(reply: &[u8]) -> Option<usize> {
    let (mut cursor, counts) = sections(reply)?;
    let mut last = None;
    for _ in 0..counts.iter().sum::<u32>() {
        let record = RecordHeader::next(&mut cursor)?;
        last = (record.kind == TYPE_OPT).then(|| cursor.at - record.data.len());
    }
    last.filter(|_| cursor.at == reply.len())
}

/// A cursor after the questions, and the number of records of each of the other sections.
fn sections(reply: &[u8]) -> Option<(Cursor<'_>, [u32; 3])> {
    let count = |at: usize| Some(u16::from_be_bytes([*reply.get(at)?, *reply.get(at + 1)?]));
    let mut cursor = Cursor {
        packet: reply,
        at: HEADER,
    };
    questions(&mut cursor, count(4)?)?;
    let counts = [count(6)?, count(8)?, count(10)?];
    Some((cursor, counts.map(u32::from)))
}

/// A record that was skipped.
struct RecordHeader<'a> {
    kind: u16,
    ttl: u32,
    data: &'a [u8],
}

impl<'a> RecordHeader<'a> {
    fn next(cursor: &mut Cursor<'a>) -> Option<Self> {
        let targets = HEADER..cursor.at;
        cursor.name(&targets)?;
        let kind = cursor.u16()?;
        cursor.take(2)?;
        let ttl = cursor.take(4)?.first_chunk().copied();
        let len = cursor.u16()?;
        Some(Self {
            kind,
            ttl: u32::from_be_bytes(ttl?),
            data: cursor.take(usize::from(len))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer about `a.` with records of these types, TTLs and data, by section.
    fn answer(sections: [&[(u16, u32, &[u8])]; 3]) -> Vec<u8> {
        let mut out = vec![0, 1, 0x84, 0, 0, 1];
        for section in sections {
            out.extend(u16::try_from(section.len()).expect("few").to_be_bytes());
        }
        out.extend_from_slice(b"\x01a\x00\x00\x01\x00\x01");
        for (kind, ttl, data) in sections.concat() {
            let owner: &[u8] = if kind == TYPE_OPT { b"\0" } else { b"\xc0\x0c" };
            out.extend_from_slice(owner);
            out.extend(kind.to_be_bytes());
            out.extend([0, 1]);
            out.extend(ttl.to_be_bytes());
            out.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    const OPT: (u16, u32, &[u8]) = (TYPE_OPT, 0, b"");

    #[test]
    fn the_shortest_time_to_live_counts_and_else_the_negative_one() {
        let address = |ttl| (1, ttl, b"\x7f\0\0\x01".as_slice());
        let soa = |ttl| (TYPE_SOA, ttl, b"\0\0\0\0\0\x1e".as_slice());
        for (sections, expected) in [
            ([&[address(20), address(10)][..], &[], &[OPT]], Some(10)),
            ([&[address(20)], &[soa(5)], &[]], Some(20)),
            ([&[], &[soa(3600)], &[OPT]], Some(30)),
            ([&[], &[soa(5)], &[]], Some(5)),
            ([&[], &[address(7)], &[]], None),
            ([&[], &[], &[OPT]], None),
        ] {
            assert_eq!(lifetime(&answer(sections)), expected, "{sections:?}");
        }
        let mut cut = answer([&[address(20)], &[], &[]]);
        cut.pop();
        assert_eq!(lifetime(&cut), None);
    }

    #[test]
    fn padded_answers_have_one_of_few_lengths() {
        for len in [0, 1, 200, 421, 422, 423, 900] {
            let text = vec![7; len];
            let mut padded = answer([&[(16, 1, &text)], &[], &[OPT]]);
            let before = padded.clone();
            pad(&mut padded);
            assert!(
                padded.len().is_multiple_of(BLOCK) && padded.len() > before.len(),
                "{len}"
            );
            assert!(padded.len() < before.len() + 4 + BLOCK);
            // Only the data length of the OPT record changed, and the option was appended.
            let at = before.len();
            assert_eq!(padded[..at - 2], before[..at - 2]);
            let added = &padded[at..];
            let words = [&padded[at - 2..at], &added[..2], &added[2..4]];
            let words = words.map(|word| usize::from(u16::from_be_bytes([word[0], word[1]])));
            assert_eq!(words, [added.len(), 12, added.len() - 4]);
            assert!(added[4..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn what_cannot_be_padded_stays_as_it_is() {
        let long = vec![0; 65_500];
        for whole in [
            answer([&[], &[], &[]]),
            answer([&[], &[], &[OPT, (250, 0, b"")]]),
            answer([&[(16, 1, &long)], &[], &[OPT]]),
            b"short".to_vec(),
        ] {
            let mut padded = whole.clone();
            pad(&mut padded);
            assert_eq!(padded, whole);
        }
    }
}
