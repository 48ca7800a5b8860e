//! Client prefixes, and a longest-prefix table whose answers carry their scope.
//!
//! A DNS answer for a client subnet must state the prefix for which it is valid (RFC 7871, section 7.2.1). [`PrefixMap::lookup`]
//! therefore returns, with the value, the *scope*: the shortest prefix of the queried address within which every address gets the same
//! entry. An entry nested inside the matched one lengthens the scope of the answers around it; that prevents caches from giving one
//! client's answer to another.
//!
//! Complexity: insert and lookup visit at most 33 (IPv4) or 129 (IPv6) trie nodes. Invariants: stored prefixes have no host bits; two
//! addresses that share `scope` leading bits find the same entry.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;

/// A prefix of client addresses, such as `203.0.113.0/24`, in canonical form: no host bits, and IPv4-mapped IPv6 (RFC 4291, section
/// 2.5.5.2) written as IPv4: `::ffff:192.0.2.0/120` is 192.0.2.0/24. A prefix shorter than the 96 bits that all mapped addresses share is
/// one of IPv6.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct ClientPrefix(IpNet);

impl ClientPrefix {
    /// The number of bits before the IPv4 address in an IPv4-mapped IPv6 address.
    pub const MAPPED_BITS: u8 = 96;

    /// The prefix of `len` bits around `addr`; a longer length is reduced to that of the address family.
    #[must_use]
    pub fn new(addr: IpAddr, len: u8) -> Self {
        let len = len.min(family_bits(addr));
        let mapped = len
            .checked_sub(Self::MAPPED_BITS)
            .filter(|_| addr.is_ipv6() && addr.to_canonical().is_ipv4());
        let (addr, len) = mapped.map_or((addr, len), |len| (addr.to_canonical(), len));
        Self(IpNet::new_assert(addr, len).trunc())
    }

    /// The prefix of one address.
    #[must_use]
    pub fn host(addr: IpAddr) -> Self {
        Self::new(addr, 128)
    }

    /// The prefix under which a client's demand is counted: /24 for IPv4 and /56 for IPv6, as RFC 7871, section 11.1 recommends, or
    /// the prefix itself if it is shorter.
    #[must_use]
    pub fn to_demand(self) -> Self {
        let limit = if self.addr().is_ipv4() { 24 } else { 56 };
        Self::new(self.addr(), self.len().min(limit))
    }

    /// The first address of the prefix.
    #[must_use]
    pub fn addr(&self) -> IpAddr {
        self.0.network()
    }

    /// The number of leading bits that are fixed.
    #[must_use]
    #[allow(
        clippy::len_without_is_empty,
        reason = "the length of a prefix, not of a container"
    )]
    pub fn len(&self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether `addr` is inside the prefix.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.0.contains(&addr.to_canonical())
    }
}

impl fmt::Display for ClientPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for ClientPrefix {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        if let Ok(addr) = s.parse::<IpAddr>() {
            return Ok(Self::host(addr));
        }
        s.parse::<IpNet>()
            .map(|net| Self::new(net.addr(), net.prefix_len()))
            .map_err(|_| {
                ParseError::new(
                    "client prefix",
                    s,
                    "an IP address or prefix, such as 203.0.113.0/24",
                )
            })
    }
}

impl TryFrom<String> for ClientPrefix {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
    }
}

impl From<ClientPrefix> for String {
    fn from(value: ClientPrefix) -> String {
        value.to_string()
    }
}

const fn family_bits(addr: IpAddr) -> u8 {
    match addr {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The bits of an address, left-aligned in a `u128`.
fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub struct Match<'a, T> {
    /// The entry of the longest matching prefix; `None` if no prefix matches.
    pub value: Option<&'a T>,
    /// The length of that prefix (0 when nothing matched).
    pub matched: u8,
    /// The result is the same for every address that shares this many leading bits with the queried one.
    pub scope: u8,
}

#[derive(Clone, Debug)]
struct TrieNode<T> {
    value: Option<T>,
    children: [Option<u32>; 2],
}

impl<T> TrieNode<T> {
    const EMPTY: Self = Self {
        value: None,
        children: [None, None],
    };
}

/// A longest-prefix table for IPv4 and IPv6, with separate tries per family.
#[derive(Clone, Debug)]
pub struct PrefixMap<T> {
    nodes: Vec<TrieNode<T>>,
    len: usize,
}

const V4_ROOT: usize = 0;
const V6_ROOT: usize = 1;

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self {
            nodes: vec![TrieNode::EMPTY, TrieNode::EMPTY],
            len: 0,
        }
    }
}

