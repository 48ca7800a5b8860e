//! Server cookies (RFC 7873) in the interoperable format (RFC 9018), so that every server of an anycast address that has the same secret
//! accepts the cookies of the others.
//!
//! A cookie proves that its holder receives what is sent to its address. Cookies are optional: a client without one is answered all the
//! same (RFC 7873, section 5.2.3), but only a client with a valid one is exempt from the rate limits.

use std::net::IpAddr;

use siphasher::sip::SipHasher24;

use super::wire::Cookie;

/// The version of generated server cookies (RFC 9018, section 4.1).
const VERSION: u8 = 1;
/// The greatest age of a cookie, and how far ahead of this server's clock it may be, in seconds (RFC 9018, section 4.3).
const AGE_MAX: u32 = 3600;
const AHEAD_MAX: u32 = 300;

/// A secret that cookies are computed with.
pub type Key = [u8; 16];

/// The cookie keys of a server.
#[derive(Clone)]
pub struct CookieKeys {
    current: Key,
    /// Keys that other servers may still use, or that this one used earlier: their cookies are accepted (RFC 9018, section 5).
    others: Vec<Key>,
}

impl std::fmt::Debug for CookieKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CookieKeys").finish_non_exhaustive()
    }
}

impl CookieKeys {
    /// Cookies are generated with `current`; those generated with `others` are accepted too.
    #[must_use]
    pub const fn new(current: Key, others: Vec<Key>) -> Self {
        Self { current, others }
    }

    /// A random key: cookies are valid until this process ends.
    #[must_use]
    pub fn random() -> Self {
        Self::new(rand::random(), Vec::new())
    }

    /// Parses keys from text: one per line of 32 hexadecimal digits, the current one first. `None` if a line is anything else, or there is
    /// no key.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut keys = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(key);
        let current = keys.next()??;
        Some(Self::new(current, keys.collect::<Option<_>>()?))
    }

    /// The option's data in an answer: the client cookie, and a server cookie generated at `now` (seconds since 1970, modulo 2^32).
    #[must_use]
    pub fn answer(&self, cookie: &Cookie, source: IpAddr, now: u32) -> [u8; 24] {
        let mut out = [0; 24];
        out[..8].copy_from_slice(&cookie.client);
        out[8] = VERSION;
        out[12..16].copy_from_slice(&now.to_be_bytes());
        let hash = hash(&self.current, &out, source);
        out[16..].copy_from_slice(&hash);
        out
    }

    /// Whether the server cookie was given to this client, and is recent enough.
    #[must_use]
    pub fn accepts(&self, cookie: &Cookie, source: IpAddr, now: u32) -> bool {
        let Some(server) = &cookie.server else {
            return false;
        };
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&cookie.client);
        bytes[8..].copy_from_slice(server);
        let made = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        // RFC 1982: times are compared modulo 2^32.
        let fresh = now.wrapping_sub(made) <= AGE_MAX || made.wrapping_sub(now) <= AHEAD_MAX;
        let fits = |key: &Key| same(&hash(key, &bytes, source), &bytes[16..]);
        bytes[8] == VERSION && fresh && (fits(&self.current) || self.others.iter().any(fits))
    }
}

/// SipHash-2-4 of the client cookie, version, reserved bytes, time and the client's address (RFC 9018, section 4.4).
fn hash(key: &Key, cookie: &[u8; 24], source: IpAddr) -> [u8; 8] {
    let mut input = [0; 32];
    input[..16].copy_from_slice(&cookie[..16]);
    let len = match source.to_canonical() {
        IpAddr::V4(v4) => {
            input[16..20].copy_from_slice(&v4.octets());
            20
        }
        IpAddr::V6(v6) => {
            input[16..].copy_from_slice(&v6.octets());
            32
        }
    };
    SipHasher24::new_with_key(key)
        .hash(&input[..len])
        .to_le_bytes()
}

/// Compares in constant time.
fn same(left: &[u8; 8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |all, (l, r)| all | (l ^ r)) == 0
}

fn key(line: &str) -> Option<Key> {
    let mut key = Key::default();
    hex::decode_to_slice(line, &mut key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("address")
    }

    /// All examples of RFC 9018, appendix A.
    #[test]
    fn the_examples_of_the_rfc() {
        let first = "e5e973e5a6b2a43f48e7dc849e37bfcf";
        let v6 = "2001:db8:220:1:59de:d0f4:8769:82b8";
        let cases = [
            (
                first,
                "198.51.100.100",
                1_559_731_985,
                "2464c4abcf10c957010000005cf79f111f8130c3eee29480",
            ),
            (
                first,
                "198.51.100.100",
                1_559_734_385,
                "2464c4abcf10c957010000005cf7a871d4a564a1442aca77",
            ),
            (
                first,
                "203.0.113.203",
                1_559_734_700,
                "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e",
            ),
            (
                "445536bcd2513298075a5d379663c962",
                v6,
                1_559_741_961,
                "22681ab97d52c298010000005cf7c609a6bb79d16625507a",
            ),
        ];
        for (secret, source, now, expected) in cases {
            let keys = CookieKeys::parse(secret).expect("a key");
            let expected = hex::decode(expected).expect("digits");
            let cookie = Cookie::parse(&expected).expect("a cookie");
            assert_eq!(
                keys.answer(&cookie, addr(source), now).as_slice(),
                expected,
                "{source}"
            );
            assert!(keys.accepts(&cookie, addr(source), now));
        }
    }

    #[test]
    fn what_is_accepted() {
        let keys = CookieKeys::new([1; 16], vec![[2; 16]]);
        let client = Cookie {
            client: [9; 8],
            server: None,
        };
        let (source, now) = (addr("192.0.2.1"), 100_000);
        assert!(!keys.accepts(&client, source, now));
        let given =
            |keys: &CookieKeys| Cookie::parse(&keys.answer(&client, source, now)).expect("own");
        let cookie = given(&keys);
        for (when, accepted) in [
            (now, true),
            (now + 3600, true),
            (now + 3601, false),
            (now - 300, true),
            (now - 301, false),
        ] {
            assert_eq!(keys.accepts(&cookie, source, when), accepted, "{when}");
        }
        assert!(
            !keys.accepts(&cookie, addr("192.0.2.2"), now),
            "another address"
        );
        assert!(
            keys.accepts(&given(&CookieKeys::new([2; 16], vec![])), source, now),
            "a key of before"
        );
        assert!(
            !keys.accepts(&given(&CookieKeys::new([3; 16], vec![])), source, now),
            "a strange key"
        );
        let mut other = cookie;
        other.client[0] ^= 1;
        assert!(!keys.accepts(&other, source, now), "another client's part");
    }

    #[test]
    fn keys_are_read_from_lines() {
        let two = format!("{}\n\n  {}\n", "ab".repeat(16), "01".repeat(16));
        let keys = CookieKeys::parse(&two).expect("two keys");
        assert_eq!((keys.current, keys.others), ([0xab; 16], vec![[1; 16]]));
        for bad in [
            "",
            "ab",
            &"xy".repeat(16),
            &format!("{}\nshort", "ab".repeat(16)),
        ] {
            assert!(CookieKeys::parse(bad).is_none(), "{bad:?}");
        }
    }
}
