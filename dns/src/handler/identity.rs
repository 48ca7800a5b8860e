//! The server's identification of itself: nothing, unless it is configured.
//!
//! | question | answer | source |
//! | --- | --- | --- |
//! | EDNS option NSID | [`Identity::name`] | RFC 5001 |
//! | TXT of class CH: `id.server`, `hostname.bind` | [`Identity::name`] | RFC 4892 |
//! | TXT of class CH: `version.server`, `version.bind` | [`Identity::version`] | RFC 4892 |
//!
//! Everything else in class CH is refused, and so are these if they are not configured.

use hickory_proto::rr::rdata::TXT;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};

/// The configured texts. Each has at most 255 bytes, so that it fits into a character string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name of this server among several.
    pub name: Option<String>,
    /// The software version.
    pub version: Option<String>,
}

impl Identity {
    /// The record that answers a question of class CH, with the name as spelled in the question.
    #[must_use]
    pub fn chaos(&self, asked: &Name, kind: RecordType) -> Option<Record> {
        if kind != RecordType::TXT {
            return None;
        }
        let is = |name: [&str; 2]| {
            let labels = name.map(str::as_bytes);
            asked.iter().len() == 2
                && asked
                    .iter()
                    .zip(labels)
                    .all(|(l, r)| l.eq_ignore_ascii_case(r))
        };
        let text = if is(["id", "server"]) || is(["hostname", "bind"]) {
            self.name.as_ref()
        } else if is(["version", "server"]) || is(["version", "bind"]) {
            self.version.as_ref()
        } else {
            None
        }?;
        let data = RData::TXT(TXT::new(vec![text.clone()]));
        let mut record = Record::from_rdata(asked.clone(), 0, data);
        record.dns_class = DNSClass::CH;
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_set_is_told() {
        let identity = Identity {
            name: Some("dns-1".to_owned()),
            version: None,
        };
        let told = |name: &str, kind| identity.chaos(&Name::from_ascii(name).expect("name"), kind);
        for name in ["id.server.", "Hostname.BIND."] {
            let record = told(name, RecordType::TXT).expect("told");
            assert_eq!(record.dns_class, DNSClass::CH);
            assert!(record.data.to_string().contains("dns-1"));
        }
        for name in [
            "version.bind.",
            "version.server.",
            "authors.bind.",
            "bind.",
            ".",
            "a.id.server.",
        ] {
            assert_eq!(told(name, RecordType::TXT), None, "{name}");
        }
        assert_eq!(told("id.server.", RecordType::A), None);
    }
}
