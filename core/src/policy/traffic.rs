//! The traffic split: which version of an app serves a call.
//!
//! Each version has a weight; a call has a *point*, 64 random or pseudo-random bits, and goes to the version whose interval contains it.
//! The intervals follow the order of the list, each as long as its weight, so a change of weights moves the calls that it must and few
//! others. The origin of the points makes the split sticky or not: drawn for each call, stored in the client's cookie, or derived from
//! its address. A sticky client keeps its point, not its version: when the weights are restored, so is its version, and a version of
//! weight 0 gets no calls at all.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PolicyError;
use super::decide::ClientKey;
use crate::digest::Digest;
use crate::id::{AppName, VersionNumber};

/// The most versions of one split.
pub const VERSIONS_MAX: usize = 8;
/// The largest weight.
pub const WEIGHT_MAX: u32 = 10_000;

/// A split of an app's calls between versions of its function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Traffic {
    /// The versions with their weights, at most 8; if empty, all calls go to the current version.
    pub split: Vec<Share>,
    /// Whether a client stays with its version.
    pub sticky: Sticky,
    /// Whether a call can choose a version of the split by the header `x-fdn-pin`, including one with weight 0.
    pub pin: bool,
}

/// The share of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// The number of the version.
    pub version: VersionNumber,
    /// The version's weight relative to the sum of all weights, from 0 to 10000. At least one weight must be above 0.
    pub weight: u32,
}

/// Whether a client stays with its version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Sticky {
    /// Not sticky: each call is assigned independently.
    #[default]
    None,
    /// By a cookie, for as long as the client keeps it.
    Cookie,
    /// By the client's address, or the first 64 bits of an IPv6 address.
    Address,
}

impl Traffic {
    /// Whether all calls go to the current version.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.split.is_empty()
    }

    /// Validates the split.
    ///
    /// # Errors
    /// The field that is not valid, and what is allowed.
    pub fn check(&self) -> Result<(), PolicyError> {
        let wrong = |problem: String| Err(PolicyError::new("traffic.split", problem));
        if self.split.len() > VERSIONS_MAX {
            return wrong(format!(
                "at most {VERSIONS_MAX} versions, not {}",
                self.split.len()
            ));
        }
        for (at, share) in self.split.iter().enumerate() {
            if share.weight > WEIGHT_MAX {
                return wrong(format!(
                    "the weight of {} must be from 0 to {WEIGHT_MAX}, not {}",
                    share.version, share.weight
                ));
            }
            if self.split[..at].iter().any(|s| s.version == share.version) {
                return wrong(format!("{} stands twice", share.version));
            }
        }
        if !self.split.is_empty() && self.split.iter().all(|share| share.weight == 0) {
            return wrong("one version at least must have a weight above 0".to_owned());
        }
        Ok(())
    }
}

/// The index of the weight whose interval contains a point; `None` if all weights are 0.
#[must_use]
pub fn choose(weights: impl Iterator<Item = u32> + Clone, point: u64) -> Option<usize> {
    let total: u64 = weights.clone().map(u64::from).sum();
    // The point scaled to the sum of the weights: below the sum, and evenly spread.
    let scaled = (u128::from(point) * u128::from(total)) >> 64;
    let mut end = 0u128;
    for (at, weight) in weights.enumerate() {
        end += u128::from(weight);
        if scaled < end {
            return Some(at);
        }
    }
    None
}

/// The point of a client's address. It depends on the app, so that the new versions of all apps do not hit the same clients.
#[must_use]
pub fn point_of(app: &AppName, client: ClientKey) -> u64 {
    let (kind, number) = match client {
        ClientKey::Address(number) => ('a', number),
        ClientKey::Identity(number) => ('i', number),
    };
    let digest = Digest::of(format!("{app}:{kind}:{number:032x}").as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest.as_bytes()[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn traffic(shares: &[(u32, u32)]) -> Traffic {
        let share = |&(version, weight): &(u32, u32)| Share {
            version: VersionNumber::try_from(version).expect("version"),
            weight,
        };
        Traffic {
            split: shares.iter().map(share).collect(),
            ..Traffic::default()
        }
    }

    #[test]
    fn what_cannot_work_is_named() {
        traffic(&[]).check().expect("nothing said");
        traffic(&[(3, 90), (4, 0)]).check().expect("a split");
        let many: Vec<(u32, u32)> = (1..=9).map(|v| (v, 1)).collect();
        for (shares, word) in [
            (&[(3, 1), (3, 2)][..], "v3 stands twice"),
            (&[(3, 0), (4, 0)], "above 0"),
            (&[(3, 10_001)], "from 0 to 10000"),
            (&many, "at most 8"),
        ] {
            let error = traffic(shares).check().expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn points_of_addresses_differ_by_app_and_client() {
        let point = |app: &str, client: u128| {
            point_of(&app.parse().expect("app"), ClientKey::Address(client))
        };
        assert_eq!(point("a", 1), point("a", 1));
        assert_ne!(point("a", 1), point("b", 1));
        assert_ne!(point("a", 1), point("a", 2));
    }

    /// Ten thousand clients by address: each version gets its share, within four standard deviations.
    #[test]
    fn shares_converge() {
        let app: AppName = "hello".parse().expect("app");
        let weights = [70, 0, 25, 5];
        let mut counts = [0u32; 4];
        for client in 0..10_000u128 {
            let point = point_of(&app, ClientKey::Address(client));
            counts[choose(weights.into_iter(), point).expect("one")] += 1;
        }
        for (count, weight) in counts.into_iter().zip(weights) {
            let share = f64::from(weight) / 100.0;
            let spread = (10_000.0 * share * (1.0 - share)).sqrt();
            assert!(
                (f64::from(count) - 10_000.0 * share).abs() <= 4.0 * spread,
                "{counts:?}"
            );
        }
    }

    proptest! {
        /// The parts are as long as their weights: over evenly spread points each version gets its share to within one point.
        #[test]
        fn parts_are_as_long_as_weights(weights in proptest::collection::vec(0u32..=10, 1..8)) {
            let total: u32 = weights.iter().sum();
            let points = u64::from(total) * 16;
            let mut counts = vec![0u64; weights.len()];
            for at in 0..points {
                let point = u64::try_from((u128::from(at) << 64) / u128::from(points)).expect("below 2^64");
                counts[choose(weights.iter().copied(), point).expect("one")] += 1;
            }
            for (count, weight) in counts.iter().zip(&weights) {
                prop_assert!(count.abs_diff(u64::from(*weight) * 16) <= 1, "{:?} {:?}", counts, weights);
            }
            prop_assert_eq!(choose(weights.iter().map(|_| 0), 7), None);
        }

        /// Moving weight from the first of two versions to the second moves points one way only.
        #[test]
        fn a_shift_moves_no_client_back(point in any::<u64>(), before in 0u32..=100, after in 0u32..=100) {
            let version = |second: u32| choose([100 - second, second].into_iter(), point).expect("one");
            if after >= before {
                prop_assert!(version(after) >= version(before));
            }
        }
    }
}