impl<T> FromIterator<(ClientPrefix, T)> for PrefixMap<T> {
    fn from_iter<I: IntoIterator<Item = (ClientPrefix, T)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (prefix, value) in entries {
            map.insert(prefix, value);
        }
        map
    }
}

impl<T> PrefixMap<T> {
    const fn root(addr: IpAddr) -> usize {
        if addr.is_ipv4() { V4_ROOT } else { V6_ROOT }
    }

    /// The number of entries.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets the entry of `prefix`; returns the replaced one.
    pub fn insert(&mut self, prefix: ClientPrefix, value: T) -> Option<T> {
        let (addr, mut index) = (bits(prefix.addr()), Self::root(prefix.addr()));
        for depth in 0..prefix.len() {
            let side = side(addr, depth);
            index = match self.nodes[index].children[side] {
                Some(child) => child as usize,
                None => {
                    let child = self.nodes.len();
                    self.nodes.push(TrieNode::EMPTY);
                    self.nodes[index].children[side] = Some(
                        u32::try_from(child).expect("fewer than 2^32 trie nodes fit in memory"),
                    );
                    child
                }
            };
        }
        let old = self.nodes[index].value.replace(value);
        self.len += usize::from(old.is_none());
        old
    }

    /// The entry of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: ClientPrefix) -> Option<&T> {
        let (addr, mut index) = (bits(prefix.addr()), Self::root(prefix.addr()));
        for depth in 0..prefix.len() {
            index = self.nodes[index].children[side(addr, depth)]? as usize;
        }
        self.nodes[index].value.as_ref()
    }

    /// Finds the longest prefix that contains all of `client`, and the scope of the result.
    ///
    /// A client known only by a prefix (a client subnet) is matched by entries no longer than that prefix: the unknown bits of the
    /// address cannot choose between longer ones. The scope may then exceed the client's prefix, which tells the resolver that a
    /// longer one would be useful (RFC 7871, section 7.2.1).
    #[must_use]
    pub fn lookup(&self, client: ClientPrefix) -> Match<'_, T> {
        let addr = bits(client.addr());
        let family = family_bits(client.addr());
        let mut index = Self::root(client.addr());
        let mut found = Match {
            value: self.nodes[index].value.as_ref(),
            matched: 0,
            scope: 0,
        };
        for depth in 0..family {
            let node = &self.nodes[index];
            if node.children == [None, None] {
                break;
            }
            // Below this node the table still distinguishes addresses, so the result holds for one more bit at least.
            found.scope = depth + 1;
            let Some(child) = node.children[side(addr, depth)] else {
                break;
            };
            index = child as usize;
            if depth < client.len()
                && let Some(value) = &self.nodes[index].value
            {
                found.value = Some(value);
                found.matched = depth + 1;
            }
        }
        found
    }

    /// All entries, IPv4 before IPv6, each family in address order, shorter prefixes first.
    #[must_use]
    pub fn entries(&self) -> Vec<(ClientPrefix, &T)> {
        let mut out = Vec::with_capacity(self.len);
        let mut stack = vec![(V6_ROOT, 0u128, 0u8, false), (V4_ROOT, 0u128, 0u8, true)];
        while let Some((index, addr, len, is_v4)) = stack.pop() {
            let node = &self.nodes[index];
            if let Some(value) = &node.value {
                out.push((ClientPrefix::new(from_bits(addr, is_v4), len), value));
            }
            for side in [1usize, 0] {
                if let Some(child) = node.children[side] {
                    let addr = addr | ((side as u128) << (127 - u32::from(len)));
                    stack.push((child as usize, addr, len + 1, is_v4));
                }
            }
        }
        out
    }
}

fn side(addr: u128, depth: u8) -> usize {
    usize::from(addr << depth >> 127 == 1)
}

