//! Requests and answers signed with a shared key (TSIG, RFC 8945).
//!
//! The signature of a request is checked before anything else: an unknown key, a wrong signature, or a wrong time is refused with NOTAUTH
//! and the reason (section 5.2). The answer to a valid request is signed with the same key; of a transfer, each message is signed, including
//! the signature of the previous one (section 5.3.1).

use std::fmt;
use std::sync::Arc;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::Name;
use ring::hmac;
use serde::{Deserialize, Serialize};

use super::limit::Class;
use super::wire::tsig::{Tsig, append, counted, timers};
use super::wire::{Failure, Scan};
use super::{Reply, Responder};
use crate::metrics::{QueryKind, Transport};

/// The largest allowed difference between the clocks, in seconds (RFC 8945, section 10).
const FUDGE: u16 = 300;
/// The shortest signature that is accepted for checking, in bytes (RFC 8945, section 5.2.2.1), or half of a complete one if that is more.
const SHORTEST: usize = 10;
/// The size of the other data of a signature, in bytes: the server's time, where the client's is wrong (RFC 8945, section 5.2.3).
pub(super) const OTHER: usize = 6;

/// The algorithm of a key (RFC 8945, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    #[serde(rename = "hmac-sha256")]
    Sha256,
    /// HMAC with SHA-384.
    #[serde(rename = "hmac-sha384")]
    Sha384,
    /// HMAC with SHA-512.
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

impl Algorithm {
    fn name(self) -> Name {
        let label = match self {
            Self::Sha256 => "hmac-sha256",
            Self::Sha384 => "hmac-sha384",
            Self::Sha512 => "hmac-sha512",
        };
        let mut name = Name::from_labels([label.as_bytes()]).expect("one short label");
        name.set_fqdn(true);
        name
    }

    const fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// A TSIG key. `Debug` shows its name only.
pub struct Key {
    name: Name,
    algorithm: Name,
    secret: hmac::Key,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.name)
    }
}

impl Key {
    /// Creates a key.
    #[must_use]
    pub fn new(name: &Name, algorithm: Algorithm, secret: &[u8]) -> Self {
        Self {
            name: name.to_lowercase(),
            algorithm: algorithm.name(),
            secret: hmac::Key::new(algorithm.hmac(), secret),
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &Name {
        &self.name
    }

    fn mac(&self, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.secret);
        for part in parts {
            context.update(part);
        }
        context.sign()
    }
}

/// Why a signed message is rejected (RFC 8945, section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The TSIG record is malformed.
    Malformed,
    /// The key is unknown.
    Key,
    /// The signature is wrong.
    Signature,
    /// The signature is valid, but its time is wrong.
    Time,
    /// The signature is correct, but truncated.
    Truncated,
}

impl Denied {
    /// The error code in the answer's TSIG record (RFC 8945, section 3).
    const fn code(self) -> u16 {
        match self {
            Self::Malformed => 0,
            Self::Signature => 16,
            Self::Key => 17,
            Self::Time => 18,
            Self::Truncated => 22,
        }
    }

    /// The name of the error code.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "FORMERR",
            Self::Signature => "BADSIG",
            Self::Key => "BADKEY",
            Self::Time => "BADTIME",
            Self::Truncated => "BADTRUNC",
        }
    }
}

/// The known keys.
#[derive(Clone, Debug, Default)]
pub struct Keyring(Vec<Arc<Key>>);

impl Keyring {
    /// A keyring of these keys.
    #[must_use]
    pub fn new(keys: Vec<Arc<Key>>) -> Self {
        Self(keys)
    }

    /// The key with this name.
    #[must_use]
    pub fn named(&self, name: &Name) -> Option<&Arc<Key>> {
        self.0.iter().find(|key| key.name == *name)
    }

    fn check(&self, tsig: &Tsig<'_>, now: u64) -> Result<Session, (Denied, Option<Session>)> {
        let key = self
            .named(&tsig.name)
            .filter(|key| key.algorithm == tsig.algorithm);
        let Some(key) = key else {
            return Err((Denied::Key, None));
        };
        let session = Session {
            key: Arc::clone(key),
            prior: Some(tsig.mac.to_vec()),
            further: false,
        };
        match verify(key, tsig, None, now) {
            Ok(()) => Ok(session),
            Err(denied @ (Denied::Time | Denied::Truncated)) => Err((denied, Some(session))),
            Err(denied) => Err((denied, None)),
        }
    }
}

