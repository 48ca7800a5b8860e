//! Compares the table with a list that is searched linearly.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn prefix(text: &str) -> ClientPrefix {
    text.parse().expect("prefix")
}

/// The expected result, computed slowly: the longest prefix around the block.
fn oracle(list: &BTreeMap<ClientPrefix, u16>, client: ClientPrefix) -> Option<(u16, u8)> {
    let around = |p: &ClientPrefix| {
        p.addr().is_ipv4() == client.addr().is_ipv4()
            && p.len() <= client.len()
            && p.contains(client.addr())
    };
    list.iter()
        .filter(|(p, _)| around(p))
        .max_by_key(|(p, _)| p.len())
        .map(|(p, value)| (*value, p.len()))
}

/// Nested and adjacent prefixes, of both families and of all lengths, half of them in a small part of the address space.
fn any_prefix() -> impl Strategy<Value = ClientPrefix> {
    let narrow = (0u32..64, 0u8..=6)
        .prop_map(|(a, len)| ClientPrefix::new(Ipv4Addr::from_bits(a << 26).into(), len));
    let deep = (0u32..64, 26u8..=32)
        .prop_map(|(a, len)| ClientPrefix::new(Ipv4Addr::from_bits(0xc000_0200 | a).into(), len));
    let v4 = (any::<u32>(), 0u8..=32)
        .prop_map(|(a, len)| ClientPrefix::new(Ipv4Addr::from_bits(a).into(), len));
    let v6 = (any::<u128>(), 0u8..=128)
        .prop_map(|(a, len)| ClientPrefix::new(Ipv6Addr::from_bits(a | 1 << 127).into(), len));
    let v6_narrow = (0u128..64, 0u8..=6)
        .prop_map(|(a, len)| ClientPrefix::new(Ipv6Addr::from_bits(a << 122).into(), len));
    let v6_deep = (0u128..16, 124u8..=128).prop_map(|(a, len)| {
        ClientPrefix::new(Ipv6Addr::from_bits(0x2001_0db8 << 96 | a).into(), len)
    });
    prop_oneof![narrow, deep, v4, v6, v6_narrow, v6_deep]
}

/// The address with these bits.
fn address(top: u128, is_v4: bool) -> IpAddr {
    if is_v4 {
        IpAddr::V4(Ipv4Addr::from_bits(u32::of(top)))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(top))
    }
}

