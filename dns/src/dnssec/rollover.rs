//! The stage of each of the zone's keys: a pure function of the times in the key file.
//!
//! A key that replaces another goes through these stages (RFC 6781, section 4.1.2, "double signature", for a key that is KSK and ZSK in
//! one, and RFC 7344 for the parent):
//!
//! | stage | in DNSKEY | signs DNSKEY | signs the zone | in CDS and CDNSKEY | ends |
//! | --- | --- | --- | --- | --- | --- |
//! | [`Stage::Published`] | yes | yes | no | no | when the DNSKEY set without it has expired from every cache |
//! | [`Stage::Ready`] | yes | yes | no | yes | when the operator has confirmed its DS record at the parent |
//! | [`Stage::Waiting`] | yes | yes | no | yes | when the parent's old DS record has expired from every cache |
//! | [`Stage::Active`] | yes | yes | yes | yes | when the next key becomes active |
//! | [`Stage::Retired`] | yes | yes | no | no | when its signatures have expired from every cache |
//! | [`Stage::Removed`] | no | no | no | no | never |
//!
//! At every time, the DNSKEY set is signed by every key that a cached DS record may name, and contains the key of every cached signature.
//! The zone's first key is active at once, since no cache can hold anything older. Only the step from ready to waiting needs an
//! operator: time alone does not tell what the parent did, and removing a key too early makes the zone invalid.

use fdn_core::Timestamp;

/// The times of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTimes {
    /// When it was created.
    pub created: Timestamp,
    /// When the operator saw its DS record at the parent.
    pub seen: Option<Timestamp>,
}

/// The caching and propagation times that roll-overs wait for, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time to live of the DNSKEY set.
    pub key_ttl: u64,
    /// How long a changed key file takes to reach every server of the zone.
    pub propagation: u64,
    /// The time to live of the DS record at the parent, plus the time that the parent's servers take to publish it.
    pub parent_ttl: u64,
    /// How long a key is kept after the next one has become active: longer than any TTL in the zone.
    pub drain: u64,
}

/// The stage of a key in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It is in the DNSKEY set, but resolvers may have an older set cached.
    Published,
    /// The parent is asked, by CDS and CDNSKEY, to name it.
    Ready,
    /// The parent names it, but resolvers may have the old DS record cached.
    Waiting,
    /// It signs the zone.
    Active,
    /// It no longer signs the zone, but its signatures may be cached.
    Retired,
    /// It is no longer part of the zone.
    Removed,
}

impl Stage {
    /// Whether a key in this stage is in the DNSKEY set, and signs it.
    #[must_use]
    pub const fn is_published(self) -> bool {
        !matches!(self, Self::Removed)
    }

    /// Whether it precedes the active stage.
    #[must_use]
    pub const fn is_coming(self) -> bool {
        matches!(self, Self::Published | Self::Ready | Self::Waiting)
    }
}

/// A key's stage, and when it ends if that time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyStage {
    /// The stage.
    pub stage: Stage,
    /// When the next stage begins, if known.
    pub until: Option<Timestamp>,
}

const fn after(time: Timestamp, millis: u64) -> Timestamp {
    Timestamp(time.0.saturating_add(millis))
}

/// The time from which no cache holds a DNSKEY set without the key.
const fn known_from(key: &KeyTimes, timing: &Timing) -> Timestamp {
    after(
        key.created,
        timing.key_ttl.saturating_add(timing.propagation),
    )
}

/// When the key at `index` becomes active, if known.
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

/// The stages of the keys, oldest first, at `now`.
#[must_use]
pub fn key_stages(keys: &[KeyTimes], now: Timestamp, timing: &Timing) -> Vec<KeyStage> {
    let begun = |index: &usize| active_from(*index, keys, timing).is_some_and(|from| from <= now);
    let active = (0..keys.len()).rev().find(begun).unwrap_or(0);
    let mut all = Vec::with_capacity(keys.len());
    for (index, key) in keys.iter().enumerate() {
        let key_stage = if index == active {
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
        all.push(key_stage);
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

/// The index of the key that the parent should name: the newest that is ready, waiting or active.
#[must_use]
pub fn wanted_at_parent(key_stages: &[KeyStage]) -> Option<usize> {
    key_stages.iter().rposition(|key_stage| {
        matches!(
            key_stage.stage,
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
        let key_stages = key_stages(keys, Timestamp(now), &TIMING);
        key_stages.iter().map(|key_stage| key_stage.stage).collect()
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
        // A third key does not make the first one reappear.
        let third = [key(0, None), key(1000, Some(1020)), key(2000, None)];
        assert_eq!(stages(&third, 2000), [Removed, Active, Published]);
        assert_eq!(stages(&[], 5), []);
    }

    #[test]
    fn when_a_stage_ends_is_told() {
        let seen = [key(0, None), key(1000, Some(1020))];
        let until = |now| {
            let key_stages = key_stages(&seen, Timestamp(now), &TIMING);
            key_stages
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
            |keys: &[KeyTimes], now| wanted_at_parent(&key_stages(keys, Timestamp(now), &TIMING));
        let keys = [key(0, None), key(1000, None)];
        assert_eq!(wanted(&keys, 1000), Some(0));
        assert_eq!(wanted(&keys, 1011), Some(1));
        assert_eq!(wanted(&[], 0), None);
    }

    proptest! {
        /// For any times: exactly one key is active, stages only advance, and a stage ends when announced.
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
                let all = key_stages(&keys, Timestamp(now), &TIMING);
                prop_assert_eq!(all.iter().filter(|s| s.stage == Stage::Active).count(), 1);
                for (at, key_stage) in all.iter().enumerate() {
                    if let Some(until) = key_stage.until {
                        prop_assert!(until > Timestamp(now));
                        let next = key_stages(&keys, until, &TIMING)[at];
                        prop_assert!(next.stage > key_stage.stage, "{:?} {:?}", key_stage, next);
                    }
                    if let Some(before) = &before {
                        prop_assert!(key_stage.stage >= before[at].stage);
                    }
                }
                before = Some(all);
            }
        }
    }
}
