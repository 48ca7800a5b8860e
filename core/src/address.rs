//! Which addresses are on the public internet: the only ones that functions and webhooks may reach, unless the operator allows others.
//!
//! A host name may resolve to whatever its owner chooses, including addresses inside the operator's network or a cloud's metadata
//! service. So the resolved address is checked, and that same address is connected to. The excluded ranges are those of the IANA
//! special-purpose address registries (RFC 6890 and its updates) that are not globally reachable, all of IPv6 that is not global
//! unicast (RFC 4291, section 2.4), and the one address of a cloud's service that looks public and is not.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is on the public internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    why_not_public(address).is_none()
}

/// The kind of an address that is not on the public internet, for messages; `None` for a public one.
#[must_use]
pub fn why_not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => why_not_v4(v4),
        IpAddr::V6(v6) => why_not_v6(v6),
    }
}

fn why_not_v4(address: Ipv4Addr) -> Option<&'static str> {
    // Azure answers its machines here, with credentials among the rest: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    const WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    if address == WIRE_SERVER {
        return Some("the address of a cloud's service for its machines");
    }
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        (0, ..) => Some("an address of this network"),
        (127, ..) => Some("a loopback address"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => Some("a private address"),
        (100, 64..=127, _) => Some("an address shared by a provider's customers"),
        (169, 254, _) => Some("a link-local address, where metadata services are"),
        (192, 0, 0 | 2) | (198, 51, 100) | (203, 0, 113) | (192, 88, 99) => {
            Some("a reserved address")
        }
        (198, 18 | 19, _) => Some("an address for benchmarks"),
        (224..=239, ..) => Some("a multicast address"),
        (240..=255, ..) => Some("a reserved or broadcast address"),
        _ => None,
    }
}

fn why_not_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        why_not_v4(Ipv4Addr::new(a, b, c, d))
    };
    if address.is_unspecified() || address.is_loopback() {
        return Some("a loopback address");
    }
    match segments {
        // The old compatible form (RFC 4291, section 2.5.5.1) is routed nowhere.
        [0, 0, 0, 0, 0, 0, ..] => Some("a reserved address"),
        // Addresses that embed an IPv4 address are judged by it: mapped, NAT64 (RFC 6052), 6to4 (RFC 3056).
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => embedded(high, low),
        // NAT64 with a network-specific prefix (RFC 8215).
        [0x64, 0xff9b, 1, ..] => Some("a private address"),
        [0xfc00..=0xfdff, ..] => Some("a unique local address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        // Teredo obfuscates its IPv4 address, and the rest of 2001::/23 is for protocols (RFC 2928); documentation (RFC 3849, RFC 9637).
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("a reserved address"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("a reserved address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_addresses_are_refused_in_every_disguise() {
        for text in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "239.255.255.250",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:168.63.129.16",
            "::7f00:1",
            "::808:808",
            "192.0.0.8",
            "203.0.113.9",
            "3fff::1",
            "5f00::1",
            "100::1",
            "4000::1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:a00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
        ] {
            let address: IpAddr = text.parse().expect("address");
            assert!(why_not_public(address).is_some(), "{text}");
            assert!(!is_public(address), "{text}");
        }
    }

    #[test]
    fn the_public_internet_is_reached() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "192.167.0.1",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.0.1",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::",
        ] {
            let address: IpAddr = text.parse().expect("address");
            assert_eq!(why_not_public(address), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_address_is_as_good_as_the_one_it_carries(bytes: [u8; 4]) {
            let [a, b, c, d] = bytes;
            let inner = why_not_public(IpAddr::from(bytes));
            let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
            for carrier in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                proptest::prop_assert_eq!(why_not_public(IpAddr::from(carrier)), inner);
            }
        }
    }
}
