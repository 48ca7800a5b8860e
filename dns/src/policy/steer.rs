//! Chooses the cluster that an app's client is sent to, and determines the scope of that choice.
//!
//! In order: the cluster bound to the longest prefix of the client, if one of its gateways is alive; else the nearest cluster with a
//! live gateway; else, if nothing is alive, the configured fallback ([`WhenAllDead`]). A cluster that sheds load ([`Fleet::diverts`])
//! passes a share of its clients on to the nearest one that does not.
//!
//! Scope (RFC 7871, section 7.2.1): every input of a choice reports the run of addresses around the client with the same result, and
//! the choice is valid for the intersection of these runs: only the bindings while the bound cluster serves, bindings and latency map as
//! soon as the map decides, and the block by which clients are passed on while a cluster sheds load. The run is then extended over its
//! neighbours as long as they have the same choice, at most [`WIDENING`] of them. So the scope is never too wide, and with
//! fewer differences than that around the client it is exact: no shorter prefix has the same answer everywhere.
//!
//! A client prefix whose addresses have different choices gets the choice for the whole prefix: the unknown part of the address
//! cannot select between them. The scope is then longer than the prefix, which tells the resolver that more bits of the address would
//! have been useful.
//!
//! IPv4 addresses are also part of the IPv6 space, as IPv4-mapped ones, and are steered as IPv4 there. An answer to an IPv6 client includes
//! them only if they have the same choice: [`Span::MAPPED`] is a border like any other.
//!
//! The queried family never makes an answer depend on the client: NODATA is given only if no live cluster has such an
//! address, because resolvers may use a negative answer for all clients (RFC 7871, section 7.4).

use fdn_core::{ClientPrefix, ClusterId};

use super::WhenAllDead;
use super::fleet::{Family, Fleet};
use super::nearest_clusters::{Locate, Nearest};
use super::ranges::{Span, bits, unmapped};
use super::zone::AppTable;

/// The most neighbouring runs of addresses that are examined to widen a scope.
pub const WIDENING: usize = 32;
/// The prefix length of the IPv4 blocks that are shed as a whole, as they are counted ([`ClientPrefix::to_demand`]).
const SHED_V4: u8 = 24;
/// The prefix length of the IPv6 blocks.
const SHED_V6: u8 = 56;

/// The result of a choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The live gateways of the cluster at this index.
    Live(usize),
    /// All gateways of these clusters, although none passes its checks.
    Dead(Vec<usize>),
    /// No gateway has an address of the family.
    NoAddress,
    /// Nothing is alive, and the configuration is to refuse then.
    Refused,
}

/// The reason for a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A plan bound the client's prefix to this cluster.
    Bound,
    /// No prefix of the client is bound: this cluster is the nearest.
    Nearest,
    /// The bound cluster has no live gateway: this cluster is the nearest that has one.
    BoundIsDead,
    /// The cluster that would have been chosen is overloaded: this one is the nearest that is not.
    Shed,
    /// Nothing passes its checks.
    AllDead,
    /// No gateway has an address of the queried family.
    NoAddress,
}

/// A choice and what it is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SteeringDecision<'a> {
    /// The app's table.
    pub table: &'a AppTable,
    /// The result.
    pub pick: Pick,
    /// The reason.
    pub reason: Reason,
    /// The cluster bound to the client, alive or not.
    pub bound: Option<&'a ClusterId>,
    /// The scope: the number of leading bits of the client that the choice depends on.
    pub scope: u8,
}

/// The choice for one address, or for a whole prefix.
struct Choice<'a> {
    pick: Pick,
    reason: Reason,
    bound: Option<&'a ClusterId>,
    /// The addresses for which every input has the same result.
    span: Span,
    /// Whether an external source was consulted, which is too slow to be asked about the neighbours as well.
    looked_up: bool,
}

/// Makes the choice for one client.
#[must_use]
pub fn choose<'a>(
    table: &'a AppTable,
    family: Family,
    client: ClientPrefix,
    fleet: &'a Fleet,
    locate: Option<&dyn Locate>,
    when_all_dead: WhenAllDead,
) -> SteeringDecision<'a> {
    let (addr, is_v4) = bits(client.addr());
    let chooser = Chooser {
        table,
        family,
        fleet,
        locate,
        when_all_dead,
        is_v4,
    };
    if let Some((pick, reason)) = chooser.for_everybody() {
        return SteeringDecision {
            table,
            pick,
            reason,
            bound: None,
            scope: 0,
        };
    }
    let mut choice = chooser.at(addr);
    let span = chooser.widened(addr, &choice);
    if !span.covers(Span::block(addr, client.len())) {
        choice = chooser.around(client);
    }
    SteeringDecision {
        table,
        pick: choice.pick,
        reason: choice.reason,
        bound: choice.bound,
        scope: span.scope(addr),
    }
}

struct Chooser<'a, 'b> {
    table: &'a AppTable,
    family: Family,
    fleet: &'a Fleet,
    locate: Option<&'b dyn Locate>,
    when_all_dead: WhenAllDead,
    is_v4: bool,
}

