//! What a question is answered with: a pure function of question, client and the state of this moment.
//!
//! [`Policy::answer`] takes the names ([`zone::Names`]), the clusters with their health ([`fleet::Fleet`]) and the client, and
//! returns a [`Verdict`]. Nothing here does I/O, waits, locks, logs or counts; the handler turns a verdict into a message.
//!
//! Wire rules decided here: REFUSED outside the zone; NXDOMAIN only for names that neither exist nor have names below them (RFC
//! 8020), NODATA otherwise; wildcards below their closest encloser only (RFC 4592); queries of class other than IN refused; QTYPE=ANY answered with one synthesised HINFO record (RFC
//! 8482, section 4.2); zone transfers refused (RFC 5936, section 3).

pub mod bindings;
pub mod fleet;
pub mod nearest_clusters;
pub mod ranges;
pub mod records;
pub mod steer;
mod wires;
pub mod zone;

use std::net::IpAddr;

use fdn_core::{ClientPrefix, Revision};
use hickory_proto::rr::{DNSClass, LowerName, RData, Record, RecordType};
use serde::{Deserialize, Serialize};

use self::fleet::{Family, Fleet};
use self::nearest_clusters::Locate;
use self::steer::{Pick, Steered};
use self::zone::{AppTable, Entry, Names};

/// What is answered while no cluster passes its health checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenAllDead {
    /// Every gateway of every cluster, nearest cluster first: most likely the checks are wrong, not the world.
    #[default]
    ServeAll,
    /// All gateways of the cluster that would be chosen if it were alive.
    ServeChosen,
    /// SERVFAIL, so that resolvers may go on with what they hold (RFC 8767).
    Refuse,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The name in lower case.
    pub name: &'a LowerName,
    /// The type.
    pub kind: RecordType,
    /// The class.
    pub class: DNSClass,
}

/// The answer as a decision.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    /// What to say.
    pub body: Body<'a>,
    /// How many leading bits of the client the answer depends on (RFC 7871, section 7.2.1). 0: the same for everybody.
    pub scope: u8,
    /// How the cluster was chosen, when one was.
    pub steered: Option<Steered<'a>>,
    /// The revision of what is known of the app, when the name is one's.
    pub revision: Option<Revision>,
}

/// What to say.
#[derive(Clone, Debug)]
pub enum Body<'a> {
    /// Records kept with the zone, and records that help with them.
    Records(Vec<&'a Record>, Vec<&'a Record>),
    /// The same, made of a wildcard (RFC 4592).
    Wildcard(Vec<&'a Record>, Vec<&'a Record>),
    /// How an app is reached (RFC 9460).
    Service {
        /// For how long it may be cached, in seconds.
        ttl: u32,
        /// The record's data.
        data: &'a RData,
    },
    /// Addresses of gateways.
    Addresses {
        /// For how long they may be cached, in seconds.
        ttl: u32,
        /// The addresses, in the order they are to be written.
        addresses: Vec<IpAddr>,
    },
    /// The one record that answers QTYPE=ANY, with this time to live.
    Any(u32),
    /// The name exists without records of the type.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Not ours to answer.
    Refused,
    /// Nothing can be said now.
    Failure,
}

impl<'a> Verdict<'a> {
    const fn plain(body: Body<'a>) -> Self {
        Self {
            body,
            scope: 0,
            steered: None,
            revision: None,
        }
    }
}

/// What the operator chose.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// What is answered while no cluster passes its health checks.
    pub when_all_dead: WhenAllDead,
    /// How many addresses an answer holds at most.
    pub max_addresses: usize,
}

impl Policy {
    /// Decides what `question` of `client` is answered with. `turn` is any number that differs from query to query: it decides which
    /// of a cluster's gateways stands first, in proportion to their weights ([`fleet::Addresses::first`]).
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
            // RFC 4592, section 2.2.1: a wildcard without the type is NODATA too.
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
        let steered = steer::choose(table, family, client, fleet, locate, self.when_all_dead);
        let body = match &steered.pick {
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
            scope: steered.scope,
            steered: Some(steered),
            ..Verdict::plain(body)
        }
    }
}

/// The types of the records that somebody may be answered with at a name, or `None` if it does not exist. Whom an app's addresses depend on
/// makes no difference: a proof of what is there is the same for everybody.
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

/// `limit` of the addresses, beginning at the one at `first`: clients take the first one that answers.
fn rotated(addresses: &[IpAddr], first: usize, limit: usize) -> Vec<IpAddr> {
    let (before, from) = addresses.split_at(first.min(addresses.len()));
    from.iter().chain(before).take(limit).copied().collect()
}

#[cfg(test)]
mod tests;
