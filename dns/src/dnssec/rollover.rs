//! In which stage each of the zone's keys is: a function of the times that stand in the key file, and of nothing else.
//!
//! A key that follows another goes through these stages (RFC 6781, section 4.1.2, "double signature", for a key of both kinds, and RFC
//! 7344 for the parent):
//!
//! | stage | in DNSKEY | signs DNSKEY | signs the zone | in CDS and CDNSKEY | ends |
//! | --- | --- | --- | --- | --- | --- |
//! | [`Stage::Published`] | yes | yes | no | no | when every resolver has forgotten the DNSKEY set without it |
//! | [`Stage::Ready`] | yes | yes | no | yes | when the operator has seen its DS record at the parent |
//! | [`Stage::Waiting`] | yes | yes | no | yes | when every resolver has forgotten the parent's old DS record |
//! | [`Stage::Active`] | yes | yes | yes | yes | when the next key becomes active |
//! | [`Stage::Retired`] | yes | yes | no | no | when every resolver has forgotten what it signed |
//! | [`Stage::Removed`] | no | no | no | no | never |
//!
//! At every moment the DNSKEY set is signed by each key that a DS record in any cache may name, and has the key of each signature in any
//! cache. The zone's first key is active at once: nobody can hold anything older. Only the step from ready to waiting needs somebody
//! who looks: a time cannot know what the parent did, and a key that is taken away too early takes the zone with it.

use fdn_core::Timestamp;

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTimes {
    /// When it was made.
    pub created: Timestamp,
    /// When its DS record was seen at the parent.
    pub seen: Option<Timestamp>,
}

/// How long things are remembered, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time to live of the DNSKEY set.
    pub key_ttl: u64,
    /// How long it may take until every server of the zone has a changed key file.
    pub propagation: u64,
    /// The time to live of the DS record at the parent, and how long the parent's servers take to have it.
    pub parent_ttl: u64,
    /// How long a key is kept after the next one has become active: longer than any record of the zone lives.
    pub drain: u64,
}

/// Where a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It is in the DNSKEY set, and not every resolver has seen it.
    Published,
    /// The parent is asked to name it.
    Ready,
    /// The parent names it, and not every resolver has seen that.
    Waiting,
    /// It signs the zone.
    Active,
    /// It signed the zone.
    Retired,
    /// It is no part of the zone any more.
    Removed,
}

impl Stage {
    /// Whether a key of this stage is in the DNSKEY set, and signs it.
    #[must_use]
    pub const fn is_published(self) -> bool {
        !matches!(self, Self::Removed)
    }

    /// Whether it comes before the key that signs the zone.
    #[must_use]
    pub const fn is_coming(self) -> bool {
        matches!(self, Self::Published | Self::Ready | Self::Waiting)
    }
}

/// A key's stage, and when it ends if it does so by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStage {
    /// The stage.
    pub stage: Stage,
    /// When the next one begins.
    pub until: Option<Timestamp>,
}

const fn after(time: Timestamp, millis: u64) -> Timestamp {
    Timestamp(time.0.saturating_add(millis))
}

/// When every resolver knows that a key is in the DNSKEY set.
const fn known_from(key: &KeyTimes, timing: &Timing) -> Timestamp {
    after(
        key.created,
        timing.key_ttl.saturating_add(timing.propagation),
    )
}

/// When the key at `index` becomes active, as far as that is known.
fn active_from(index: usize, keys: &[KeyTimes], timing: &Timing) -> Option<Timestamp> {
    let key = keys.get(index)?;
    if index == 0 {
        return Some(Timestamp(0));
    }
    let named = after(
        key.seen?,
        timing.parent_ttl.saturating_add(timing.propagation),
    );
    Some(named.max(known_from(key, timing)))
}

/// Where each of the keys, oldest first, stands at `now`.
#[must_use]
pub fn standings(keys: &[KeyTimes], now: Timestamp, timing: &Timing) -> Vec<KeyStage> {
    let begun = |index: &usize| active_from(*index, keys, timing).is_some_and(|from| from <= now);
    let active = (0..keys.len()).rev().find(begun).unwrap_or(0);
    let mut all = Vec::with_capacity(keys.len());
    for (index, key) in keys.iter().enumerate() {
        let standing = if index == active {
            KeyStage {
                stage: Stage::Active,
                until: active_from(index + 1, keys, timing),
            }
        } else if index > active {
            coming(key, active_from(index, keys, timing), now, timing)
        } else {
            gone(
                (index + 1..=active).find_map(|next| active_from(next, keys, timing)),
                now,
                timing,
            )
        };
        all.push(standing);
    }
    all
}

fn coming(
    key: &KeyTimes,
    active_from: Option<Timestamp>,
    now: Timestamp,
    timing: &Timing,
) -> KeyStage {
    let known = known_from(key, timing);
    let (stage, until) = match (now < known, active_from) {
        (true, _) => (Stage::Published, Some(known)),
        (false, None) => (Stage::Ready, None),
        (false, from) => (Stage::Waiting, from),
    };
    KeyStage { stage, until }
}

