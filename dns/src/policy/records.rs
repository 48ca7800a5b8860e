//! The operator's own records: text (also for certificate authorities: RFC 8555, section 8.4), CAA (RFC 8659), addresses, and service
//! bindings (RFC 9460).

use hickory_proto::rr::rdata::caa::CAA;
use hickory_proto::rr::rdata::svcb::{Alpn, SVCB, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{HTTPS, TXT};
use hickory_proto::rr::{Name, RData};

/// The longest character string in bytes (RFC 1035, section 3.3).
const STRING_MAX: usize = 255;

/// One name with its records. The name and the values were validated at their source.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRecords {
    /// The name; its first label may be `*`.
    pub name: Name,
    /// The TTL of all of them, in seconds: records of one type must have the same (RFC 2181, section 5.2).
    pub ttl: u32,
    /// The records.
    pub data: Vec<RData>,
}

/// How a service is reached (RFC 9460).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The order in which alternatives are tried, lowest first; 0 makes it an alias for `target`.
    pub priority: u16,
    /// The host of the service; the root stands for the queried name.
    pub target: Name,
    /// Protocols besides the scheme's default (RFC 7301), preferred ones first.
    pub alpn: Vec<String>,
    /// The port, unless it is the scheme's default.
    pub port: Option<u16>,
}

impl Service {
    /// The data of an HTTPS record.
    #[must_use]
    pub fn https(&self) -> RData {
        RData::HTTPS(HTTPS(self.svcb_data()))
    }

    /// The data of an SVCB record.
    #[must_use]
    pub fn svcb(&self) -> RData {
        RData::SVCB(self.svcb_data())
    }

    fn svcb_data(&self) -> SVCB {
        // RFC 9460, section 2.2: parameters are sorted by their numbers; alpn is 1 and port 3.
        let alpn = (!self.alpn.is_empty()).then(|| {
            let value = SvcParamValue::Alpn(Alpn(self.alpn.clone()));
            (SvcParamKey::Alpn, value)
        });
        let port = self
            .port
            .map(|port| (SvcParamKey::Port, SvcParamValue::Port(port)));
        let params = alpn.into_iter().chain(port).collect();
        SVCB::new(self.priority, self.target.clone(), params)
    }
}

/// One value of a text record; a long one is split into character strings, which readers concatenate again.
#[must_use]
pub fn text(value: &str) -> RData {
    let bytes = value.as_bytes();
    let strings = if bytes.is_empty() {
        vec![bytes]
    } else {
        bytes.chunks(STRING_MAX).collect()
    };
    RData::TXT(TXT::from_bytes(strings))
}

/// A CAA record: which certificate authority may issue (RFC 8659, section 4.1).
#[must_use]
pub fn caa(critical: bool, tag: &str, value: &str) -> RData {
    // Created by a constructor and then changed: the type cannot be constructed directly, and its constructors know only some tags.
    let mut caa = CAA::new_issue(critical, None, Vec::new());
    tag.clone_into(&mut caa.tag);
    caa.value = value.as_bytes().to_vec();
    RData::CAA(caa)
}
