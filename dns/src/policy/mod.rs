//! Decides the answer to a question: a pure function of question, client and current state.
//!
//! [`Policy::answer`] takes the names ([`zone::Names`]), the clusters with their health ([`fleet::Fleet`]) and the client, and
//! returns a [`Verdict`]. Nothing here does I/O, waits, locks, logs or counts; the handler turns a verdict into a message.
//!
//! Protocol rules decided here: REFUSED outside the zone; NXDOMAIN only for names that neither exist nor have names below them (RFC
//! 8020), NODATA otherwise; wildcards only below their closest encloser (RFC 4592); classes other than IN refused; QTYPE=ANY answered with one
//! synthesized HINFO record (RFC 8482, section 4.2); zone transfers refused (RFC 5936, section 3).

pub mod bindings;
pub mod fleet;
pub mod nearest_clusters;
pub mod ranges;
pub mod records;
pub mod steer;
mod wire_index;
pub mod zone;

use std::net::IpAddr;

use fdn_core::{ClientPrefix, Revision};
use hickory_proto::rr::{DNSClass, LowerName, RData, Record, RecordType};
use serde::{Deserialize, Serialize};

use self::fleet::{Family, Fleet};
use self::nearest_clusters::Locate;
use self::steer::{Pick, SteeringDecision};
use self::zone::{AppTable, Entry, Names};

/// The answer while no cluster passes its health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenAllDead {
    /// Every gateway of every cluster, nearest cluster first: most likely the checks are wrong, not all gateways.
    #[default]
    ServeAll,
    /// All gateways of the cluster that would be chosen if it were alive.
    ServeChosen,
    /// SERVFAIL, so that resolvers may use stale answers (RFC 8767).
    Refuse,
}

/// A question.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The name in lower case.
    pub name: &'a LowerName,
    /// The type.
    pub kind: RecordType,
    /// The class.
    pub class: DNSClass,
}

/// The decision about an answer.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    /// The content of the answer.
    pub body: Body<'a>,
    /// The scope: the number of leading bits of the client that the answer depends on (RFC 7871, section 7.2.1). 0: the same for all clients.
    pub scope: u8,
    /// How the cluster was chosen, if one was.
    pub steering: Option<SteeringDecision<'a>>,
    /// The revision of the app's bindings, if the name is an app's.
    pub revision: Option<Revision>,
}

/// The content of an answer.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// Records of the zone, and additional records.
    Records(Vec<&'a Record>, Vec<&'a Record>),
    /// The same, expanded from a wildcard (RFC 4592).
    Wildcard(Vec<&'a Record>, Vec<&'a Record>),
    /// The service record of an app (RFC 9460).
    Service {
        /// The TTL in seconds.
        ttl: u32,
        /// The record's data.
        data: &'a RData,
    },
    /// Addresses of gateways for an app.
    Addresses {
        /// The TTL in seconds.
        ttl: u32,
        /// The addresses, in the order of the answer.
        addresses: Vec<IpAddr>,
    },
    /// The single record that answers QTYPE=ANY, with this TTL in seconds.
    Any(u32),
    /// The name exists but has no records of this type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// The question is not for this zone, or is of a kind that is not answered.
    Refused,
    /// The server cannot answer now.
    Failure,
}

impl<'a> Verdict<'a> {
    const fn plain(body: Body<'a>) -> Self {
        Self {
            body,
            scope: 0,
            steering: None,
            revision: None,
        }
    }
}

/// The configured choices.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// The answer while no cluster passes its health checks.
    pub when_all_dead: WhenAllDead,
    /// The most addresses in an answer.
    pub max_addresses: usize,
}

