//! The options of an OPT record that this server handles: client subnet, cookie, name server identifier, padding and revision. All others
//! are ignored (RFC 6891, section 6.1.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fdn_core::ClientPrefix;
use fdn_core::api::edns::REVISION;

use super::Cursor;

/// The option code of the name server identifier (RFC 5001, section 2.3).
pub const NSID: u16 = 3;
/// The option code of the client subnet (RFC 7871, section 6).
pub const CLIENT_SUBNET: u16 = 8;
/// The option code of the cookie (RFC 7873, section 4).
pub const COOKIE: u16 = 10;
/// The option code of padding (RFC 7830, section 3).
pub const PADDING: u16 = 12;
/// The address family number of IPv6 (RFC 7871, section 6).
const IPV6: u16 = 2;
/// A code in the range for local use (RFC 6891, section 9), which the decoder does not interpret.
const UNINTERPRETED: u16 = 65_001;

/// The content of a request's OPT record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edns {
    /// The largest answer that the client accepts over UDP, in bytes.
    pub payload: u16,
    /// The version; only 0 is supported.
    pub version: u8,
    /// The DO bit: whether the client wants DNSSEC records (RFC 3225); copied into the answer.
    pub dnssec_ok: bool,
    /// The CO bit: whether the client supports compact denial, and accepts NXDOMAIN with it (RFC 9824, section 5).
    pub compact_ok: bool,
    /// The client subnet option.
    pub subnet: Option<Subnet>,
    /// The cookie option.
    pub cookie: Option<Cookie>,
    /// Whether the server's identifier is requested (RFC 5001, section 2.1).
    pub nsid: bool,
    /// Whether the request has the padding option, so that an encrypted answer is padded too (RFC 7830, section 4).
    pub padded: bool,
    /// Whether the revision of the answer's state is requested ([`REVISION`]).
    pub revision: bool,
    /// The positions of the codes of options that are hidden from the decoder.
    pub(super) hidden: Vec<usize>,
}

impl Edns {
    /// Reads the options of an OPT record. `start` is their position in the packet. `None` if they are malformed.
    pub(super) fn read(&mut self, data: &[u8], start: usize) -> Option<()> {
        let mut cursor = Cursor {
            packet: data,
            at: 0,
        };
        while cursor.at < data.len() {
            let at = cursor.at;
            let code = cursor.u16()?;
            let len = usize::from(cursor.u16()?);
            let value = cursor.take(len)?;
            match code {
                CLIENT_SUBNET => {
                    // RFC 7871 has no rule for two subnets, and an answer could repeat only one of them.
                    if self.subnet.is_some() {
                        return None;
                    }
                    self.subnet = Some(Subnet::parse(value)?);
                    self.hidden.push(start + at);
                }
                // RFC 7873, section 5.2: only the first of several cookies is used.
                COOKIE if self.cookie.is_none() => self.cookie = Some(Cookie::parse(value)?),
                NSID => self.nsid = true,
                PADDING => self.padded = true,
                // Codes for local use are not assigned: with data, this is somebody else's option.
                REVISION if value.is_empty() => self.revision = true,
                _ => {}
            }
        }
        Some(())
    }

    /// Renames the options that were read here and that the decoder would treat differently, so that it ignores them.
    pub(super) fn hide(&self, packet: &mut [u8]) {
        for at in &self.hidden {
            if let Some(code) = packet.get_mut(*at..*at + 2) {
                code.copy_from_slice(&UNINTERPRETED.to_be_bytes());
            }
        }
    }
}

/// A valid client subnet option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// The client; `None` if the client's subnet must not be used (source length 0).
    pub client: Option<ClientPrefix>,
    /// The option's data as received: an answer repeats it, with the scope set.
    bytes: Vec<u8>,
}

impl Subnet {
    /// Validates and parses the option's data.
    ///
    /// The address has exactly as many bytes as the source length needs, and no bits beyond it; the scope is 0 in requests (RFC 7871,
    /// section 6). Family 0 with source length 0 is what tools send for "no subnet".
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let [f0, f1, source, scope, address @ ..] = data else {
            return None;
        };
        if *scope != 0 || address.len() != usize::from(*source).div_ceil(8) {
            return None;
        }
        let spare = (8 - source % 8) % 8;
        if address
            .last()
            .is_some_and(|last| last.trailing_zeros() < u32::from(spare))
        {
            return None;
        }
        let mut bytes = [0u8; 16];
        let width = match u16::from_be_bytes([*f0, *f1]) {
            0 => 0,
            1 => 4,
            2 => 16,
            _ => return None,
        };
        bytes[..width]
            .get_mut(..address.len())?
            .copy_from_slice(address);
        let addr = match width {
            4 => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
            _ => IpAddr::V6(Ipv6Addr::from(bytes)),
        };
        let client = (*source > 0).then(|| ClientPrefix::new(addr, *source));
        Some(Self {
            client,
            bytes: data.to_vec(),
        })
    }

    /// The option's data in an answer (RFC 7871, section 7.2.1): family, source and address as received, and the scope. With a source
    /// length of 0 the scope is 0 too.
    #[must_use]
    pub fn answer(&self, scope: u8) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let family = u16::from_be_bytes([bytes[0], bytes[1]]);
        bytes[3] = self
            .client
            .map_or(0, |client| scope_as_asked(client, family, scope));
        bytes
    }
}

/// The scope of an answer to `client` in the address family of the request (RFC 7871, section 6). A client written as an IPv4-mapped
/// IPv6 address is an IPv4 client: its scope is increased by the bits that all mapped addresses share, so that it says nothing about other
/// IPv6 addresses.
#[must_use]
pub fn scope_as_asked(client: ClientPrefix, family: u16, scope: u8) -> u8 {
    if family == IPV6 && client.addr().is_ipv4() {
        ClientPrefix::MAPPED_BITS.saturating_add(scope)
    } else {
        scope
    }
}

/// A well-formed cookie option (RFC 7873, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// The client cookie, which the answer repeats.
    pub client: [u8; 8],
    /// The server cookie, if it has the length of this server's cookies.
    pub server: Option<[u8; 16]>,
}

impl Cookie {
    /// Validates and parses the option's data: 8 bytes of client cookie, and 0 or 8 to 32 of server cookie (RFC 7873, section 5.2.2).
    #[must_use]
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (client, server) = data.split_first_chunk()?;
        match server.len() {
            0 | 8..=32 => Some(Self {
                client: *client,
                server: server.try_into().ok(),
            }),
            _ => None,
        }
    }
}
