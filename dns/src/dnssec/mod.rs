//! DNSSEC: the zone's keys, signatures of its answers, and proofs that something does not exist (RFC 4033, 4034, 4035, 6840, 9364).
//!
//! | module | what |
//! | --- | --- |
//! | [`rollover`] | pure: in which stage each key is at a moment |
//! | [`mod@file`] | the keys at rest, sealed under a master key |
//! | [`key`] | one key: DNSKEY, DS and CDS records, signatures |
//! | [`ring`] | the keys that count at a moment, and the records that publish them |
//! | [`rrset`] | pure: what a signature covers, and for how long |
//! | [`denial`] | pure: compact denial of existence (RFC 9824) |
//! | [`cache`] | signatures that were made |
//! | [`keeper`] | reads the key file again and again, and lets keys change their stage |
//!
//! The algorithm is ECDSA P-256 with SHA-256 (13; RFC 6605), the one that every validator must know (RFC 8624, section 3.1). There is one
//! kind of key, which signs everything and is named by the parent's DS record. Keys are in files that all servers of the zone share, and a
//! key's stage follows from times in the file, so servers need not talk to each other: their signatures differ and are equally valid.
//!
//! A set of records is signed when it is first asked for after it changed, and then answered from the cache until half of the signature's
//! time is over: never for every query. Sets that anybody can ask for are few (apps times clusters, and the zone's own). Names that askers
//! make up are without number: their proofs have a cache of their own, and of those that are not in it so many are made in a second, for
//! askers who may have forged their address; the others are sent to TCP.

pub mod cache;
pub mod denial;
pub mod file;
pub mod keeper;
pub mod key;
pub mod ring;
pub mod rollover;
pub mod rrset;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use hickory_proto::dnssec::rdata::{DNSSECRData, RRSIG, SigInput};
use hickory_proto::rr::{LowerName, RData, Record, RecordType};

use self::cache::{Cache, Signature};
use self::key::{ALGORITHM, ZoneKey};
use self::ring::Ring;
use self::rrset::{Covered, Validity};
use crate::handler::limit::{Rate, admit};
use crate::metrics::SigningMetrics;

/// For how long proofs may be saved up that were not made.
const BURST: Duration = Duration::from_secs(1);
const NANOS: u64 = 1_000_000_000;

/// How answers are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signing {
    /// For how long a signature holds.
    pub validity: Validity,
    /// Signatures kept of sets that exist.
    pub answers: usize,
    /// Signatures kept of what exists for the asker's name alone: denials and records made of wildcards.
    pub denials: usize,
    /// Such signatures made in a second for askers whose address may be forged. 0: no limit.
    pub denials_per_second: u32,
}

/// Who asks, as far as signing goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Seconds since 1970, modulo 2^32.
    pub now: u32,
    /// Whether the name may be made up by the asker: it does not exist, or only by a wildcard.
    pub made_up: bool,
    /// Whether the asker's address is known to be its own.
    pub shown: bool,
}

/// Why there is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsigned {
    /// As many as may be were made in this second.
    #[error("as many signatures as may be were made in this second")]
    Busy,
    /// It cannot be made.
    #[error("the set of records cannot be signed")]
    Failed,
}

/// Signs the answers of one zone.
pub struct Signer {
    apex: LowerName,
    ring: ArcSwap<Ring>,
    signing: Signing,
    answers: Cache,
    denials: Cache,
    rate: Option<Rate>,
    /// When the bucket of denials is empty, in nanoseconds since 1970 (modulo 2^32 seconds).
    due: AtomicU64,
    metrics: SigningMetrics,
}

impl Signer {
    /// Signs with these keys.
    #[must_use]
    pub fn new(ring: Ring, signing: Signing, metrics: SigningMetrics) -> Self {
        Self {
            apex: LowerName::new(&ring.apex()),
            ring: ArcSwap::from_pointee(ring),
            answers: Cache::new(signing.answers, metrics.answers.clone()),
            denials: Cache::new(signing.denials, metrics.denials.clone()),
            rate: Rate::new(signing.denials_per_second, BURST),
            due: AtomicU64::new(0),
            signing,
            metrics,
        }
    }

