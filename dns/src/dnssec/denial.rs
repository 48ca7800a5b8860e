//! Compact denial of existence (RFC 9824): one NSEC record, owned by the very name that was asked for, says which types are there.
//!
//! Its next name is the first one that can follow, so it says nothing of any other name and nobody can walk the zone. A name that does not
//! exist is said to have no types but NXNAME; an empty one (RFC 4592, section 2.2.2) has none at all. A name that a wildcard stands for
//! is answered as if it were there: with the wildcard's types, and with records signed under the name itself. So no second proof is
//! needed, and resolvers that make answers of proofs (RFC 8198) make the right ones.

use hickory_proto::dnssec::rdata::{DNSSECRData, NSEC};
use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};

/// The type that says, in an NSEC record's list, that its owner does not exist (RFC 9824, section 2).
pub const NXNAME: RecordType = RecordType::Unknown(128);
/// The longest name as written (RFC 1035, section 2.3.4), and the longest label.
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// The first name after `name` in the canonical order (RFC 4034, section 6.1; RFC 4471, section 3.1.2), and the apex after the zone's last
/// one.
#[must_use]
pub fn successor(name: &LowerName, apex: &LowerName) -> Name {
    let mut labels: Vec<Vec<u8>> = name.iter().map(<[u8]>::to_vec).collect();
    let length = |labels: &[Vec<u8>]| 1 + labels.iter().map(|l| 1 + l.len()).sum::<usize>();
    let keep = apex.iter().len();
    if length(&labels) + 2 <= NAME_MAX {
        labels.insert(0, vec![0]);
    } else {
        // Nothing can lie below it any more, so the next one is beside it, or beside a name above it.
        loop {
            let room = length(&labels) < NAME_MAX;
            if labels.len() <= keep || step(&mut labels[0], room) {
                break;
            }
            labels.remove(0);
        }
    }
    let labels = labels.iter().map(Vec::as_slice);
    let mut next = Name::from_labels(labels).unwrap_or_else(|_| apex.clone().into());
    next.set_fqdn(true);
    next
}

/// Makes the next label of one. Whether there was one.
fn step(label: &mut Vec<u8>, room: bool) -> bool {
    if room && label.len() < LABEL_MAX {
        label.push(0);
        return true;
    }
    while let Some(last) = label.pop() {
        if last < u8::MAX {
            // Upper case is the same as lower case, so it is nowhere in the order (RFC 4034, section 6.1).
            label.push(if last == b'@' { b'[' } else { last + 1 });
            return true;
        }
    }
    false
}

