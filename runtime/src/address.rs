//! Which addresses functions may reach: those of the public internet, and no others unless the manifest names one literally.
//!
//! A host name that is allowed may resolve to anything its owner likes, an address inside the operator's network or a cloud's
//! metadata service among them. So the resolved address is what is checked and what is connected to. Ranges are those of the
//! IANA special-purpose address registries (RFC 6890 and its updates) that are not globally reachable.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fdn_core::manifest::AllowedHost;

/// Why functions may not reach `address`, or `None` if it is one of the public internet.
#[must_use]
pub fn why_refused(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => why_refused_v4(v4),
        IpAddr::V6(v6) => why_refused_v6(v6),
    }
}

/// Whether one of `allowed` is itself the literal `address` for this port: the only way to a private address.
#[must_use]
pub fn allowed_literally<'a>(
    allowed: impl IntoIterator<Item = &'a AllowedHost>,
    address: IpAddr,
    port: u16,
) -> bool {
    let literal = address.to_string();
    allowed.into_iter().any(|entry| {
        let text = entry.to_string();
        let name = text
            .rsplit_once(':')
            .map_or(text.as_str(), |(name, _)| name);
        name == literal && entry.covers(&literal, port)
    })
}

fn why_refused_v4(address: Ipv4Addr) -> Option<&'static str> {
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

fn why_refused_v6(address: Ipv6Addr) -> Option<&'static str> {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        why_refused_v4(Ipv4Addr::new(a, b, c, d))
    };
    if address.is_unspecified() || address.is_loopback() {
        return Some("a loopback address");
    }
    match segments {
        // Addresses that carry an IPv4 address are as good as that one: mapped, compatible, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => embedded(high, low),
        [0x64, 0xff9b, 1, ..] => Some("a private address"),
        [0xfc00..=0xfdff, ..] => Some("a unique local address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0x0fff, ..] | [0x0100, 0, 0, 0, ..] | [0x5f00, ..] => {
            Some("a reserved address")
        }
        // Teredo hides its IPv4 address, and the rest of 2001::/23 is for protocols.
        [0x2001, 0..=0x1ff, ..] => Some("a reserved address"),
        _ => None,
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
            "::7f00:1",
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
            assert!(why_refused(address).is_some(), "{text}");
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
            "169.253.0.1",
            "2606:4700:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::",
        ] {
            let address: IpAddr = text.parse().expect("address");
            assert_eq!(why_refused(address), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_address_is_as_good_as_the_one_it_carries(octets: [u8; 4]) {
            let [a, b, c, d] = octets;
            let inner = why_refused(IpAddr::from(octets));
            let [high, low] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
            for carrier in [
                Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            ] {
                proptest::prop_assert_eq!(why_refused(IpAddr::from(carrier)), inner);
            }
        }
    }

    #[test]
    fn only_the_literal_itself_opens_a_private_address() {
        let hosts = |names: &[&str]| -> Vec<AllowedHost> {
            names.iter().map(|n| n.parse().expect("host")).collect()
        };
        let loopback: IpAddr = "127.0.0.1".parse().expect("address");
        assert!(allowed_literally(
            &hosts(&["127.0.0.1:9000"]),
            loopback,
            9000
        ));
        assert!(!allowed_literally(
            &hosts(&["127.0.0.1:9000"]),
            loopback,
            9001
        ));
        assert!(allowed_literally(&hosts(&["127.0.0.1"]), loopback, 80));
        // A wildcard covers the name `127.0.0.1`, but it is no literal address.
        assert!(!allowed_literally(
            &hosts(&["*.0.0.1:9000"]),
            loopback,
            9000
        ));
        assert!(!allowed_literally(&hosts(&["localhost"]), loopback, 80));
    }
}
