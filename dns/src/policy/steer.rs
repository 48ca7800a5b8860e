//! Which cluster an app's client is sent to, and how far that choice holds.
//!
//! In order: the cluster bound to the longest prefix of the client, if a gateway of it is alive; else the nearest cluster with a
//! living gateway; else, with nothing alive, what the operator chose ([`WhenAllDead`]).
//!
//! Scope (RFC 7871, section 7.2.1): while the binding decides, the answer depends on the binding table alone. As soon as the
//! latency map decides, whether no prefix is bound or the bound cluster is dead, the answer depends on both, so the scope is the
//! longer of the two: within it both tables say the same.
//!
//! The family asked for never makes an answer depend on the client: NODATA is given only when no living cluster has such an
//! address, because resolvers may use a negative answer for everybody (RFC 7871, section 7.4).

use fdn_core::{ClientPrefix, ClusterId};

use super::WhenAllDead;
use super::atlas::Locate;
use super::fleet::{Family, Fleet};
use super::zone::AppTable;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The plan bound the client's prefix to it.
    Bound,
    /// No prefix of the client is bound: it is the nearest.
    Nearest,
    /// The bound cluster has no living gateway: it is the nearest that has.
    BoundIsDead,
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
    /// The length of the prefix that it is bound to.
    pub matched: u8,
    /// How many leading bits of the client the choice depends on.
    pub scope: u8,
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
    let found = table.bindings.lookup(client);
    let bound = found.value.map(AsRef::as_ref);
    let steered = |pick, reason, scope| Steered {
        table,
        pick,
        reason,
        bound,
        matched: found.matched,
        scope,
    };
    if !fleet.has_live(family) {
        if fleet.has_any_live() || !fleet.has_address(family) {
            return steered(Pick::NoAddress, Reason::NoAddress, 0);
        }
        if when_all_dead == WhenAllDead::Refuse {
            return steered(Pick::Refused, Reason::AllDead, 0);
        }
    }
    let home = bound.and_then(|id| fleet.index_of(id));
    if let Some(index) = home
        && !fleet.cluster(index).live(family).is_empty()
    {
        return steered(Pick::Live(index), Reason::Bound, found.scope);
    }
    let near = fleet.network().atlas.nearest(client, locate);
    let scope = found.scope.max(near.scope);
    if let Some(index) = near
        .order
        .iter()
        .copied()
        .find(|i| !fleet.cluster(*i).live(family).is_empty())
    {
        let reason = if bound.is_some() {
            Reason::BoundIsDead
        } else {
            Reason::Nearest
        };
        return steered(Pick::Live(index), reason, scope);
    }
    // Nothing is alive: the bound cluster first, then from near to far.
    let with_address = |index: &usize| !fleet.cluster(*index).all(family).is_empty();
    let rest = near
        .order
        .iter()
        .copied()
        .filter(|index| Some(*index) != home);
    let mut order: Vec<usize> = home.into_iter().chain(rest).filter(with_address).collect();
    if when_all_dead == WhenAllDead::ServeChosen {
        order.truncate(1);
    }
    steered(Pick::Dead(order), Reason::AllDead, scope)
}
