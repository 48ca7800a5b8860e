//! What is sent when a job has ended or a budget gave an alert, how the receiver knows who sent it, and which addresses it may go to.
//!
//! The request is a `POST` with the job or the alert as JSON. `fdn-webhook-timestamp` has the time in seconds since 1970,
//! `fdn-webhook-signature` `v1=` and the hexadecimal HMAC-SHA-256 of `TIMESTAMP.BODY` under the app's, or the tenant's budgets', secret. A receiver compares in constant time and refuses
//! old timestamps; it may get one event more than once, and knows it by `fdn-webhook-id`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The event's id: the same each time the event is sent.
pub const ID_HEADER: &str = "fdn-webhook-id";
/// When it was signed, in seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "fdn-webhook-timestamp";
/// The signature.
pub const SIGNATURE_HEADER: &str = "fdn-webhook-signature";
/// The longest address.
pub const URL_MAX: usize = 2048;

/// What is signed.
#[must_use]
pub fn signed(timestamp_s: u64, body: &str) -> String {
    format!("{timestamp_s}.{body}")
}

/// Whether an address is on the public internet: of no private, local, shared, documentation, benchmark, multicast or reserved range (IANA's
/// special-purpose registries), nor an IPv6 form of such an IPv4 address.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        // Shared by providers (RFC 6598), protocol assignments (RFC 6890), benchmarks (RFC 2544), 6to4 relays (RFC 7526).
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19))
        || (a == 192 && b == 88 && c == 99);
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4() {
        // Mapped (::ffff:a.b.c.d) and the old compatible form, which holds :: and ::1 as well.
        return address.to_ipv4_mapped().is_some() && is_public_v4(v4);
    }
    let [first, second, third, fourth, fifth, sixth, seventh, eighth] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (first, second) {
        // NAT64 (RFC 6052): the address behind it counts. Its local prefix (RFC 8215) is not public.
        (0x64, 0xff9b) => {
            (third, fourth, fifth, sixth) == (0, 0, 0, 0) && is_public_v4(v4(seventh, eighth))
        }
        // 6to4 (RFC 3056).
        (0x2002, _) => is_public_v4(v4(second, third)),
        // Protocol assignments with Teredo (RFC 2928), documentation (RFC 3849, RFC 9637).
        (0x2001, second) if second < 0x200 || second == 0xdb8 => false,
        (0x3fff, second) if second < 0x1000 => false,
        // All global unicast is in 2000::/3.
        _ => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public(public.parse().expect("address")), "{public}");
        }
        for not in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.8",
            "224.0.0.1",
            "240.0.0.1",
            "203.0.113.9",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001:db8::1",
            "2001::1",
            "3fff::1",
            "5f00::1",
        ] {
            assert!(!is_public(not.parse().expect("address")), "{not}");
        }
    }

    #[test]
    fn the_time_is_signed_with_the_body() {
        assert_eq!(signed(17, "{}"), "17.{}");
    }
}
