//! What an answer has more when the zone is signed: the zone's own key records for everybody, signatures and proofs for who asks for them
//! with the DO bit (RFC 3225; RFC 4035, section 3.1). Without that bit, all else is byte for byte as without DNSSEC.
//!
//! Records that only help (addresses of name servers) are sent without signatures, as RFC 4035, section 3.1.1 allows where room is short.

use hickory_proto::op::{LowerQuery, ResponseCode};
use hickory_proto::rr::{LowerName, Name, Record, RecordType};

use super::Asked;
use super::limit::Class;
use super::sections::Sections;
use crate::dnssec::denial::{NXNAME, nsec};
use crate::dnssec::{Asking, Signer, Unsigned, is_key_type};
use crate::policy::fleet::Fleet;
use crate::policy::types_at;
use crate::policy::zone::Names;

/// An answer that is to be signed, and the state it was made of.
pub(super) struct Unfinished<'a> {
    pub(super) signer: &'a Signer,
    pub(super) query: &'a LowerQuery,
    pub(super) names: &'a Names,
    pub(super) fleet: &'a Fleet,
    pub(super) class: Class,
    /// Whether the asker's address is known to be its own.
    pub(super) shown: bool,
}

impl Unfinished<'_> {
    /// The answer with what a signed zone has more.
    pub(super) fn finish(&self, sections: Sections, asked: &Asked<'_>) -> Sections {
        let exists = sections.code == ResponseCode::NoError;
        if !exists && sections.code != ResponseCode::NXDomain {
            return sections;
        }
        let edns = asked.scan.edns.as_ref();
        let wanted = edns.is_some_and(|edns| edns.dnssec_ok);
        let asking = Asking {
            now: asked.now,
            made_up: self.class == Class::Zone,
            shown: self.shown || asked.transport.is_stream(),
        };
        let sections = self.with_keys(sections);
        let explicit = matches!(self.kind(), RecordType::NSEC | RecordType::RRSIG);
        let signed = match (wanted, explicit && exists) {
            (false, false) => return sections,
            (false, true) => self.proof_itself(asking, false),
            (true, _) if explicit => self.proof_itself(asking, true),
            (true, _) => self.signed(sections, asking),
        };
        match signed {
            Ok(mut sections) => {
                // RFC 9824, section 5: NXDOMAIN comes back for those who know what it means here.
                if !exists && edns.is_some_and(|edns| edns.compact_ok) {
                    sections.code = ResponseCode::NXDomain;
                }
                sections
            }
            Err(Unsigned::Busy) => Sections {
                authoritative: true,
                cut: true,
                ..Sections::default()
            },
            Err(Unsigned::Failed) => Sections::bare(ResponseCode::ServFail),
        }
    }

    fn kind(&self) -> RecordType {
        self.query.query_type()
    }

    fn owner(&self) -> &Name {
        self.query.original().name()
    }

    fn name(&self) -> &LowerName {
        self.query.name()
    }

    fn is_apex(&self) -> bool {
        self.name() == self.signer.apex()
    }

    /// DNSKEY, CDS and CDNSKEY records, which the apex has whoever asks.
    fn with_keys(&self, sections: Sections) -> Sections {
        if !(self.is_apex() && is_key_type(self.kind())) {
            return sections;
        }
        match self.signer.ring().records(self.kind(), self.owner()) {
            Some(answers) => Sections {
                authoritative: true,
                answers,
                ..Sections::default()
            },
            None => sections,
        }
    }

    /// The types at the name.
    fn types(&self) -> Option<Vec<RecordType>> {
        let mut types = types_at(self.name(), self.names, self.fleet)?;
        if self.is_apex() {
            types.extend([RecordType::DNSKEY, RecordType::CDS, RecordType::CDNSKEY]);
        }
        // What was asked for and is not there is not listed, whatever others would be told.
        types.retain(|kind| *kind != self.kind());
        Some(types)
    }

    fn nsec(&self) -> Record {
        let ttl = self.names.negative().ttl;
        let types = self.types();
        nsec(
            self.owner(),
            self.name(),
            self.signer.apex(),
            types.as_deref(),
            // RFC 9077, section 3: as long as the denial itself.
            ttl,
        )
    }

    fn signed(&self, mut sections: Sections, asking: Asking) -> Result<Sections, Unsigned> {
        if sections.answers.is_empty() {
            // The SOA record is the same for all denials; its time to live is cut for them (RFC 2308, section 3).
            let soa = Asking {
                made_up: false,
                ..asking
            };
            let ttl = self.names.apex_ttl();
            let signatures = self.signer.sign(&sections.authority, ttl, soa)?;
            sections.authority.extend(signatures);
            let proof = vec![self.nsec()];
            sections
                .authority
                .extend(self.with_signatures(proof, asking)?);
            // RFC 9824, section 3.1: the name is answered as one that exists.
            sections.code = ResponseCode::NoError;
        } else {
            sections.answers = self.with_signatures(sections.answers, asking)?;
        }
        Ok(sections)
    }

    /// The answer to who asks for a proof or for signatures as such.
    fn proof_itself(&self, asking: Asking, signed: bool) -> Result<Sections, Unsigned> {
        let proof = vec![self.nsec()];
        let both = self.with_signatures(proof, asking)?;
        let answers = match (self.kind(), signed) {
            (RecordType::RRSIG, _) => both[1..].to_vec(),
            (_, true) => both,
            (_, false) => both[..1].to_vec(),
        };
        Ok(Sections {
            authoritative: true,
            answers,
            ..Sections::default()
        })
    }

    /// A set of records with its signatures behind it.
    fn with_signatures(
        &self,
        mut records: Vec<Record>,
        asking: Asking,
    ) -> Result<Vec<Record>, Unsigned> {
        let ttl = records.first().map_or(0, |record| record.ttl);
        let signatures = self.signer.sign(&records, ttl, asking)?;
        records.extend(signatures);
        Ok(records)
    }
}

/// The answer to a question for NXNAME, which is no type of records: an error (RFC 9824, section 3.5).
pub(super) const fn is_nxname(kind: RecordType) -> bool {
    matches!((kind, NXNAME), (RecordType::Unknown(asked), RecordType::Unknown(known)) if asked == known)
}