fn from_bits(addr: u128, is_v4: bool) -> IpAddr {
    if is_v4 {
        let top = u32::try_from(addr >> 96).expect("a shift by 96 leaves 32 bits");
        IpAddr::V4(Ipv4Addr::from_bits(top))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(addr))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(s: &str) -> ClientPrefix {
        s.parse().expect("prefix")
    }

    #[test]
    fn canonical_form() {
        assert_eq!(prefix("203.0.113.77/24").to_string(), "203.0.113.0/24");
        assert_eq!(prefix("::ffff:203.0.113.77").to_string(), "203.0.113.77/32");
        assert_eq!(
            prefix("::ffff:203.0.113.77/120").to_string(),
            "203.0.113.0/24"
        );
        assert_eq!(prefix("::ffff:0:0/96").to_string(), "0.0.0.0/0");
        assert_eq!(
            prefix("::ffff:203.0.113.77/95").to_string(),
            "::fffe:0:0/95"
        );
        assert_eq!(prefix("::ffff:203.0.113.77/24").to_string(), "::/24");
        assert_eq!(
            prefix("2001:db8:1:2:3::/96").to_demand().to_string(),
            "2001:db8:1::/56"
        );
        assert!("203.0.113.0/33".parse::<ClientPrefix>().is_err());
    }

    #[test]
    fn a_nested_prefix_lengthens_the_scope_around_it() {
        let map: PrefixMap<u8> = [(prefix("10.0.0.0/8"), 1), (prefix("10.1.0.0/16"), 2)]
            .into_iter()
            .collect();
        let inner = map.lookup(prefix("10.1.2.3"));
        assert_eq!(
            (inner.value, inner.matched, inner.scope),
            (Some(&2), 16, 16)
        );
        // 10.0.x.y differs from 10.1.x.y in bit 16, so the answer is true for a /16 only.
        let beside = map.lookup(prefix("10.0.2.3"));
        assert_eq!(
            (beside.value, beside.matched, beside.scope),
            (Some(&1), 8, 16)
        );
        let far = map.lookup(prefix("10.128.0.1"));
        assert_eq!((far.value, far.matched, far.scope), (Some(&1), 8, 9));
        let outside = map.lookup(prefix("192.0.2.1"));
        assert_eq!(
            (outside.value, outside.matched, outside.scope),
            (None, 0, 1)
        );
        assert_eq!(map.lookup(prefix("2001:db8::1")).scope, 0);
    }

    #[test]
    fn a_short_client_subnet_does_not_guess() {
        let map: PrefixMap<u8> = [(prefix("10.0.0.0/8"), 1), (prefix("10.0.0.0/16"), 2)]
            .into_iter()
            .collect();
        let found = map.lookup(prefix("10.0.0.0/12"));
        assert_eq!((found.value, found.scope), (Some(&1), 16));
    }

    fn any_prefix() -> impl Strategy<Value = ClientPrefix> {
        // A narrow address space makes nested and neighbouring prefixes likely.
        (0u32..256, 0u8..=8)
            .prop_map(|(a, len)| ClientPrefix::new(IpAddr::V4(Ipv4Addr::from_bits(a << 24)), len))
    }

    proptest! {
        #[test]
        fn the_longest_match_wins_and_the_scope_is_sound(
            table in proptest::collection::btree_map(any_prefix(), 0u8..4, 0..12),
            asked in 0u32..256,
        ) {
            let map: PrefixMap<u8> = table.clone().into_iter().collect();
            let oracle = |a: u32| {
                let addr = IpAddr::V4(Ipv4Addr::from_bits(a << 24));
                table.iter().filter(|(p, _)| p.contains(addr)).max_by_key(|(p, _)| p.len()).map(|(_, v)| *v)
            };
            let client = ClientPrefix::host(IpAddr::V4(Ipv4Addr::from_bits(asked << 24)));
            let found = map.lookup(client);
            prop_assert_eq!(found.value.copied(), oracle(asked));
            // Every address that shares the scope's bits gets the same answer.
            for other in 0u32..256 {
                if (other ^ asked) << 24 >> (32 - u32::from(found.scope).min(8)).min(31) == 0 || found.scope == 0 {
                    prop_assert_eq!(oracle(other), oracle(asked), "other {} scope {}", other, found.scope);
                }
            }
            prop_assert_eq!(map.len(), table.len());
            let listed: Vec<_> = map.entries().into_iter().map(|(p, v)| (p, *v)).collect();
            prop_assert_eq!(listed.len(), table.len());
            prop_assert!(listed.iter().all(|(p, v)| table.get(p) == Some(v)));
        }
    }
}
