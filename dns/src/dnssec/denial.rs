//! Compact denial of existence (RFC 9824): a single NSEC record, whose owner is the name asked for, lists the types that exist there.
//!
//! Its next name is the immediate successor, so it says nothing about any other name and the zone cannot be walked. For a name that does not
//! exist, the NSEC record lists only the type NXNAME (and its own RRSIG and NSEC); for an empty non-terminal (RFC 4592, section 2.2.2), no
//! other type. A name covered by a wildcard is answered as if it existed: with the wildcard's types, and with records signed under the name itself.
//! So no second proof is needed, and resolvers that synthesize answers from proofs (RFC 8198) make correct ones.

use hickory_proto::dnssec::rdata::{DNSSECRData, NSEC};
use hickory_proto::rr::{LowerName, Name, RData, Record, RecordType};

/// The type whose presence in an NSEC record means that the owner does not exist (RFC 9824, section 2).
pub const NXNAME: RecordType = RecordType::Unknown(128);
/// The maximum length of a name in wire format (RFC 1035, section 2.3.4), and of a label.
const NAME_MAX: usize = 255;
const LABEL_MAX: usize = 63;

/// The immediate successor of `name` in canonical order (RFC 4034, section 6.1; RFC 4471, section 3.1.2); for the zone's last name, the
/// apex.
#[must_use]
pub fn successor(name: &LowerName, apex: &LowerName) -> Name {
    let mut labels: Vec<Vec<u8>> = name.iter().map(<[u8]>::to_vec).collect();
    let length = |labels: &[Vec<u8>]| 1 + labels.iter().map(|l| 1 + l.len()).sum::<usize>();
    let keep = apex.iter().len();
    if length(&labels) + 2 <= NAME_MAX {
        labels.insert(0, vec![0]);
    } else {
        // The name is too long to have a child, so its successor is a sibling of it or of one of its ancestors.
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

/// Turns a label into its successor. Returns whether there is one.
fn step(label: &mut Vec<u8>, room: bool) -> bool {
    if room && label.len() < LABEL_MAX {
        label.push(0);
        return true;
    }
    while let Some(last) = label.pop() {
        if last < u8::MAX {
            // Upper case letters equal lower case ones, so they have no place of their own in the order (RFC 4034, section 6.1).
            label.push(if last == b'@' { b'[' } else { last + 1 });
            return true;
        }
    }
    false
}

/// The NSEC record of `owner`, the name as spelled in the question; `name` is the same in lower case. `types` are the types that exist there,
/// or `None` if the name does not exist.
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
        // 63 + 63 + 63 + 50 and fn.test: 254 bytes, so there is room for one more byte but not for a label.
        let long = vec![b'x'; 63];
        let name = |first: &[u8]| next(&[first, &long, &long, &long, b"fn", b"test"])[0].clone();
        assert_eq!(name(&[b'y'; 52]), [[b'y'; 52].as_slice(), &[0]].concat());
        // 255 bytes: the last byte is incremented, skipping upper case; bytes that cannot be incremented are removed.
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
        // RRSIG, NSEC and NXNAME: 46, 47 and 128 (RFC 9824, section 3.1), after the next name in lower case.
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
        /// The successor is a valid name, comes later, and is in the zone; no other name lies between the two.
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
                // Neither a sibling nor a child lies between.
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
