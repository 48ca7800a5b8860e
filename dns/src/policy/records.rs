//! The operator's own records: text (also for certificate authorities: RFC 8555, section 8.4), CAA (RFC 8659), addresses, and how a
//! service is reached (RFC 9460).

use hickory_proto::rr::rdata::caa::CAA;
use hickory_proto::rr::rdata::svcb::{Alpn, SVCB, SvcParamKey, SvcParamValue};
use hickory_proto::rr::rdata::{HTTPS, TXT};
use hickory_proto::rr::{Name, RData};

/// Bytes of a character string (RFC 1035, section 3.3).
const STRING_MAX: usize = 255;

/// One name with its records. Its names and values were checked where they came from.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedRecords {
    /// The name; its first label may be `*`.
    pub name: Name,
    /// Time to live of all of them, in seconds: of one type it must be one (RFC 2181, section 5.2).
    pub ttl: u32,
    /// The records.
    pub data: Vec<RData>,
}

/// How a service is reached (RFC 9460).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The order in which alternatives are tried, smallest first; 0 makes it an alias for `target`.
    pub priority: u16,
    /// Where the service is; the root stands for the name that was asked for.
    pub target: Name,
    /// Protocols besides the scheme's own (RFC 7301), best first.
    pub alpn: Vec<String>,
    /// The port, unless it is the scheme's own.
    pub port: Option<u16>,
}

impl Service {
    /// As data of an HTTPS record.
    #[must_use]
    pub fn https(&self) -> RData {
        RData::HTTPS(HTTPS(self.svcb_data()))
    }

    /// As data of an SVCB record.
    #[must_use]
    pub fn svcb(&self) -> RData {
        RData::SVCB(self.svcb_data())
    }

    fn svcb_data(&self) -> SVCB {
        // RFC 9460, section 2.2: parameters stand in the order of their numbers; alpn is 1 and port 3.
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

/// One value of a text record; a long one is split into character strings, which whoever reads it puts together again.
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

/// Which certificate authority may issue (RFC 8659, section 4.1).
#[must_use]
pub fn caa(critical: bool, tag: &str, value: &str) -> RData {
    // Made by its constructor and then filled: the type cannot be written out, and the constructors know only some tags.
    let mut caa = CAA::new_issue(critical, None, Vec::new());
    tag.clone_into(&mut caa.tag);
    caa.value = value.as_bytes().to_vec();
    RData::CAA(caa)
}