/// The NSEC record of `owner`, the name as it was asked for; `name` is the same in lower case. `types` are those that exist there, or `None`
/// if the name does not.
#[must_use]
pub fn nsec(
    owner: &Name,
    name: &LowerName,
    apex: &LowerName,
    types: Option<&[RecordType]>,
    ttl: u32,
) -> Record {
    let own = [RecordType::RRSIG, RecordType::NSEC];
    let listed = types.unwrap_or(&[NXNAME]).iter().copied().chain(own);
    let data = NSEC::new(successor(name, apex), listed);
    Record::from_rdata(owner.clone(), ttl, RData::DNSSEC(DNSSECRData::NSEC(data)))
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use hickory_proto::serialize::binary::BinEncodable;
    use proptest::prelude::*;

    use super::*;

    fn lower(labels: &[&[u8]]) -> LowerName {
        let mut name = Name::from_labels(labels.iter().copied()).expect("name");
        name.set_fqdn(true);
        LowerName::new(&name)
    }

    fn next(labels: &[&[u8]]) -> Vec<Vec<u8>> {
        let apex = lower(&[b"fn", b"test"]);
        successor(&lower(labels), &apex)
            .iter()
            .map(<[u8]>::to_vec)
            .collect()
    }

    #[test]
    fn what_follows_a_name() {
        assert_eq!(
            next(&[b"a", b"fn", b"test"]),
            [b"\0".as_slice(), b"a", b"fn", b"test"]
        );
        // 63 + 63 + 63 + 50 and fn.test: 254 bytes, so no label fits, and one byte does.
        let long = vec![b'x'; 63];
        let name = |first: &[u8]| next(&[first, &long, &long, &long, b"fn", b"test"])[0].clone();
        assert_eq!(name(&[b'y'; 52]), [[b'y'; 52].as_slice(), &[0]].concat());
        // 255 bytes: the last byte is counted up, over the capitals and over what cannot be counted up.
        let full = |end: &[u8]| [vec![b'y'; 53 - end.len()], end.to_vec()].concat();
        assert_eq!(name(&full(b"a")), full(b"b"));
        assert_eq!(name(&full(b"@")), full(b"["));
        assert_eq!(
            name(&full(b"a\xff\xff")),
            [vec![b'y'; 50], b"b".to_vec()].concat()
        );
        let up = next(&[&[0xff; 53], &long, &long, &long, b"fn", b"test"]);
        assert_eq!(up.len(), 5);
        assert_eq!(up[0], [vec![b'x'; 62], b"y".to_vec()].concat());
        let last: Vec<u8> = vec![0xff; 63];
        let end = next(&[&[0xff; 53], &last, &last, &last, b"fn", b"test"]);
        assert_eq!(
            end,
            [b"fn".to_vec(), b"test".to_vec()],
            "after the last the first"
        );
    }

    #[test]
    fn what_the_record_says() {
        let apex = lower(&[b"fn", b"test"]);
        let asked = Name::from_ascii("NoBody.fn.test.").expect("name");
        let record = nsec(&asked, &LowerName::new(&asked), &apex, None, 30);
        assert!(record.name.eq_case(&asked), "spelled as asked");
        let bytes = record.data.to_bytes().expect("bytes");
        // RRSIG, NSEC and NXNAME: 46, 47 and 128 (RFC 9824, section 3.1), behind a name in lower case.
        let expected =
            b"\x01\x00\x06nobody\x02fn\x04test\x00\x00\x11\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\x80";
        assert_eq!(bytes, expected);
        let types = [RecordType::A, RecordType::TXT];
        let record = nsec(&asked, &LowerName::new(&asked), &apex, Some(&types), 30);
        let bytes = record.data.to_bytes().expect("bytes");
        assert!(
            bytes.ends_with(b"\x00\x06\x40\x00\x80\x00\x00\x03"),
            "{bytes:?}"
        );
    }

    fn canonical(left: &Name, right: &Name) -> Ordering {
        let reversed = |name: &Name| {
            let mut labels: Vec<Vec<u8>> = name.iter().map(<[u8]>::to_ascii_lowercase).collect();
            labels.reverse();
            labels
        };
        reversed(left).cmp(&reversed(right))
    }

    proptest! {
        /// The next name is a name, comes after, and lies in the zone; nothing that could be asked is between the two.
        #[test]
        fn nothing_lies_between(
            labels in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..64), 1..5),
            other in proptest::collection::vec(any::<u8>(), 1..64),
        ) {
            let apex = lower(&[b"fn", b"test"]);
            let mut all: Vec<&[u8]> = labels.iter().map(Vec::as_slice).collect();
            all.extend([b"fn".as_slice(), b"test"]);
            prop_assume!(all.iter().map(|l| 1 + l.len()).sum::<usize>() < 255);
            let name = lower(&all);
            let next = successor(&name, &apex);
            prop_assert!(apex.zone_of(&LowerName::new(&next)));
            prop_assert!(next.len() <= 255);
            if next != *apex {
                prop_assert_eq!(canonical(&next, &name), Ordering::Greater);
                // A sibling and a child are not between.
                for beside in [vec![other.as_slice()], vec![other.as_slice(), all[0]]] {
                    let beside: Vec<&[u8]> = beside.into_iter().chain(all[1..].iter().copied()).collect();
                    if let Ok(mut beside) = Name::from_labels(beside) {
                        beside.set_fqdn(true);
                        let between = canonical(&beside, &name) == Ordering::Greater
                            && canonical(&beside, &next) == Ordering::Less;
                        prop_assert!(!between, "{} {} {}", *name, beside, next);
                    }
                }
            }
        }
    }
}
