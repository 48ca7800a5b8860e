//! Where clusters and clients are, and how far they are from each other: by the same function of the distance that plans go by as long as no round
//! trip was measured. So the planner believes the distances that are emulated.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use fdn_core::{ClientPrefix, GeoPoint};

/// A cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    pub(crate) name: &'static str,
    pub(crate) location: (f64, f64),
    pub(crate) nodes: usize,
    /// Calls that each node runs at the same time.
    pub(crate) slots: u32,
    pub(crate) speed: f64,
}

impl Site {
    /// Milliseconds of work at speed 1 that it does in a millisecond, if every slot is busy.
    pub(crate) fn capacity(&self) -> f64 {
        self.nodes as f64 * f64::from(self.slots) * self.speed
    }
}

const fn site(name: &'static str, location: (f64, f64), slots: u32, speed: f64) -> Site {
    Site {
        name,
        location,
        nodes: 2,
        slots,
        speed,
    }
}

/// Unequal in size and speed.
pub(crate) const SITES: [Site; 4] = [
    site("eu-west", (53.35, -6.26), 8, 1.0),
    site("us-east", (39.04, -77.49), 5, 1.5),
    site("ap-south", (19.08, 72.88), 5, 1.0),
    site("sa-east", (-23.55, -46.63), 5, 0.8),
];

/// A place that clients call from, each with a network of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) location: (f64, f64),
    /// How much of all calls come from there, in hundredths.
    pub(crate) share: u32,
}

const fn place(location: (f64, f64), share: u32) -> Place {
    Place { location, share }
}

/// London, Paris, Frankfurt, Warsaw, Madrid; New York, Chicago, San Francisco; Mumbai, Singapore, Tokyo; São Paulo, Bogotá.
pub(crate) const PLACES: [Place; 13] = [
    place((51.51, -0.13), 12),
    place((48.86, 2.35), 9),
    place((50.11, 8.68), 9),
    place((52.23, 21.01), 5),
    place((40.42, -3.70), 5),
    place((40.71, -74.01), 11),
    place((41.88, -87.63), 7),
    place((37.77, -122.42), 7),
    place((19.08, 72.88), 10),
    place((1.35, 103.82), 8),
    place((35.68, 139.69), 7),
    place((-23.55, -46.63), 6),
    place((4.71, -74.07), 4),
];

/// What clients of a place have in common: a part of the networks that benchmarks are to use (RFC 2544).
pub(crate) fn subnet(place: usize) -> ClientPrefix {
    ClientPrefix::new(IpAddr::V4(Ipv4Addr::new(198, 18, byte(place), 0)), 24)
}

/// The address of a node: on Linux all of 127/8 is this machine.
pub(crate) fn gateway(site: usize, node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, byte(site + 1), byte(node + 1))
}

/// Where clients of a place reach a node, through the relay that lies as far away as the two are apart.
pub(crate) fn far(place: usize, site: usize, node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, byte(place + 10), byte(site + 1), byte(node + 1))
}

/// Which node has an address.
pub(crate) fn node_at(address: Ipv4Addr) -> Option<(usize, usize)> {
    let [127, 0, site, node] = address.octets() else {
        return None;
    };
    let (site, node) = (
        usize::from(site).checked_sub(1)?,
        usize::from(node).checked_sub(1)?,
    );
    (node < SITES.get(site)?.nodes).then_some((site, node))
}

/// All nodes.
pub(crate) fn nodes() -> impl Iterator<Item = (usize, usize)> {
    let of = |(site, one): (usize, &Site)| (0..one.nodes).map(move |node| (site, node));
    SITES.iter().enumerate().flat_map(of)
}

/// The round trip between each place and each cluster.
pub(crate) fn round_trips() -> Result<Vec<Vec<Duration>>> {
    let row = |place: &Place| -> Result<Vec<Duration>> {
        SITES
            .iter()
            .map(|site| trip(place.location, site))
            .collect()
    };
    PLACES.iter().map(row).collect()
}

/// The way from one cluster to another, in whole milliseconds.
pub(crate) fn one_way(from: &Site, to: &Site) -> Result<u128> {
    Ok(trip(from.location, to)?.as_millis() / 2)
}

fn trip((lat, lon): (f64, f64), site: &Site) -> Result<Duration> {
    let place = GeoPoint::new(lat, lon)?;
    let there = GeoPoint::new(site.location.0, site.location.1)?;
    let trip = place.rtt_estimate(&there);
    Duration::try_from_secs_f64(trip.get() / 1000.0).context("a round trip is a time")
}

fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_a_whole_and_addresses_are_told_apart() {
        assert_eq!(PLACES.iter().map(|place| place.share).sum::<u32>(), 100);
        for (site, node) in nodes() {
            assert_eq!(node_at(gateway(site, node)), Some((site, node)));
            assert_eq!(node_at(far(0, site, node)), None);
        }
        for stranger in [
            [127, 0, 0, 1],
            [127, 0, 1, 3],
            [127, 0, 5, 1],
            [10, 0, 1, 1],
        ] {
            assert_eq!(node_at(Ipv4Addr::from(stranger)), None);
        }
        assert_eq!(subnet(3).to_string(), "198.18.3.0/24");
    }

    #[test]
    fn whoever_is_beside_a_cluster_is_nearest_to_it() {
        let trips = round_trips().expect("positions");
        assert_eq!((trips.len(), trips[0].len()), (PLACES.len(), SITES.len()));
        // Mumbai to ap-south is the base alone; London to it is 7,200 km.
        assert_eq!(trips[8][2], Duration::from_millis(2));
        assert!((100..120).contains(&trips[0][2].as_millis()));
    }
}