    /// The zone's name.
    #[must_use]
    pub const fn apex(&self) -> &LowerName {
        &self.apex
    }

    /// The keys of this moment.
    #[must_use]
    pub fn ring(&self) -> Guard<Arc<Ring>> {
        self.ring.load()
    }

    /// Goes on with these keys.
    pub fn set_ring(&self, ring: Ring) {
        self.ring.store(Arc::new(ring));
    }

    /// What it counts in.
    #[must_use]
    pub const fn metrics(&self) -> &SigningMetrics {
        &self.metrics
    }

    /// The signatures of a set: records of one owner and one type. `original_ttl` is the time to live that the set has in the zone.
    ///
    /// # Errors
    /// When none can be made, or not now.
    pub fn sign(
        &self,
        records: &[Record],
        original_ttl: u32,
        asking: Asking,
    ) -> Result<Vec<Record>, Unsigned> {
        let Some(first) = records.first() else {
            return Ok(Vec::new());
        };
        let covered = Covered::new(records, original_ttl).ok_or(Unsigned::Failed)?;
        let ring = self.ring();
        let mut signatures = Vec::with_capacity(1);
        for key in ring.signers(first.record_type()) {
            let signature = self.signature(key, &covered, asking)?;
            let input = self.input(key, &covered, &signature);
            let rrsig = RRSIG::from_sig(input, signature.bytes.to_vec());
            signatures.push(Record::from_rdata(
                first.name.clone(),
                // RFC 4034, section 3: it lives as long as what it covers.
                first.ttl,
                RData::DNSSEC(DNSSECRData::RRSIG(rrsig)),
            ));
        }
        Ok(signatures)
    }

    fn input(&self, key: &ZoneKey, covered: &Covered, signature: &Signature) -> SigInput {
        SigInput {
            type_covered: covered.kind(),
            algorithm: ALGORITHM,
            num_labels: covered.labels(),
            original_ttl: covered.original_ttl(),
            sig_expiration: signature.expiration.into(),
            sig_inception: signature.inception.into(),
            key_tag: key.tag(),
            signer_name: self.apex.clone().into(),
        }
    }

    /// A signature from the cache, or a new one.
    fn signature(
        &self,
        key: &ZoneKey,
        covered: &Covered,
        asking: Asking,
    ) -> Result<Signature, Unsigned> {
        let cache = if asking.made_up {
            &self.denials
        } else {
            &self.answers
        };
        let id = covered.id(key.public());
        let held = cache.get(&id);
        if let Some(held) = held
            && self.signing.validity.is_fresh(held.expiration, asking.now)
        {
            return Ok(held);
        }
        if asking.made_up && !asking.shown && !self.may_sign(asking.now) {
            self.metrics.over_limit.inc();
            // An old one still holds for a while.
            return held
                .filter(|held| rrset::holds(held.expiration, asking.now))
                .ok_or(Unsigned::Busy);
        }
        let (inception, expiration) = self.signing.validity.times(asking.now, id[0]);
        let bytes = covered
            .signed_data(&self.apex, key.tag(), inception, expiration)
            .and_then(|data| key.sign(&data))
            .ok_or(Unsigned::Failed)?;
        self.metrics.made.inc();
        let signature = Signature {
            bytes,
            inception,
            expiration,
        };
        cache.put(id, signature);
        Ok(signature)
    }

    /// Takes one from the second's signatures for strangers, if there is one left.
    fn may_sign(&self, now: u32) -> bool {
        let Some(rate) = self.rate else { return true };
        let now = u64::from(now) * NANOS;
        let step = |due: u64| {
            // A bucket that is far ahead is one from before the seconds began anew.
            let due = if due > now + 2 * rate.ahead + NANOS {
                0
            } else {
                due
            };
            admit(due, now, rate)
        };
        self.due
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, step)
            .is_ok()
    }
}

/// Types that are there because the zone is signed, and that exist at its apex only.
#[must_use]
pub const fn is_key_type(kind: RecordType) -> bool {
    matches!(
        kind,
        RecordType::DNSKEY | RecordType::CDS | RecordType::CDNSKEY
    )
}

#[cfg(test)]
mod tests;
