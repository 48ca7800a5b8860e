//! Turns a verdict into records, and records into bytes.

use hickory_proto::ProtoError;
use hickory_proto::op::{Edns, EmitAndCount, Metadata, ResponseCode, emit_message_parts};
use hickory_proto::rr::rdata::HINFO;
use hickory_proto::rr::{Name, RData, Record};
use hickory_proto::serialize::binary::BinEncoder;

use crate::policy::{Body, Verdict, zone};

/// The records of an answer, section by section.
#[derive(Default)]
pub(super) struct Sections {
    pub(super) code: ResponseCode,
    pub(super) authoritative: bool,
    /// Whether the client is sent to TCP even if the answer fits.
    pub(super) cut: bool,
    pub(super) answers: Vec<Record>,
    pub(super) authority: Vec<Record>,
    pub(super) additional: Vec<Record>,
}

impl Sections {
    /// An answer with a response code only.
    pub(super) fn bare(code: ResponseCode) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }

    /// Turns the verdict into records. Names are spelled as in the question, so that the client gets its own spelling (and names compress).
    pub(super) fn of(verdict: &Verdict<'_>, asked: &Name, names: &zone::Names) -> Self {
        let mut out = Self {
            authoritative: true,
            ..Self::default()
        };
        match &verdict.body {
            // RFC 4592, section 3.3.1: a record expanded from a wildcard is owned by the name asked for, like every other record here.
            Body::Records(records, additional) | Body::Wildcard(records, additional) => {
                out.answers = records
                    .iter()
                    .map(|record| renamed(record, asked.clone()))
                    .collect();
                out.additional = additional.iter().map(|record| (*record).clone()).collect();
            }
            Body::Addresses { ttl, addresses } => {
                let record = |addr| Record::from_rdata(asked.clone(), *ttl, zone::address(addr));
                out.answers = addresses.iter().copied().map(record).collect();
            }
            Body::Service { ttl, data } => {
                out.answers = vec![Record::from_rdata(asked.clone(), *ttl, (*data).clone())];
            }
            Body::Any(ttl) => {
                let data = RData::HINFO(HINFO::new("RFC8482".to_owned(), String::new()));
                out.answers = vec![Record::from_rdata(asked.clone(), *ttl, data)];
            }
            Body::NoData | Body::NxDomain => {
                if matches!(verdict.body, Body::NxDomain) {
                    out.code = ResponseCode::NXDomain;
                }
                let apex = asked.trim_to(names.zone_labels());
                out.authority = vec![renamed(names.negative(), apex)];
            }
            Body::Refused => return Self::bare(ResponseCode::Refused),
            Body::Failure => return Self::bare(ResponseCode::ServFail),
        }
        out
    }
}

fn renamed(record: &Record, name: Name) -> Record {
    let mut record = record.clone();
    record.name = name;
    record
}

/// The question section, byte for byte as received, and the target for compressing all later names (RFC 1035, section 4.1.4).
struct AskedQuestion<'a>(&'a [u8]);

impl EmitAndCount for AskedQuestion<'_> {
    fn emit(&mut self, encoder: &mut BinEncoder<'_>) -> Result<usize, ProtoError> {
        let start = encoder.offset();
        encoder.emit_vec(self.0)?;
        // Type and class follow the name, whose last byte is the root label; the scan has checked that the name is complete.
        let end = self.0.len().saturating_sub(5);
        let mut at = 0;
        while at < end {
            encoder.store_label_pointer(start + at, start + end);
            at += 1 + usize::from(self.0[at]);
        }
        Ok(1)
    }
}

/// Encodes an answer in at most `limit` bytes. An answer that does not fit is sent without records, with TC set and with its OPT record
/// (RFC 2181, section 9; RFC 6891, section 7), so that the client retries over TCP. `None` if it cannot be encoded at all.
pub(super) fn encode(
    request: &Metadata,
    question: &[u8],
    sections: &Sections,
    edns: Option<&Edns>,
    limit: u16,
) -> Option<Vec<u8>> {
    let mut metadata = Metadata::response_from_request(request);
    metadata.response_code = sections.code;
    metadata.authoritative = sections.authoritative;
    let write =
        |metadata: &Metadata, answers: &[Record], authority: &[Record], additional: &[Record]| {
            let mut bytes = Vec::with_capacity(256);
            let mut encoder = BinEncoder::new(&mut bytes);
            encoder.set_max_size(limit);
            let header = emit_message_parts(
                metadata,
                &mut AskedQuestion(question),
                &mut answers.iter(),
                &mut authority.iter(),
                &mut additional.iter(),
                edns,
                None,
                &mut encoder,
            );
            header
                .ok()
                .map(|header| (bytes, header.metadata.truncation))
        };
    if sections.cut {
        metadata.truncation = true;
    }
    match write(
        &metadata,
        &sections.answers,
        &sections.authority,
        &sections.additional,
    )? {
        (bytes, false) => Some(bytes),
        // Optional additional records may be left out without TC (RFC 2181, section 9: TC is for required data).
        (_, true) if !sections.additional.is_empty() => {
            let needed = Sections {
                code: sections.code,
                authoritative: sections.authoritative,
                cut: sections.cut,
                answers: sections.answers.clone(),
                authority: sections.authority.clone(),
                additional: Vec::new(),
            };
            encode(request, question, &needed, edns, limit)
        }
        (_, true) => {
            metadata.truncation = true;
            write(&metadata, &[], &[], &[]).map(|(bytes, _)| bytes)
        }
    }
}
