//! DNSSEC settings, their checks, and the parameters derived from them.

use std::path::PathBuf;

use fdn_core::{DurationMs, HostName};
use serde::{Deserialize, Serialize};

use super::{Settings, ZoneSettings};
use crate::dnssec::Signing;
use crate::dnssec::file::{KeyError, MasterSource};
use crate::dnssec::keeper::KeySource;
use crate::dnssec::rollover::Timing;
use crate::dnssec::rrset::Validity;
use crate::error::Error;

/// The shortest and the longest validity of signatures in ms: a day, and a quarter of a year.
const VALIDITY: std::ops::RangeInclusive<u64> = 86_400_000..=7_776_000_000;
/// The largest size of each signature cache: about 4 GiB.
const SIGNATURES_MAX: usize = 1 << 24;

/// DNSSEC settings: whether the zone is signed, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DnssecSettings {
    /// The file of the zone's keys; absent: the zone is not signed.
    pub key_file: Option<PathBuf>,
    /// The file with the master key that the keys are sealed under.
    pub master_key_file: Option<PathBuf>,
    /// An environment variable that holds the master key instead.
    pub master_key_variable: Option<String>,
    /// The time to live of DNSKEY, CDS and CDNSKEY.
    pub key_ttl: DurationMs,
    /// How long a changed key file takes to reach every server.
    pub propagation: DurationMs,
    /// The time to live of the DS record at the parent, plus the time that its servers take to publish it.
    pub parent_ttl: DurationMs,
    /// How long a key is kept after the next one has become active.
    pub drain: DurationMs,
    /// The validity period of signatures.
    pub validity: DurationMs,
    /// The interval at which the key file is re-read.
    pub check_interval: DurationMs,
    /// The size of the cache for record sets that exist.
    pub signatures: usize,
    /// The size of the cache for denials and wildcard expansions.
    pub denial_signatures: usize,
    /// Signatures of that kind per second for clients over UDP without a valid cookie. 0: no limit.
    pub denials_per_second: u32,
}

impl Default for DnssecSettings {
    fn default() -> Self {
        Self {
            key_file: None,
            master_key_file: None,
            master_key_variable: None,
            key_ttl: DurationMs::from_secs(3600),
            propagation: DurationMs::from_secs(3600),
            parent_ttl: DurationMs::from_secs(48 * 3600),
            drain: DurationMs::from_secs(48 * 3600),
            validity: DurationMs::from_secs(14 * 86_400),
            check_interval: DurationMs::from_secs(10),
            signatures: 65_536,
            denial_signatures: 65_536,
            denials_per_second: 2000,
        }
    }
}

impl DnssecSettings {
    /// The timing of roll-overs.
    #[must_use]
    pub const fn timing(&self) -> Timing {
        Timing {
            key_ttl: self.key_ttl.as_millis(),
            propagation: self.propagation.as_millis(),
            parent_ttl: self.parent_ttl.as_millis(),
            drain: self.drain.as_millis(),
        }
    }

    /// The source of the master key.
    ///
    /// # Errors
    /// When none is configured.
    pub fn master(&self) -> Result<MasterSource, KeyError> {
        match (&self.master_key_variable, &self.master_key_file) {
            (Some(name), _) => Ok(MasterSource::Variable(name.clone())),
            (None, Some(path)) => Ok(MasterSource::File(path.clone())),
            (None, None) => Err(KeyError::NoMaster),
        }
    }

    /// The source of the zone's keys; `None` if the zone is not signed.
    ///
    /// # Errors
    /// When no source of the master key is configured.
    pub fn source(&self, zone: &HostName) -> Result<Option<KeySource>, KeyError> {
        let Some(path) = &self.key_file else {
            return Ok(None);
        };
        Ok(Some(KeySource {
            zone: zone.clone(),
            path: path.clone(),
            master: self.master()?,
            timing: self.timing(),
            every: self.check_interval.as_duration(),
        }))
    }

    /// The parameters of signing.
    #[must_use]
    pub fn signing(&self) -> Signing {
        let seconds = self.validity.as_millis() / 1000;
        Signing {
            validity: Validity::new(u32::try_from(seconds).unwrap_or(u32::MAX)),
            answers: self.signatures,
            denials: self.denial_signatures,
            denials_per_second: self.denials_per_second,
        }
    }
}

impl ZoneSettings {
    /// The longest time to live in the zone in ms, without apps, whose TTLs are seconds.
    fn longest_ttl(&self) -> u64 {
        let own = self.records.iter().filter_map(|record| record.ttl);
        own.chain([self.ttl, self.negative_ttl])
            .map(DurationMs::as_millis)
            .max()
            .unwrap_or(0)
    }
}

impl Settings {
    /// Checks the DNSSEC settings, without reading files.
    pub(super) fn validate_dnssec(&self) -> Result<(), Error> {
        let dnssec = &self.zone.dnssec;
        let fail = |key, reason: &str| {
            Err(Error::Setting {
                key,
                reason: reason.to_owned(),
            })
        };
        if dnssec.key_file.is_none() {
            return Ok(());
        }
        dnssec.master()?;
        if !VALIDITY.contains(&dnssec.validity.as_millis()) {
            return fail("zone.dnssec.validity", "must be between 24h and 2160h");
        }
        if dnssec.key_ttl.as_millis() < 1000
            || dnssec.key_ttl.as_millis() > dnssec.validity.as_millis() / 4
        {
            return fail(
                "zone.dnssec.key_ttl",
                "must be at least 1s and at most a quarter of zone.dnssec.validity",
            );
        }
        if dnssec.drain.as_millis() < self.zone.longest_ttl() {
            return fail(
                "zone.dnssec.drain",
                "must not be shorter than the longest time to live in the zone",
            );
        }
        if dnssec.check_interval.as_millis() == 0 {
            return fail("zone.dnssec.check_interval", "must be longer than 0s");
        }
        for (key, most) in [
            ("zone.dnssec.signatures", dnssec.signatures),
            ("zone.dnssec.denial_signatures", dnssec.denial_signatures),
        ] {
            if !(32..=SIGNATURES_MAX).contains(&most) {
                return fail(key, "must be between 32 and 16777216");
            }
        }
        Ok(())
    }
}