/// Checks a signature; `prior` is the request's signature if the message is its answer.
fn verify(key: &Key, tsig: &Tsig<'_>, prior: Option<&[u8]>, now: u64) -> Result<(), Denied> {
    let before = prior.map(counted).unwrap_or_default();
    let whole = key.mac(&[&before, &tsig.message(), &tsig.variables()]);
    let (whole, shown) = (whole.as_ref(), tsig.mac);
    if shown.len() > whole.len() || shown.len() < SHORTEST.max(whole.len() / 2) {
        return Err(Denied::Malformed);
    }
    // Every byte is compared, so that the duration reveals nothing.
    let differing = whole.iter().zip(shown).fold(0, |all, (a, b)| all | (a ^ b));
    if differing != 0 {
        return Err(Denied::Signature);
    }
    if now.abs_diff(tsig.time) > u64::from(tsig.fudge) {
        return Err(Denied::Time);
    }
    if shown.len() < whole.len() {
        return Err(Denied::Truncated);
    }
    Ok(())
}

/// An exchange of signed messages.
#[derive(Debug)]
pub struct Session {
    key: Arc<Key>,
    /// The previous signature of the exchange.
    prior: Option<Vec<u8>>,
    /// Whether a message of the answer was already signed.
    further: bool,
}

impl Session {
    /// A session that begins with a request from this server.
    #[must_use]
    pub const fn begin(key: Arc<Key>) -> Self {
        Self {
            key,
            prior: None,
            further: false,
        }
    }

    /// Signs a message at `now` (seconds since 1970).
    pub fn sign(&mut self, message: &mut Vec<u8>, now: u64) {
        self.sign_with(message, now, (0, &[]));
    }

    /// The number of bytes that a signature adds to a message.
    #[must_use]
    pub fn added(&self) -> usize {
        let names = (self.key.name.clone(), self.key.algorithm.clone());
        let mac = self.key.mac(&[]);
        Tsig::fresh(names, (0, 0), (0, &[]))
            .record(mac.as_ref(), [0, 0])
            .len()
    }

    fn sign_with(&mut self, message: &mut Vec<u8>, time: u64, (error, other): (u16, &[u8])) {
        let names = (self.key.name.clone(), self.key.algorithm.clone());
        let tsig = Tsig::fresh(names, (time, FUDGE), (error, other));
        let before = self.prior.as_deref().map(counted).unwrap_or_default();
        let rest = if self.further {
            timers(time, FUDGE).to_vec()
        } else {
            tsig.variables()
        };
        let mac = self.key.mac(&[&before, message, &rest]);
        let id = message.first_chunk().copied().unwrap_or_default();
        append(message, &tsig.record(mac.as_ref(), id));
        self.further = self.prior.is_some();
        self.prior = Some(mac.as_ref().to_vec());
    }

    /// Checks the signature of an answer to the request that this session signed.
    ///
    /// # Errors
    /// When the signature is not valid.
    pub fn answered_by(&self, tsig: &Tsig<'_>, now: u64) -> Result<(), Denied> {
        if (&tsig.name, &tsig.algorithm) != (&self.key.name, &self.key.algorithm) {
            return Err(Denied::Key);
        }
        verify(&self.key, tsig, self.prior.as_deref(), now)
    }
}

impl Responder {
    /// Checks a request's signature. Returns the session that signs the answer (`None` for an unsigned request), or the error reply.
    pub(super) fn session(
        &self,
        packet: &[u8],
        scan: &Scan,
        (transport, now): (Transport, u32),
    ) -> Result<Option<Session>, Reply> {
        let Some(start) = scan.tsig else {
            return Ok(None);
        };
        let now = u64::from(now);
        let Some(tsig) = Tsig::read(packet, start) else {
            return Err(self.denied(packet, scan, transport, Denied::Malformed));
        };
        let (denied, session) = match self.guard.transfers.keys().check(&tsig, now) {
            Ok(session) => return Ok(Some(session)),
            Err(why) => why,
        };
        let mut reply = self.denied(packet, scan, transport, denied);
        let bytes = &mut reply.bytes;
        match (denied, session) {
            (Denied::Malformed, _) => {}
            // RFC 8945, section 5.2.3: signed with the client's time, and with the server's time as other data.
            (Denied::Time, Some(mut session)) => {
                let own = timers(now, 0);
                session.sign_with(bytes, tsig.time, (denied.code(), &own[..OTHER]));
            }
            (_, Some(mut session)) => session.sign_with(bytes, now, (denied.code(), &[])),
            // RFC 8945, section 5.3.2: with an empty signature.
            (_, None) => {
                let names = (tsig.name.clone(), tsig.algorithm.clone());
                let fresh = Tsig::fresh(names, (now, FUDGE), (denied.code(), &[]));
                let id = bytes.first_chunk().copied().unwrap_or_default();
                append(bytes, &fresh.record(&[], id));
            }
        }
        Err(reply)
    }