impl<'a> Chooser<'a, '_> {
    /// The choice, if it does not depend on the client.
    fn for_everybody(&self) -> Option<(Pick, Reason)> {
        if self.fleet.has_live(self.family) {
            return None;
        }
        let lacks = match self.table.holders.named() {
            None => self.fleet.has_any_live() || !self.fleet.has_address(self.family),
            Some(_) => self.lacks_family(),
        };
        if lacks {
            return Some((Pick::NoAddress, Reason::NoAddress));
        }
        (self.when_all_dead == WhenAllDead::Refuse).then_some((Pick::Refused, Reason::AllDead))
    }

    /// The choice for one address of the client's family.
    fn at(&self, addr: u128) -> Choice<'a> {
        if self.is_v4 {
            return self.of_family(addr, true);
        }
        let (addr, is_v4) = unmapped(addr);
        let mut choice = self.of_family(addr, is_v4);
        choice.span = if is_v4 {
            choice.span.mapped()
        } else {
            choice.span.and(Span::beside_mapped(addr))
        };
        choice
    }

    /// The choice for one address, by the data of this family.
    fn of_family(&self, addr: u128, is_v4: bool) -> Choice<'a> {
        let (bound, span) = self.table.bindings.at(addr, is_v4);
        let near = || self.fleet.network().nearest.at(addr, is_v4, self.locate);
        let mut choice = self.pick(bound, (addr, is_v4), near);
        choice.span = choice.span.and(span);
        choice
    }

    /// The choice for a prefix whose addresses have different choices.
    fn around(&self, client: ClientPrefix) -> Choice<'a> {
        let bound = self
            .table
            .bindings
            .covering(client)
            .map(|(cluster, _)| cluster);
        let near = || self.fleet.network().nearest.around(client, self.locate);
        self.pick(bound, bits(client.addr()), near)
    }

    /// The choice, given the bound cluster and a function that returns the nearest ones.
    fn pick<'n>(
        &self,
        bound: Option<&'a ClusterId>,
        (addr, is_v4): (u128, bool),
        near: impl FnOnce() -> Nearest<'n>,
    ) -> Choice<'a> {
        let choice = |pick, reason, span, looked_up| Choice {
            pick,
            reason,
            bound,
            span,
            looked_up,
        };
        let block = Span::block(addr, if is_v4 { SHED_V4 } else { SHED_V6 });
        let home = bound.and_then(|id| self.fleet.index_of(id));
        let holds = |index: &usize| self.table.holders.has(self.fleet.id(*index));
        let is_live = |index: &usize| !self.fleet.cluster(*index).live(self.family).is_empty();
        let serves = |index: &usize| is_live(index) && holds(index);
        let alive = home.filter(serves);
        if let Some(index) = alive {
            if !self.fleet.is_shedding(index) {
                return choice(Pick::Live(index), Reason::Bound, Span::ALL, false);
            }
            if !self.fleet.diverts(index, block.first) {
                return choice(Pick::Live(index), Reason::Bound, block, false);
            }
        }
        let near = near();
        let mut span = near.span;
        let mut order = near.order.iter().copied().filter(serves);
        if let Some(first) = alive.or_else(|| order.next()) {
            let reason = match (bound, alive) {
                (_, Some(_)) => Reason::Bound,
                (Some(_), None) => Reason::BoundIsDead,
                (None, None) => Reason::Nearest,
            };
            if !self.fleet.is_shedding(first) {
                return choice(Pick::Live(first), reason, span, near.looked_up);
            }
            span = span.and(block);
            // Clusters that shed load themselves do not help each other; if all do, clients stay.
            let helper = order.find(|index| !self.fleet.is_shedding(*index));
            let (pick, reason) = match helper {
                Some(helper) if self.fleet.diverts(first, block.first) => (helper, Reason::Shed),
                _ => (first, reason),
            };
            return choice(Pick::Live(pick), reason, span, near.looked_up);
        }
        if self.lacks_family() {
            return choice(Pick::NoAddress, Reason::NoAddress, Span::ALL, false);
        }
        // Nothing is alive: the bound cluster comes first, then the others from near to far.
        if self.when_all_dead == WhenAllDead::Refuse {
            return choice(Pick::Refused, Reason::AllDead, span, near.looked_up);
        }
        let has_address = |index: &usize| !self.fleet.cluster(*index).all(self.family).is_empty();
        let with_address = |index: &usize| has_address(index) && holds(index);
        let rest = near.order.iter().copied().filter(|i| Some(*i) != home);
        let mut order: Vec<usize> = home.into_iter().chain(rest).filter(with_address).collect();
        if order.is_empty() {
            // None of the clusters that hold it is known here yet.
            return choice(Pick::Refused, Reason::AllDead, span, near.looked_up);
        }
        if self.when_all_dead == WhenAllDead::ServeChosen {
            order.truncate(1);
        }
        choice(Pick::Dead(order), Reason::AllDead, span, near.looked_up)
    }

    /// Whether the named clusters that hold the app have no address of this family, and at least one is known: then nothing is dead, there is just
    /// no address. It does not depend on the client.
    fn lacks_family(&self) -> bool {
        let named = self.table.holders.named().into_iter().flatten();
        let mut known = named.filter_map(|id| self.fleet.index_of(id)).peekable();
        let lacks = |index| self.fleet.cluster(index).all(self.family).is_empty();
        known.peek().is_some() && known.all(lacks)
    }

    /// The choice's run of addresses, extended by neighbouring runs with the same choice.
    ///
    /// Only the side that determines the scope is extended: the other one has no effect.
    fn widened(&self, addr: u128, choice: &Choice<'_>) -> Span {
        let mut span = choice.span;
        if choice.looked_up {
            return span;
        }
        for _ in 0..WIDENING {
            let (before, after) = span.needs(addr);
            let beyond = if before > after {
                span.first.checked_sub(1)
            } else {
                span.last.checked_add(1)
            };
            let Some(beyond) = beyond else { break };
            let next = self.at(beyond);
            if next.looked_up || next.pick != choice.pick {
                break;
            }
            span = Span {
                first: span.first.min(next.span.first),
                last: span.last.max(next.span.last),
            };
        }
        span
    }
}
