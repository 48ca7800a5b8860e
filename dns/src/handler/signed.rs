//! What a signed zone adds to an answer: the zone's key records for every client; signatures and proofs for clients that ask for them
//! with the DO bit (RFC 3225; RFC 4035, section 3.1). Without that bit, everything else is byte for byte as without DNSSEC.
//!
//! Additional records (addresses of name servers) are sent without signatures, as RFC 4035, section 3.1.1 allows if there is no room.

use hickory_proto::op::{LowerQuery, ResponseCode};
use hickory_proto::rr::{LowerName, Name, Record, RecordType};

use super::RequestContext;
use super::limit::Class;
use super::sections::Sections;
use crate::dnssec::denial::{NXNAME, nsec};
use crate::dnssec::{Signer, SigningContext, SigningError, is_key_type};
use crate::policy::fleet::Fleet;
use crate::policy::types_at;
use crate::policy::zone::Names;

/// An answer that may have to be signed, and the state that it was derived from.
pub(super) struct UnsignedAnswer<'a> {
    pub(super) signer: &'a Signer,
    pub(super) query: &'a LowerQuery,
    pub(super) names: &'a Names,
    pub(super) fleet: &'a Fleet,
    pub(super) class: Class,
    /// Whether the client's address is verified (not forged).
    pub(super) verified: bool,
}

impl UnsignedAnswer<'_> {
    /// Returns the answer with what a signed zone adds.
    pub(super) fn finish(&self, sections: Sections, context: &RequestContext<'_>) -> Sections {
        let exists = sections.code == ResponseCode::NoError;
        if !exists && sections.code != ResponseCode::NXDomain {
            return sections;
        }
        let edns = context.scan.edns.as_ref();
        let wanted = edns.is_some_and(|edns| edns.dnssec_ok);
        let signing = SigningContext {
            now: context.now,
            synthetic: self.class == Class::Zone,
            verified: self.verified || context.transport.is_stream(),
        };
        let sections = self.with_keys(sections);
        let explicit = matches!(self.kind(), RecordType::NSEC | RecordType::RRSIG);
        let signed = match (wanted, explicit && exists) {
            (false, false) => return sections,
            (false, true) => self.proof_itself(signing, false),
            (true, _) if explicit => self.proof_itself(signing, true),
            (true, _) => self.signed(sections, signing),
        };
        match signed {
            Ok(mut sections) => {
                // RFC 9824, section 5: NXDOMAIN is restored for clients that signal support of compact denial.
                if !exists && edns.is_some_and(|edns| edns.compact_ok) {
                    sections.code = ResponseCode::NXDomain;
                }
                sections
            }
            Err(SigningError::RateLimited) => Sections {
                authoritative: true,
                cut: true,
                ..Sections::default()
            },
            Err(SigningError::Failed) => Sections::bare(ResponseCode::ServFail),
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

    /// Answers with the DNSKEY, CDS and CDNSKEY records, which the apex has for every client.
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

    /// The types that exist at the name, or `None` if it does not exist.
    fn types(&self) -> Option<Vec<RecordType>> {
        let mut types = types_at(self.name(), self.names, self.fleet)?;
        if self.is_apex() {
            types.extend([RecordType::DNSKEY, RecordType::CDS, RecordType::CDNSKEY]);
        }
        // The queried type is not listed if it has no records for this client, even if other clients would get some.
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
            // RFC 9077, section 3: the same TTL as the denial.
            ttl,
        )
    }

    fn signed(
        &self,
        mut sections: Sections,
        signing: SigningContext,
    ) -> Result<Sections, SigningError> {
        if sections.answers.is_empty() {
            // The SOA record is the same in all denials; its TTL is reduced there (RFC 2308, section 3).
            let soa = SigningContext {
                synthetic: false,
                ..signing
            };
            let ttl = self.names.apex_ttl();
            let signatures = self.signer.sign(&sections.authority, ttl, soa)?;
            sections.authority.extend(signatures);
            let proof = vec![self.nsec()];
            sections
                .authority
                .extend(self.with_signatures(proof, signing)?);
            // RFC 9824, section 3.1: the name is answered as if it existed.
            sections.code = ResponseCode::NoError;
        } else {
            sections.answers = self.with_signatures(sections.answers, signing)?;
        }
        Ok(sections)
    }

    /// The answer to a question for NSEC or RRSIG records themselves.
    fn proof_itself(
        &self,
        signing: SigningContext,
        signed: bool,
    ) -> Result<Sections, SigningError> {
        let proof = vec![self.nsec()];
        let both = self.with_signatures(proof, signing)?;
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

    /// The record set, followed by its signatures.
    fn with_signatures(
        &self,
        mut records: Vec<Record>,
        signing: SigningContext,
    ) -> Result<Vec<Record>, SigningError> {
        let ttl = records.first().map_or(0, |record| record.ttl);
        let signatures = self.signer.sign(&records, ttl, signing)?;
        records.extend(signatures);
        Ok(records)
    }
}

/// Whether the question is for NXNAME, which is not a type of records: an error (RFC 9824, section 3.5).
pub(super) const fn is_nxname(kind: RecordType) -> bool {
    matches!((kind, NXNAME), (RecordType::Unknown(asked), RecordType::Unknown(known)) if asked == known)
}