    fn denied(&self, packet: &[u8], scan: &Scan, transport: Transport, denied: Denied) -> Reply {
        let code = if denied == Denied::Malformed {
            ResponseCode::FormErr
        } else {
            ResponseCode::NotAuth
        };
        self.metrics.query(QueryKind::Other, code, transport);
        self.metrics.transfers.denied(denied.name());
        Reply {
            class: Class::Error,
            ..Reply::failure(packet, &Failure::of(scan, code), self.udp_size)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn key(algorithm: Algorithm, secret: &[u8]) -> Arc<Key> {
        let name = Name::from_ascii("Transfer.fn.test.").expect("a name");
        Arc::new(Key::new(&name, algorithm, secret))
    }

    /// A signed request for `a.`.
    fn signed(key: &Arc<Key>) -> (Session, Vec<u8>) {
        let mut message =
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x01a\x00\x00\xfc\x00\x01".to_vec();
        let mut session = Session::begin(Arc::clone(key));
        let added = session.added();
        session.sign(&mut message, NOW);
        assert_eq!(message.len(), 19 + added);
        (session, message)
    }

    fn check(keys: &Keyring, message: &[u8], now: u64) -> Result<Session, Denied> {
        let tsig = Tsig::read(message, 19).expect("a record");
        keys.check(&tsig, now).map_err(|(denied, _)| denied)
    }

    #[test]
    fn what_was_signed_with_the_key_in_this_time_is_believed() {
        for algorithm in [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512] {
            let (own, other) = (key(algorithm, b"secret"), key(algorithm, b"another"));
            let keys = Keyring::new(vec![Arc::clone(&own)]);
            let (asking, message) = signed(&own);
            for now in [NOW - 300, NOW, NOW + 300] {
                let mut answering = check(&keys, &message, now).expect("believed");
                let mut answers = [message[..19].to_vec(), message[..19].to_vec()];
                answers.iter_mut().for_each(|a| answering.sign(a, now));
                let tsig = Tsig::read(&answers[0], 19).expect("a record");
                assert_eq!(asking.answered_by(&tsig, now), Ok(()));
                // The second message is not a valid answer by itself.
                let tsig = Tsig::read(&answers[1], 19).expect("a record");
                assert_eq!(asking.answered_by(&tsig, now), Err(Denied::Signature));
            }
            for now in [NOW - 301, NOW + 301] {
                assert_eq!(check(&keys, &message, now).err(), Some(Denied::Time));
            }
            let strange = check(&Keyring::new(vec![other]), &message, NOW);
            assert_eq!(strange.err(), Some(Denied::Signature));
            assert_eq!(
                check(&Keyring::default(), &message, NOW).err(),
                Some(Denied::Key)
            );
        }
        let (sha256, sha512) = (key(Algorithm::Sha256, b"s"), key(Algorithm::Sha512, b"s"));
        let (_, message) = signed(&sha512);
        assert_eq!(
            check(&Keyring::new(vec![sha256]), &message, NOW).err(),
            Some(Denied::Key)
        );
    }

    #[test]
    fn every_byte_of_a_message_counts() {
        let own = key(Algorithm::Sha256, b"secret");
        let keys = Keyring::new(vec![Arc::clone(&own)]);
        let (_, message) = signed(&own);
        for at in 2..message.len() {
            let mut changed = message.clone();
            // Not the bit that distinguishes upper and lower case.
            changed[at] ^= 0x01;
            let believed = Tsig::read(&changed, 19).is_some_and(|t| keys.check(&t, NOW).is_ok());
            // The record's type, class, TTL and length are checked before, or are not part of the signed data.
            assert_eq!(believed, (37..47).contains(&at), "byte {at}");
        }
        // Forwarders change the message id (RFC 8945, section 4.3.2).
        let mut passed = message.clone();
        passed[..2].copy_from_slice(b"\xab\xcd");
        assert!(check(&keys, &passed, NOW).is_ok());
    }

    #[test]
    fn a_short_signature_is_refused_though_right() {
        let own = key(Algorithm::Sha256, b"secret");
        let keys = Keyring::new(vec![Arc::clone(&own)]);
        let (_, message) = signed(&own);
        let whole = Tsig::read(&message, 19).expect("a record");
        for (len, expected) in [
            (32, None),
            (31, Some(Denied::Truncated)),
            (16, Some(Denied::Truncated)),
            (15, Some(Denied::Malformed)),
            (0, Some(Denied::Malformed)),
        ] {
            let mut cut = whole.clone();
            cut.mac = &whole.mac[..len];
            assert_eq!(
                keys.check(&cut, NOW).err().map(|(denied, _)| denied),
                expected,
                "{len}"
            );
        }
        let wrong = [0; 16];
        let mut cut = whole.clone();
        cut.mac = &wrong;
        assert_eq!(
            keys.check(&cut, NOW).err().map(|(denied, _)| denied),
            Some(Denied::Signature)
        );
    }
}