fn gone(followed: Option<Timestamp>, now: Timestamp, timing: &Timing) -> KeyStage {
    let until = followed.map(|at| after(at, timing.drain));
    match until {
        Some(until) if now < until => KeyStage {
            stage: Stage::Retired,
            until: Some(until),
        },
        _ => KeyStage {
            stage: Stage::Removed,
            until: None,
        },
    }
}

/// The key that the parent should name: the newest that every resolver may know, or the active one.
#[must_use]
pub fn wanted_at_parent(standings: &[KeyStage]) -> Option<usize> {
    standings.iter().rposition(|standing| {
        matches!(
            standing.stage,
            Stage::Ready | Stage::Waiting | Stage::Active
        )
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMING: Timing = Timing {
        key_ttl: 10,
        propagation: 1,
        parent_ttl: 100,
        drain: 50,
    };

    fn key(created: u64, seen: Option<u64>) -> KeyTimes {
        KeyTimes {
            created: Timestamp(created),
            seen: seen.map(Timestamp),
        }
    }

    fn stages(keys: &[KeyTimes], now: u64) -> Vec<Stage> {
        let standings = standings(keys, Timestamp(now), &TIMING);
        standings.iter().map(|standing| standing.stage).collect()
    }

    #[test]
    fn every_stage_of_a_roll_over() {
        use Stage::{Active, Published, Ready, Removed, Retired, Waiting};
        assert_eq!(stages(&[key(1000, None)], 0), [Active], "clocks differ");
        let unseen = [key(0, None), key(1000, None)];
        assert_eq!(stages(&unseen, 1010), [Active, Published]);
        assert_eq!(stages(&unseen, 1011), [Active, Ready]);
        assert_eq!(
            stages(&unseen, u64::MAX),
            [Active, Ready],
            "until somebody has looked"
        );
        let seen = [key(0, None), key(1000, Some(1020))];
        assert_eq!(stages(&seen, 1020), [Active, Waiting]);
        assert_eq!(stages(&seen, 1120), [Active, Waiting]);
        assert_eq!(stages(&seen, 1121), [Retired, Active]);
        assert_eq!(stages(&seen, 1170), [Retired, Active]);
        assert_eq!(stages(&seen, 1171), [Removed, Active]);
        // A third key does not bring the first one back.
        let third = [key(0, None), key(1000, Some(1020)), key(2000, None)];
        assert_eq!(stages(&third, 2000), [Removed, Active, Published]);
        assert_eq!(stages(&[], 5), []);
    }

    #[test]
    fn when_a_stage_ends_is_told() {
        let seen = [key(0, None), key(1000, Some(1020))];
        let until = |now| {
            let standings = standings(&seen, Timestamp(now), &TIMING);
            standings
                .iter()
                .map(|s| s.until.map(Timestamp::get))
                .collect::<Vec<_>>()
        };
        assert_eq!(until(1000), [Some(1121), Some(1011)]);
        assert_eq!(until(1050), [Some(1121), Some(1121)]);
        assert_eq!(until(1150), [Some(1171), None]);
    }

    #[test]
    fn the_parent_is_asked_for_a_key_that_all_know() {
        let wanted =
            |keys: &[KeyTimes], now| wanted_at_parent(&standings(keys, Timestamp(now), &TIMING));
        let keys = [key(0, None), key(1000, None)];
        assert_eq!(wanted(&keys, 1000), Some(0));
        assert_eq!(wanted(&keys, 1011), Some(1));
        assert_eq!(wanted(&[], 0), None);
    }

    proptest! {
        /// There is one active key, whatever the times; stages only go forward; and when a stage ends is right.
        #[test]
        fn stages_go_forward(
            gaps in proptest::collection::vec((0u64..300, proptest::option::of(0u64..300)), 1..4),
            mut moments in proptest::collection::vec(0u64..2000, 2..20),
        ) {
            let mut created = 0;
            let keys: Vec<KeyTimes> = gaps.iter().map(|(gap, seen)| {
                created += gap;
                key(created, seen.map(|after| created + after))
            }).collect();
            moments.sort_unstable();
            let mut before: Option<Vec<KeyStage>> = None;
            for now in moments {
                let all = standings(&keys, Timestamp(now), &TIMING);
                prop_assert_eq!(all.iter().filter(|s| s.stage == Stage::Active).count(), 1);
                for (at, standing) in all.iter().enumerate() {
                    if let Some(until) = standing.until {
                        prop_assert!(until > Timestamp(now));
                        let next = standings(&keys, until, &TIMING)[at];
                        prop_assert!(next.stage > standing.stage, "{:?} {:?}", standing, next);
                    }
                    if let Some(before) = &before {
                        prop_assert!(standing.stage >= before[at].stage);
                    }
                }
                before = Some(all);
            }
        }
    }
}
