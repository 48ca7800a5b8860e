//! Which cluster an app's client is sent to, and how far that choice holds.
//!
//! In order: the cluster bound to the longest prefix of the client, if a gateway of it is alive; else the nearest cluster with a
//! living gateway; else, with nothing alive, what the operator chose ([`WhenAllDead`]). A cluster that sheds load ([`Fleet::gives_away`])
//! hands a part of its clients to the nearest one that does not.
//!
//! Scope (RFC 7871, section 7.2.1): every source of a choice tells for which run of addresses around the client it says the same, and
//! the choice holds for what these runs have in common: bindings alone while the bound cluster serves, bindings and latency map as
//! soon as the map decides, and the block by which clients are handed over while a cluster sheds. The run is then widened over its
//! neighbours for as long as they choose the same, at most [`WIDENING`] of them. So the scope is never wider than the truth, and with
//! fewer differences than that around the client it is exactly as wide: no shorter prefix has the same answer everywhere.
//!
//! A client known only to a prefix that choices divide gets what is said of the whole prefix: what is unknown about the address
//! cannot choose between its parts. The scope is longer than the prefix then, which tells the asker that more of the address would
//! have been of use.
//!
//! IPv4 addresses are a part of the IPv6 space too, as IPv4-mapped ones, and are steered as IPv4 there. An answer to an IPv6 client holds for
//! them only if they are given the same: [`Span::MAPPED`] is a border like any other.
//!
//! The family asked for never makes an answer depend on the client: NODATA is given only when no living cluster has such an
//! address, because resolvers may use a negative answer for everybody (RFC 7871, section 7.4).

use fdn_core::{ClientPrefix, ClusterId};

use super::WhenAllDead;
use super::fleet::{Family, Fleet};
use super::nearest_clusters::{Locate, Nearest};
use super::ranges::{Span, bits, unmapped};
use super::zone::AppTable;

/// How many neighbouring runs of addresses are looked at to widen a scope.
pub const WIDENING: usize = 32;
/// Clients are handed over by blocks of this size, as they are counted in ([`ClientPrefix::to_demand`]).
const SHED_V4: u8 = 24;
/// The same for IPv6.
const SHED_V6: u8 = 56;

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The living gateways of the cluster at this index.
    Live(usize),
    /// All gateways of these clusters, though none passes its checks.
    Dead(Vec<usize>),
    /// No gateway has an address of the family.
    NoAddress,
    /// Nothing is alive and the operator wants no answer then.
    Refused,
}

/// Why it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The plan bound the client's prefix to it.
    Bound,
    /// No prefix of the client is bound: it is the nearest.
    Nearest,
    /// The bound cluster has no living gateway: it is the nearest that has.
    BoundIsDead,
    /// The cluster that would have been chosen has more load than it can carry: it is the nearest that has not.
    Shed,
    /// Nothing passes its checks.
    AllDead,
    /// No gateway has an address of the family asked for.
    NoAddress,
}

/// A choice and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steered<'a> {
    /// The app.
    pub table: &'a AppTable,
    /// What was chosen.
    pub pick: Pick,
    /// Why.
    pub reason: Reason,
    /// The cluster bound to the client, alive or not.
    pub bound: Option<&'a ClusterId>,
    /// How many leading bits of the client the choice depends on.
    pub scope: u8,
}

/// What one address, or all of a prefix, is given.
struct Choice<'a> {
    pick: Pick,
    reason: Reason,
    bound: Option<&'a ClusterId>,
    /// Addresses for which every source says the same.
    span: Span,
    /// Whether a source was asked that is too slow to be asked about the neighbours as well.
    looked_up: bool,
}

/// Chooses for one client.
#[must_use]
pub fn choose<'a>(
    table: &'a AppTable,
    family: Family,
    client: ClientPrefix,
    fleet: &'a Fleet,
    locate: Option<&dyn Locate>,
    when_all_dead: WhenAllDead,
) -> Steered<'a> {
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
        return Steered {
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
    Steered {
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
    /// What does not depend on the client.
    fn for_everybody(&self) -> Option<(Pick, Reason)> {
        if self.fleet.has_live(self.family) {
            return None;
        }
        if self.fleet.has_any_live() || !self.fleet.has_address(self.family) {
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

    /// The choice for one address, by what is known of this family.
    fn of_family(&self, addr: u128, is_v4: bool) -> Choice<'a> {
        let (bound, span) = self.table.bindings.at(addr, is_v4);
        let near = || self.fleet.network().nearest.at(addr, is_v4, self.locate);
        let mut choice = self.pick(bound, (addr, is_v4), near);
        choice.span = choice.span.and(span);
        choice
    }

    /// The choice for a prefix whose addresses are not all given the same.
    fn around(&self, client: ClientPrefix) -> Choice<'a> {
        let bound = self
            .table
            .bindings
            .covering(client)
            .map(|(cluster, _)| cluster);
        let near = || self.fleet.network().nearest.around(client, self.locate);
        self.pick(bound, bits(client.addr()), near)
    }

    /// The choice, given the bound cluster and a way to ask for the nearest.
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
            if !self.fleet.sheds(index) {
                return choice(Pick::Live(index), Reason::Bound, Span::ALL, false);
            }
            if !self.fleet.gives_away(index, block.first) {
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
            if !self.fleet.sheds(first) {
                return choice(Pick::Live(first), reason, span, near.looked_up);
            }
            span = span.and(block);
            // Those that shed themselves are no help to one another; if all do, everybody stays.
            let helper = order.find(|index| !self.fleet.sheds(*index));
            let (pick, reason) = match helper {
                Some(helper) if self.fleet.gives_away(first, block.first) => (helper, Reason::Shed),
                _ => (first, reason),
            };
            return choice(Pick::Live(pick), reason, span, near.looked_up);
        }
        // Nothing is alive: the bound cluster first, then from near to far.
        if self.when_all_dead == WhenAllDead::Refuse {
            return choice(Pick::Refused, Reason::AllDead, span, near.looked_up);
        }
        let has_address = |index: &usize| !self.fleet.cluster(*index).all(self.family).is_empty();
        let with_address = |index: &usize| has_address(index) && holds(index);
        let rest = near.order.iter().copied().filter(|i| Some(*i) != home);
        let mut order: Vec<usize> = home.into_iter().chain(rest).filter(with_address).collect();
        if self.when_all_dead == WhenAllDead::ServeChosen {
            order.truncate(1);
        }
        choice(Pick::Dead(order), Reason::AllDead, span, near.looked_up)
    }

    /// The choice's run of addresses with those of its neighbours that are given the same.
    ///
    /// Only the side that bounds the scope is of interest: widening the other one changes nothing.
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