/// The first and last addresses of all prefixes, and their neighbours: everywhere that a value can change.
fn borders(list: &BTreeMap<ClientPrefix, u16>, is_v4: bool) -> Vec<u128> {
    let step = if is_v4 { 1 << 96 } else { 1 };
    let keep = if is_v4 { !below(32) } else { u128::MAX };
    let mut out = vec![0, keep];
    for prefix in list.keys().filter(|p| p.addr().is_ipv4() == is_v4) {
        let block = Span::block(bits(prefix.addr()).0, prefix.len());
        let (first, last) = (block.first, block.last & keep);
        out.extend([
            first,
            last,
            first.wrapping_sub(step),
            last.wrapping_add(step),
        ]);
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// Whether `addr` is in canonical form, that is not an IPv4-mapped IPv6 address.
fn canonical(addr: IpAddr) -> bool {
    addr == addr.to_canonical()
}

/// Checks value, soundness and width of the scope at every border of one family and at other addresses.
fn exact(
    list: &BTreeMap<ClientPrefix, u16>,
    is_v4: bool,
    others: impl Iterator<Item = u128>,
) -> Result<(), TestCaseError> {
    let table: Table<u16> = list.clone().into_iter().collect();
    let keep = if is_v4 { !below(32) } else { u128::MAX };
    let value =
        |top: u128| oracle(list, ClientPrefix::host(address(top, is_v4))).map(|(value, _)| value);
    let borders = borders(list, is_v4).into_iter();
    let borders: Vec<_> = borders.map(|border| (border, value(border))).collect();
    let others = others.map(|other| other & keep);
    for top in borders.iter().map(|(border, _)| *border).chain(others) {
        if !canonical(address(top, is_v4)) {
            continue;
        }
        let (found, span) = table.piece(top, is_v4);
        prop_assert_eq!(found, value(top));
        let scope = span.scope(top);
        // Values change at borders only, so these and the block's ends represent every address of the block.
        let same = |len: u8| {
            let block = Span::block(top, len);
            let ends = [block.first, block.last & keep];
            let is_inside = |border: &u128| block.first <= *border && *border <= block.last;
            ends.iter().all(|end| value(*end) == found)
                && borders
                    .iter()
                    .all(|(border, value)| !is_inside(border) || *value == found)
        };
        let asked = address(top, is_v4);
        prop_assert!(same(scope), "{asked} /{scope} is too wide");
        prop_assert!(
            scope == 0 || !same(scope - 1),
            "{asked} /{scope} is too narrow"
        );
    }
    Ok(())
}

/// Two thousand tables, with a thousand addresses of each family each: random, or random inside a prefix of the table.
mod soak {
    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_scope_is_exactly_as_wide_as_the_truth_anywhere(
            list in proptest::collection::btree_map(any_prefix(), 0u16..4, 0..64),
            random in proptest::collection::vec((any::<u128>(), any::<usize>()), 1000),
        ) {
            for is_v4 in [true, false] {
                let prefixes: Vec<_> = list.keys().filter(|p| p.addr().is_ipv4() == is_v4).collect();
                let others = random.iter().map(|(bits_of_it, at)| {
                    let prefix = prefixes.get(at / 2 % prefixes.len().max(1)).filter(|_| at % 2 == 0);
                    let block = prefix.map_or(Span::ALL, |p| Span::block(bits(p.addr()).0, p.len()));
                    block.first | bits_of_it & (block.last - block.first)
                });
                exact(&list, is_v4, others)?;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_scope_is_exactly_as_wide_as_the_truth(
        list in proptest::collection::btree_map(any_prefix(), 0u16..4, 0..24),
        random in proptest::collection::vec(any::<u128>(), 16),
    ) {
        for is_v4 in [true, false] {
            exact(&list, is_v4, random.iter().copied())?;
        }
    }

    /// A client prefix gets the value of the longest prefix that contains all of it.
    #[test]
    fn what_lies_around_a_block_is_found(
        list in proptest::collection::btree_map(any_prefix(), 0u16..4, 0..24),
        clients in proptest::collection::vec(any_prefix(), 16),
    ) {
        let table: Table<u16> = list.clone().into_iter().collect();
        for client in clients.into_iter().chain(list.keys().copied()) {
            prop_assert_eq!(table.covering(client), oracle(&list, client), "{}", client);
        }
        let listed: BTreeMap<_, _> = table.entries().collect();
        prop_assert_eq!(&listed, &list);
        prop_assert_eq!(table.len(), list.len());
    }

    /// The same with few changes among many prefixes, so that pieces are recomputed only inside the changed blocks.
    #[test]
    fn a_few_changes_cut_the_pieces_that_all_of_it_would(
        before in proptest::collection::btree_map(any_prefix(), 0u16..4, 80..240),
        steps in proptest::collection::vec(
            proptest::collection::vec((any_prefix(), any::<usize>(), proptest::option::of(0u16..4)), 0..6),
            1..4,
        ),
    ) {
        let mut table: Table<u16> = before.clone().into_iter().collect();
        let mut after = before;
        for step in steps {
            let mut changes = Vec::new();
            for (other, at, value) in step {
                // Some exist, some do not.
                let held = after.keys().nth(at / 2 % after.len().max(1)).copied();
                let prefix = held.filter(|_| at % 2 == 0).unwrap_or(other);
                changes.push((prefix, value));
                match value {
                    Some(value) => drop(after.insert(prefix, value)),
                    None => drop(after.remove(&prefix)),
                }
            }
            table = table.with(changes);
            let built: Table<u16> = after.clone().into_iter().collect();
            prop_assert_eq!(table.digest(), built.digest());
            prop_assert_eq!(&table, &built);
        }
    }

    /// Merging changes into a table gives exactly the table that is built from the result.
    #[test]
    fn a_changed_table_is_the_table_of_the_result(
        before in proptest::collection::btree_map(any_prefix(), 0u16..4, 0..16),
        changes in proptest::collection::vec((any_prefix(), proptest::option::of(0u16..4)), 0..16),
        gone in proptest::collection::vec(0usize..16, 0..6),
    ) {
        let table: Table<u16> = before.clone().into_iter().collect();
        let known: Vec<_> = before.keys().copied().collect();
        let gone = gone.iter().filter_map(|i| known.get(*i)).map(|p| (*p, None));
        let changes: Vec<_> = changes.into_iter().chain(gone).collect();
        let mut after = before;
        for (prefix, value) in &changes {
            match value {
                Some(value) => drop(after.insert(*prefix, *value)),
                None => drop(after.remove(prefix)),
            }
        }
        prop_assert_eq!(table.with(changes), after.into_iter().collect());
    }

    #[test]
    fn it_survives_a_file(list in proptest::collection::btree_map(any_prefix(), 0u16..4, 0..24)) {
        let table: Table<u16> = list.into_iter().collect();
        let mut file = Vec::new();
        table.write(&mut file).expect("written");
        prop_assert_eq!(table.counts().bytes(), Some(file.len() as u64));
        prop_assert_eq!(Table::read(&mut file.as_slice(), table.counts(), 4).expect("read"), table);
    }
}

#[test]
fn a_nested_prefix_narrows_the_scope_around_it() {
    let table: Table<u16> = [("10.0.0.0/8", 1), ("10.1.0.0/16", 2)]
        .map(|(p, v)| (prefix(p), v))
        .into_iter()
        .collect();
    let scope = |client: &str| {
        let (addr, is_v4) = bits(prefix(client).addr());
        let (value, span) = table.piece(addr, is_v4);
        (value, span.scope(addr))
    };
    assert_eq!(scope("10.1.2.3"), (Some(2), 16));
    assert_eq!(scope("10.0.2.3"), (Some(1), 16));
    assert_eq!(scope("10.128.0.1"), (Some(1), 9));
    assert_eq!(scope("192.0.2.1"), (None, 1));
    assert_eq!(scope("2001:db8::1"), (None, 0));
}

#[test]
fn neighbours_that_say_the_same_are_one_piece() {
    let all: Table<u16> = (0..=255u8)
        .map(|a| (ClientPrefix::new([a, 0, 0, 0].into(), 8), 3))
        .collect();
    assert_eq!(all.piece(0, true), (Some(3), Span::ALL));
    assert_eq!(all.covering(prefix("10.1.0.0/16")), Some((3, 8)));
    assert_eq!(all.covering(prefix("0.0.0.0/0")), None);
}

#[test]
fn arrays_that_no_table_has_are_refused() {
    let table: Table<u16> = [("10.0.0.0/8", 1), ("10.1.0.0/16", 2)]
        .map(|(p, v)| (prefix(p), v))
        .into_iter()
        .collect();
    let mut file = Vec::new();
    table.write(&mut file).expect("written");
    let read = |file: &[u8], values| {
        Table::read(&mut &*file, table.counts(), values)
            .map(drop)
            .map_err(|e| e.to_string())
    };
    assert_eq!(read(&file, 3), Ok(()));
    assert!(read(&file, 2).is_err_and(|e| e.contains("value")));
    assert!(read(&file[..file.len() - 1], 3).is_err());
    for (at, byte, expected) in [(0, 1, "host bits"), (7, 9, "order"), (8, 33, "host bits")] {
        let mut changed = file.clone();
        changed[at] = byte;
        assert!(
            read(&changed, 3).is_err_and(|e| e.contains(expected)),
            "byte {at}"
        );
    }
}
