//! The keys in use at a time, and the records that publish them.

use std::sync::Arc;

use fdn_core::{HostName, Timestamp};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use serde::Serialize;

use super::key::ZoneKey;
use super::rollover::{KeyStage, KeyTimes, Timing, key_stages, wanted_at_parent};
use crate::policy::zone::name_of;

/// A key and its times.
#[derive(Clone, Debug)]
pub struct TimedKey {
    /// The key.
    pub key: Arc<ZoneKey>,
    /// The times that determine its stage.
    pub times: KeyTimes,
}

/// A key as shown to operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyState {
    /// The key tag.
    pub tag: u16,
    /// Its stage.
    pub stage: super::rollover::Stage,
    /// When it was created, in ms since 1970.
    pub created: Timestamp,
    /// When the operator saw its DS record at the parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen: Option<Timestamp>,
    /// When its stage ends, if that time is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The DS record for the parent.
    pub ds: String,
    /// Whether the parent should have this DS record now.
    pub wanted: bool,
}

/// The keys at a time.
#[derive(Debug)]
pub struct Ring {
    zone: HostName,
    keys: Vec<(TimedKey, KeyStage)>,
    /// The index of the key that signs the zone.
    active: usize,
    /// The index of the key that the parent should name.
    wanted: usize,
    /// The data of the DNSKEY, CDS and CDNSKEY records.
    published: [Vec<RData>; 3],
    ttl: u32,
}

impl Ring {
    /// The keys of a zone, oldest first, with their stages at `now`. `None` if there are none.
    #[must_use]
    pub fn new(
        zone: HostName,
        keys: Vec<TimedKey>,
        now: Timestamp,
        timing: &Timing,
    ) -> Option<Self> {
        let times: Vec<KeyTimes> = keys.iter().map(|key| key.times).collect();
        let key_stages = key_stages(&times, now, timing);
        let wanted = wanted_at_parent(&key_stages)?;
        let active = key_stages
            .iter()
            .position(|s| s.stage == super::rollover::Stage::Active)?;
        let keys: Vec<(TimedKey, KeyStage)> = keys.into_iter().zip(key_stages).collect();
        let inside = keys.iter().filter(|(_, s)| s.stage.is_published());
        let dnskeys = inside.map(|(timed, _)| timed.key.dnskey()).collect();
        let named = &keys.get(wanted)?.0.key;
        Some(Self {
            published: [dnskeys, vec![named.cds()], vec![named.cdnskey()]],
            zone,
            active,
            wanted,
            // Below 2^31 (RFC 2181, section 8).
            ttl: u32::try_from(timing.key_ttl / 1000)
                .unwrap_or(u32::MAX)
                .min(i32::MAX.unsigned_abs()),
            keys,
        })
    }

    /// The keys that sign a record set of this type. The DNSKEY set is signed by all published keys, so that it can be validated whichever of them
    /// the parent names; everything else by the active key. That includes CDS and CDNSKEY: the parent trusts the active key (RFC 7344, section
    /// 4.1).
    pub fn signers(&self, kind: RecordType) -> impl Iterator<Item = &ZoneKey> {
        let all = kind == RecordType::DNSKEY;
        self.keys
            .iter()
            .enumerate()
            .filter(move |(at, (_, key_stage))| {
                *at == self.active || (all && key_stage.stage.is_published())
            })
            .map(|(_, (timed, _))| &*timed.key)
    }

    /// The DNSKEY, CDS or CDNSKEY records, with `owner` as their name: the zone's name as spelled in the question. `None` for other types.
    #[must_use]
    pub fn records(&self, kind: RecordType, owner: &Name) -> Option<Vec<Record>> {
        let data = match kind {
            RecordType::DNSKEY => &self.published[0],
            RecordType::CDS => &self.published[1],
            RecordType::CDNSKEY => &self.published[2],
            _ => return None,
        };
        let record = |data: &RData| Record::from_rdata(owner.clone(), self.ttl, data.clone());
        Some(data.iter().map(record).collect())
    }

    /// The zone.
    #[must_use]
    pub const fn zone(&self) -> &HostName {
        &self.zone
    }

    /// The zone's name as a DNS name.
    #[must_use]
    pub fn apex(&self) -> Name {
        name_of(&self.zone)
    }

    /// The keys without their stages.
    #[must_use]
    pub fn timed(&self) -> Vec<TimedKey> {
        self.keys.iter().map(|(timed, _)| timed.clone()).collect()
    }

    /// All keys, oldest first, as shown to operators.
    #[must_use]
    pub fn states(&self) -> Vec<KeyState> {
        let state = |(at, (timed, key_stage)): (usize, &(TimedKey, KeyStage))| KeyState {
            tag: timed.key.tag(),
            stage: key_stage.stage,
            created: timed.times.created,
            seen: timed.times.seen,
            until: key_stage.until,
            ds: timed.key.ds(&self.zone),
            wanted: at == self.wanted,
        };
        self.keys.iter().enumerate().map(state).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnssec::rollover::Stage;

    const TIMING: Timing = Timing {
        key_ttl: 3_600_000,
        propagation: 0,
        parent_ttl: 0,
        drain: 1000,
    };

    fn timed(created: u64, seen: Option<u64>) -> TimedKey {
        let zone = "fn.test".parse().expect("zone");
        TimedKey {
            key: Arc::new(ZoneKey::new(&zone, &ZoneKey::generate().expect("random")).expect("key")),
            times: KeyTimes {
                created: Timestamp(created),
                seen: seen.map(Timestamp),
            },
        }
    }

    #[test]
    fn what_is_published_and_who_signs() {
        let keys = vec![timed(0, None), timed(10, Some(20))];
        let tags: Vec<u16> = keys.iter().map(|key| key.key.tag()).collect();
        let at = |now| {
            let zone = "fn.test".parse().expect("zone");
            Ring::new(zone, keys.clone(), Timestamp(now), &TIMING).expect("keys")
        };
        let signers = |ring: &Ring, kind| ring.signers(kind).map(ZoneKey::tag).collect::<Vec<_>>();
        let owner = Name::from_ascii("FN.test.").expect("name");
        let (published, active, removed) = (at(50), at(3_600_010), at(3_601_010));
        assert_eq!(signers(&published, RecordType::DNSKEY), tags);
        assert_eq!(signers(&published, RecordType::A), [tags[0]]);
        assert_eq!(published.states()[1].stage, Stage::Published);
        assert!(published.states()[0].wanted);
        assert_eq!(signers(&active, RecordType::A), [tags[1]]);
        assert_eq!(signers(&active, RecordType::DNSKEY), tags);
        assert!(active.states()[1].wanted);
        assert_eq!(signers(&removed, RecordType::DNSKEY), [tags[1]]);
        for (ring, dnskeys) in [(published, 2), (active, 2), (removed, 1)] {
            let count = |kind| ring.records(kind, &owner).expect("records").len();
            assert_eq!(count(RecordType::DNSKEY), dnskeys);
            assert_eq!((count(RecordType::CDS), count(RecordType::CDNSKEY)), (1, 1));
            let records = ring.records(RecordType::DNSKEY, &owner).expect("records");
            assert_eq!(records[0].ttl, 3600);
            assert!(records[0].name.eq_case(&owner));
        }
        assert!(at(0).records(RecordType::A, &owner).is_none());
        let zone = "fn.test".parse().expect("zone");
        assert!(Ring::new(zone, vec![], Timestamp(0), &TIMING).is_none());
    }
}
