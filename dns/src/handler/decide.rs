//! Decides the answer to a question: the server's own identification, or the policy's verdict about names, signed if that is wanted.

use fdn_core::Revision;
use hickory_proto::op::{LowerQuery, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use hickory_server::server::Request;

use super::Responder;
use super::context::RequestContext;
use super::limit::Class;
use super::sections::Sections;
use super::signed::UnsignedAnswer;
use crate::metrics::Transport;
use crate::policy::steer::{Pick, SteeringDecision};
use crate::policy::{Body, Question};
use crate::query_log::SteeringNote;

/// The answer to a question, not yet encoded.
pub(super) struct ResolvedAnswer {
    pub(super) sections: Sections,
    /// The class of the answer for the rate limits.
    pub(super) class: Class,
    /// The scope: the number of leading bits of the client that the answer depends on.
    pub(super) scope: u8,
    /// The revision of the bindings that it is based on; `None` if the name is not an app's.
    pub(super) revision: Option<Revision>,
}

impl ResolvedAnswer {
    const fn client_independent(sections: Sections, class: Class) -> Self {
        Self {
            sections,
            class,
            scope: 0,
            revision: None,
        }
    }
}

impl Responder {
    /// Decides the answer to a question.
    pub(super) fn decide(
        &self,
        request: &Request,
        query: &LowerQuery,
        context: &RequestContext<'_>,
        verified: bool,
    ) -> ResolvedAnswer {
        let original = query.original().name();
        if query.query_class() == DNSClass::CH {
            let record = self.guard.identity.chaos(original, query.query_type());
            return match record {
                Some(record) => {
                    let sections = Sections {
                        authoritative: true,
                        answers: vec![record],
                        ..Sections::default()
                    };
                    ResolvedAnswer::client_independent(sections, Class::Name)
                }
                None => {
                    let refused = Sections::bare(ResponseCode::Refused);
                    ResolvedAnswer::client_independent(refused, Class::Error)
                }
            };
        }
        // RFC 1995, section 2: an IXFR answer that does not fit into a datagram is a single SOA record, and the client retries over TCP.
        let by_datagram = context.transport == Transport::Udp;
        if context.signed && by_datagram && query.query_type() == RecordType::IXFR {
            return ResolvedAnswer::client_independent(self.newest(query), Class::Name);
        }
        let client = context.client();
        let (names, serving) = (self.published.names(), self.published.serving());
        let question = Question {
            name: query.name(),
            kind: query.query_type(),
            class: query.query_class(),
        };
        let verdict = self.policy.answer(
            question,
            client,
            request.metadata.id,
            &names,
            &serving.fleet,
            self.published.locate(),
        );
        if let Some(decision) = &verdict.steering {
            self.demand.record(&decision.table.app, client.to_demand());
            count(decision, &serving.answers);
            if let Some(note) = &context.note {
                let subnet = context.subnet().and_then(|subnet| subnet.client);
                let what = (subnet.is_some(), context.logged);
                note.get_or_init(|| SteeringNote::of(decision, client, &serving.fleet, what));
            }
        }
        let class = match verdict.body {
            Body::NxDomain | Body::Wildcard(..) => Class::Zone,
            // Answers to made-up names under a wildcard, like those with its records.
            Body::NoData | Body::Any(_) if names.is_wild(query.name()) => Class::Zone,
            Body::Refused | Body::Failure => Class::Error,
            Body::Records(..)
            | Body::Addresses { .. }
            | Body::Service { .. }
            | Body::Any(_)
            | Body::NoData => Class::Name,
        };
        let sections = Sections::of(&verdict, original, &names);
        let sections = match &self.signer {
            None => sections,
            Some(signer) => {
                let unsigned = UnsignedAnswer {
                    signer,
                    query,
                    names: &names,
                    fleet: &serving.fleet,
                    class,
                    verified,
                };
                unsigned.finish(sections, context)
            }
        };
        ResolvedAnswer {
            sections,
            class,
            scope: verdict.scope,
            revision: verdict.revision,
        }
    }
}

fn count(decision: &SteeringDecision<'_>, answers: &[prometheus::IntCounter]) {
    decision.table.count();
    if let Pick::Live(index) = &decision.pick
        && let Some(counter) = answers.get(*index)
    {
        counter.inc();
    }
}