impl Policy {
    /// Decides the answer to `question` from `client`. `turn` is any number that differs between queries: it decides which gateway of a cluster
    /// comes first, in proportion to the weights ([`fleet::Addresses::first`]).
    #[must_use]
    pub fn answer<'a>(
        &self,
        question: Question<'_>,
        client: ClientPrefix,
        turn: u16,
        names: &'a Names,
        fleet: &'a Fleet,
        locate: Option<&dyn Locate>,
    ) -> Verdict<'a> {
        if question.class != DNSClass::IN
            || matches!(question.kind, RecordType::AXFR | RecordType::IXFR)
        {
            return Verdict::plain(Body::Refused);
        }
        match names.find(question.name) {
            Entry::Outside => Verdict::plain(Body::Refused),
            Entry::Nothing => Verdict::plain(Body::NxDomain),
            Entry::Unknown => Verdict::plain(Body::Failure),
            Entry::Empty => Verdict::plain(Body::NoData),
            Entry::Fixed(set) => Verdict::plain(match question.kind {
                RecordType::ANY => Body::Any(set.ttl()),
                kind => set.body(kind),
            }),
            // RFC 4592, section 2.2.1: a wildcard without records of the type results in NODATA too.
            Entry::Wildcard(set) => Verdict::plain(match question.kind {
                RecordType::ANY => Body::Any(set.ttl()),
                kind => match set.body(kind) {
                    Body::Records(records, glue) => Body::Wildcard(records, glue),
                    other => other,
                },
            }),
            Entry::App(table) => Verdict {
                revision: Some(table.revision),
                ..match question.kind {
                    RecordType::A => self.app(table, Family::V4, client, turn, fleet, locate),
                    RecordType::AAAA => self.app(table, Family::V6, client, turn, fleet, locate),
                    RecordType::ANY => Verdict::plain(Body::Any(table.ttl)),
                    kind => Verdict::plain(match names.app_service(kind) {
                        Some(data) => Body::Service {
                            ttl: table.ttl,
                            data,
                        },
                        None => Body::NoData,
                    }),
                }
            },
        }
    }

    fn app<'a>(
        &self,
        table: &'a AppTable,
        family: Family,
        client: ClientPrefix,
        turn: u16,
        fleet: &'a Fleet,
        locate: Option<&dyn Locate>,
    ) -> Verdict<'a> {
        let decision = steer::choose(table, family, client, fleet, locate, self.when_all_dead);
        let body = match &decision.pick {
            Pick::Live(cluster) => {
                let cluster = fleet.cluster(*cluster);
                let first = cluster.first(family, turn);
                Body::Addresses {
                    ttl: table.ttl,
                    addresses: rotated(cluster.live(family), first, self.max_addresses),
                }
            }
            Pick::Dead(clusters) => {
                let all = clusters
                    .iter()
                    .flat_map(|index| fleet.cluster(*index).all(family));
                Body::Addresses {
                    ttl: table.ttl,
                    addresses: all.copied().take(self.max_addresses).collect(),
                }
            }
            Pick::NoAddress => Body::NoData,
            Pick::Refused => Body::Failure,
        };
        Verdict {
            scope: decision.scope,
            steering: Some(decision),
            ..Verdict::plain(body)
        }
    }
}

/// The types of the records that a name can be answered with, or `None` if the name does not exist. For an app the result does not depend on
/// the client: a proof of which types exist is the same for all clients.
#[must_use]
pub fn types_at(name: &LowerName, names: &Names, fleet: &Fleet) -> Option<Vec<RecordType>> {
    match names.find(name) {
        Entry::Outside | Entry::Nothing | Entry::Unknown => None,
        Entry::Empty => Some(Vec::new()),
        Entry::Fixed(set) | Entry::Wildcard(set) => Some(set.types()),
        Entry::App(_) => {
            let families = [(Family::V4, RecordType::A), (Family::V6, RecordType::AAAA)];
            let mut types: Vec<RecordType> = families
                .into_iter()
                .filter(|(family, _)| fleet.has_address(*family))
                .map(|(_, kind)| kind)
                .collect();
            if names.app_service(RecordType::HTTPS).is_some() {
                types.push(RecordType::HTTPS);
            }
            Some(types)
        }
    }
}

/// At most `limit` addresses, rotated to start at index `first`: clients use the first one that answers.
fn rotated(addresses: &[IpAddr], first: usize, limit: usize) -> Vec<IpAddr> {
    let (before, from) = addresses.split_at(first.min(addresses.len()));
    from.iter().chain(before).take(limit).copied().collect()
}

#[cfg(test)]
mod tests;
