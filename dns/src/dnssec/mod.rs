//! DNSSEC: the zone's keys, signatures of its answers, and denial of existence (RFC 4033, 4034, 4035, 6840, 9364).
//!
//! | module | what |
//! | --- | --- |
//! | [`rollover`] | pure: the stage of each key at a time |
//! | [`mod@file`] | the stored keys, sealed under a master key |
//! | [`key`] | one key: DNSKEY, DS and CDS records, signatures |
//! | [`ring`] | the keys in use at a time, and the records that publish them |
//! | [`rrset`] | pure: the data that a signature covers, and its validity period |
//! | [`denial`] | pure: compact denial of existence (RFC 9824) |
//! | [`cache`] | the cache of signatures |
//! | [`keeper`] | re-reads the key file and updates the keys' stages |
//!
//! The algorithm is ECDSA P-256 with SHA-256 (13; RFC 6605), which every validator must implement (RFC 8624, section 3.1). There is one
//! kind of key, which signs everything and is named by the parent's DS record. Keys are in a file that all servers of the zone share, and a
//! key's stage follows from times in that file, so the servers need not coordinate: their signatures differ and are equally valid.
//!
//! A record set is signed when it is first asked for after a change, and then answered from the cache until half of the signature's validity
//! period is over; it is not signed for every query. The record sets that exist are few (apps times clusters, and the zone's own). Names that
//! clients make up are unlimited: their proofs have a separate cache, and proofs that are not in it are made at a limited rate for clients
//! whose address may be forged; beyond that rate such clients are sent to TCP.

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
use self::rrset::{RecordSet, Validity};
use crate::handler::limit::{Rate, admit};
use crate::metrics::SigningMetrics;

/// The period for which unused allowance of signatures accumulates.
const BURST: Duration = Duration::from_secs(1);
const NANOS: u64 = 1_000_000_000;

/// How answers are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signing {
    /// The validity period of signatures.
    pub validity: Validity,
    /// The size of the cache for record sets that exist.
    pub answers: usize,
    /// The size of the cache for denials and wildcard expansions, which exist for the queried name only.
    pub denials: usize,
    /// Signatures of that kind per second for clients whose address may be forged. 0: no limit.
    pub denials_per_second: u32,
}

/// The properties of a query that matter for signing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigningContext {
    /// The current time in seconds since 1970, modulo 2^32.
    pub now: u32,
    /// Whether the client may have made up the name: it does not exist, or only by a wildcard.
    pub synthetic: bool,
    /// Whether the client's address is verified (not forged).
    pub verified: bool,
}

/// Why there is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The rate limit is reached.
    #[error("as many signatures as may be were made in this second")]
    RateLimited,
    /// Signing failed.
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
    /// When the token bucket of denials becomes empty, in ns since 1970 (modulo 2^32 seconds).
    due: AtomicU64,
    metrics: SigningMetrics,
}

impl Signer {
    /// Creates a signer with these keys.
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

    /// The current keys.
    #[must_use]
    pub fn ring(&self) -> Guard<Arc<Ring>> {
        self.ring.load()
    }

    /// Replaces the keys.
    pub fn set_ring(&self, ring: Ring) {
        self.ring.store(Arc::new(ring));
    }

    /// The counters of signatures.
    #[must_use]
    pub const fn metrics(&self) -> &SigningMetrics {
        &self.metrics
    }

    /// Returns the RRSIG records of a record set: records of one owner and one type. `original_ttl` is the set's time to live in the zone.
    ///
    /// # Errors
    /// When a signature cannot be made, or the rate limit is reached.
    pub fn sign(
        &self,
        records: &[Record],
        original_ttl: u32,
        context: SigningContext,
    ) -> Result<Vec<Record>, SigningError> {
        let Some(first) = records.first() else {
            return Ok(Vec::new());
        };
        let record_set = RecordSet::new(records, original_ttl).ok_or(SigningError::Failed)?;
        let ring = self.ring();
        let mut signatures = Vec::with_capacity(1);
        for key in ring.signers(first.record_type()) {
            let signature = self.signature(key, &record_set, context)?;
            let input = self.input(key, &record_set, &signature);
            let rrsig = RRSIG::from_sig(input, signature.bytes.to_vec());
            signatures.push(Record::from_rdata(
                first.name.clone(),
                // RFC 4034, section 3: the TTL equals that of the covered records.
                first.ttl,
                RData::DNSSEC(DNSSECRData::RRSIG(rrsig)),
            ));
        }
        Ok(signatures)
    }

    fn input(&self, key: &ZoneKey, record_set: &RecordSet, signature: &Signature) -> SigInput {
        SigInput {
            type_covered: record_set.kind(),
            algorithm: ALGORITHM,
            num_labels: record_set.labels(),
            original_ttl: record_set.original_ttl(),
            sig_expiration: signature.expiration.into(),
            sig_inception: signature.inception.into(),
            key_tag: key.tag(),
            signer_name: self.apex.clone().into(),
        }
    }

    /// Returns a signature from the cache, or makes a new one.
    fn signature(
        &self,
        key: &ZoneKey,
        record_set: &RecordSet,
        context: SigningContext,
    ) -> Result<Signature, SigningError> {
        let cache = if context.synthetic {
            &self.denials
        } else {
            &self.answers
        };
        let id = record_set.id(key.public());
        let held = cache
            .get(&id)
            .filter(|held| rrset::has_begun(held.inception, context.now));
        if let Some(held) = held
            && self.signing.validity.is_fresh(held.expiration, context.now)
        {
            return Ok(held);
        }
        if context.synthetic && !context.verified && !self.may_sign(context.now) {
            self.metrics.over_limit.inc();
            // A cached signature that is due for renewal is still valid.
            return held
                .filter(|held| rrset::holds(held.expiration, context.now))
                .ok_or(SigningError::RateLimited);
        }
        let (inception, expiration) = self.signing.validity.times(context.now, id[0]);
        let bytes = record_set
            .signed_data(&self.apex, key.tag(), inception, expiration)
            .and_then(|data| key.sign(&data))
            .ok_or(SigningError::Failed)?;
        self.metrics.made.inc();
        let signature = Signature {
            bytes,
            inception,
            expiration,
        };
        cache.put(id, signature);
        Ok(signature)
    }

    /// Takes one signature from the rate limit for unverified clients; false if it is used up.
    fn may_sign(&self, now: u32) -> bool {
        let Some(rate) = self.rate else { return true };
        let now = u64::from(now) * NANOS;
        let step = |due: u64| {
            // A bucket far in the future dates from before the seconds wrapped around.
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

/// Whether records of this type exist because the zone is signed, and at its apex only.
#[must_use]
pub const fn is_key_type(kind: RecordType) -> bool {
    matches!(
        kind,
        RecordType::DNSKEY | RecordType::CDS | RecordType::CDNSKEY
    )
}

#[cfg(test)]
mod tests;
