//! Decides the answer to a question: the server's own identification, or the policy's verdict about names, signed if that is wanted.

use fdn_core::Revision;
use hickory_proto::op::{LowerQuery, ResponseCode};
use hickory_proto::rr::{DNSClass, RecordType};
use hickory_server::server::Request;

use super::Responder;
use super::asked::Asked;
use super::limit::Class;
use super::sections::Sections;
use super::signed::Unfinished;
use crate::metrics::Transport;
use crate::policy::steer::{Pick, Steered};
use crate::policy::{Body, Question};
use crate::query_log::Told;

/// The answer to a question, not yet encoded.
pub(super) struct Decided {
    pub(super) sections: Sections,
    /// The class of the answer for the rate limits.
    pub(super) class: Class,
    /// The scope: the number of leading bits of the client that the answer depends on.
    pub(super) scope: u8,
    /// The revision of the bindings that it is based on; `None` if the name is not an app's.
    pub(super) revision: Option<Revision>,
}

impl Decided {
    const fn the_same_for_all(sections: Sections, class: Class) -> Self {
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
        asked: &Asked<'_>,
        verified: bool,
    ) -> Decided {
        let original = query.original().name();
        if query.query_class() == DNSClass::CH {
            let told = self.guard.identity.chaos(original, query.query_type());
            return match told {
                Some(record) => {
                    let sections = Sections {
                        authoritative: true,
                        answers: vec![record],
                        ..Sections::default()
                    };
                    Decided::the_same_for_all(sections, Class::Name)
                }
                None => {
                    let refused = Sections::bare(ResponseCode::Refused);
                    Decided::the_same_for_all(refused, Class::Error)
                }
            };
        }
        // RFC 1995, section 2: an IXFR answer that does not fit into a datagram is a single SOA record, and the client retries over TCP.
        let by_datagram = asked.transport == Transport::Udp;
        if asked.signed && by_datagram && query.query_type() == RecordType::IXFR {
            return Decided::the_same_for_all(self.newest(query), Class::Name);
        }
        let client = asked.client();
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
        if let Some(steered) = &verdict.steered {
            self.demand.record(&steered.table.app, client.to_demand());
            count(steered, &serving.answers);
            if let Some(told) = &asked.told {
                let subnet = asked.subnet().and_then(|subnet| subnet.client);
                let what = (subnet.is_some(), asked.logged);
                told.get_or_init(|| Told::of(steered, client, &serving.fleet, what));
            }
        }
        let class = match verdict.body {
            Body::NxDomain | Body::Wildcard(..) => Class::Zone,
            Body::NoData if names.is_wild(query.name()) => Class::Zone,
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
                let unfinished = Unfinished {
                    signer,
                    query,
                    names: &names,
                    fleet: &serving.fleet,
                    class,
                    shown: verified,
                };
                unfinished.finish(sections, asked)
            }
        };
        Decided {
            sections,
            class,
            scope: verdict.scope,
            revision: verdict.revision,
        }
    }
}

fn count(steered: &Steered<'_>, answers: &[prometheus::IntCounter]) {
    steered.table.count();
    if let Pick::Live(index) = &steered.pick
        && let Some(counter) = answers.get(*index)
    {
        counter.inc();
    }
}
