//! Gateways of a cluster come first in answers in proportion to their weights.

use fdn_core::GatewayWeight;
use proptest::prelude::*;

use super::*;

/// The number of all turns.
const TURNS: u32 = 65_536;

/// A network of one cluster with one gateway per weight.
fn weighted(weights: &[u16]) -> NetworkDesired {
    let mut spec = cluster(0, false);
    let last = |i: usize| u8::try_from(i + 1).expect("few");
    let v4 = (0..weights.len()).map(|i| SocketAddr::from(([127, 0, 0, last(i)], 8080)));
    spec.gateways = v4.collect();
    spec.weights = of(weights);
    NetworkDesired {
        clusters: vec![spec],
        ..network()
    }
}

fn of(weights: &[u16]) -> Vec<GatewayWeight> {
    let weights = weights.iter();
    weights
        .map(|weight| GatewayWeight::new(*weight).expect("a weight"))
        .collect()
}

/// How often each live gateway of the only cluster comes first in these turns.
fn firsts(fleet: &Fleet, turns: impl Iterator<Item = u16>) -> Vec<u32> {
    let addresses = fleet.cluster(0);
    let mut counts = vec![0; addresses.live(Family::V4).len()];
    turns.for_each(|turn| counts[addresses.first(Family::V4, turn)] += 1);
    counts
}

fn weights() -> impl Strategy<Value = Vec<u16>> {
    proptest::collection::vec(1u16..=1000, 1..12)
}

proptest! {
    /// Over all turns the shares are exact, except for rounding.
    #[test]
    fn each_stands_first_as_often_as_its_weight_says(weights in weights()) {
        let fleet = fleet(&weighted(&weights), &[]);
        let whole: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        for (count, weight) in firsts(&fleet, 0..=u16::MAX).iter().zip(&weights) {
            let share = TURNS * u32::from(*weight) / whole;
            prop_assert!(count.abs_diff(share) <= 1, "{count} turns for {weight} of {whole}");
        }
    }

    /// A thousand queries are enough, even from a resolver with consecutive ids.
    #[test]
    fn ids_that_count_up_are_spread_as_evenly(weights in weights(), begin in any::<u16>()) {
        let fleet = fleet(&weighted(&weights), &[]);
        let whole: u32 = weights.iter().map(|weight| u32::from(*weight)).sum();
        let turns = (0..1000).map(|n| begin.wrapping_add(n));
        for (count, weight) in firsts(&fleet, turns).iter().zip(&weights) {
            let share = 1000 * u32::from(*weight) / whole;
            prop_assert!(count.abs_diff(share) <= 20, "{count} of 1000 for {weight} of {whole}");
        }
    }

    /// The share of a dead gateway is distributed among the others in proportion, as if it did not exist.
    #[test]
    fn the_dead_leave_their_part_to_all_others(weights in weights(), dead in any::<prop::sample::Index>()) {
        let dead = dead.index(weights.len());
        let gateway = format!("127.0.0.{}:8080", dead + 1);
        let seen = fleet(&weighted(&weights), &[gateway.as_str()]);
        let mut rest = weights.clone();
        rest.remove(dead);
        let without = fleet(&weighted(&rest), &[]);
        let (seen, without) = (seen.cluster(0), without.cluster(0));
        for turn in 0..=u16::MAX {
            prop_assert_eq!(seen.first(Family::V4, turn), without.first(Family::V4, turn));
        }
    }

    /// Every gateway is named whatever its weight, in the same cyclic order.
    #[test]
    fn all_are_named_however_light(weights in weights(), turn in any::<u16>(), most in 1usize..16) {
        let fleet = fleet(&weighted(&weights), &[]);
        let live = fleet.cluster(0).live(Family::V4);
        let first = fleet.cluster(0).first(Family::V4, turn);
        let told = rotated(live, first, most);
        prop_assert_eq!(told.len(), most.min(live.len()));
        prop_assert_eq!(told[0], live[first]);
        let round: Vec<IpAddr> = live.iter().cycle().skip(first).take(told.len()).copied().collect();
        prop_assert_eq!(told, round);
    }
}

#[test]
fn gateways_without_a_weight_share_evenly() {
    for said in [&[][..], &[100], &[100, 100, 100]] {
        let mut network = weighted(&[100; 3]);
        network.clusters[0].weights = of(said);
        let counts = firsts(&fleet(&network, &[]), 0..=u16::MAX);
        assert!(
            counts.iter().all(|count| count.abs_diff(TURNS / 3) <= 1),
            "{counts:?}"
        );
    }
    let v6 = fleet(&weighted(&[1, 2]), &[]);
    assert_eq!(v6.cluster(0).first(Family::V6, 7), 0, "there is none");
    assert!(rotated(&[], 0, 16).is_empty());
}

#[test]
fn weights_are_told_as_they_were_said() {
    let fleet = fleet(&weighted(&[250, 1, 1000]), &["127.0.0.2:8080"]);
    let cluster = fleet.cluster(0);
    let told = [0, 1, 2].map(|index| cluster.weight(Family::V4, index));
    assert_eq!(told, [250, 1000, 0]);
}
