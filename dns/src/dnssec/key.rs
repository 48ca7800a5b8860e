//! One key of the zone: its published records (RFC 4034, section 2; RFC 6605) and its signatures.

use fdn_core::HostName;
use hickory_proto::dnssec::rdata::{CDNSKEY, CDS, DNSKEY, DNSSECRData};
use hickory_proto::dnssec::{Algorithm, DigestType, PublicKeyBuf};
use hickory_proto::rr::RData;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use crate::policy::zone::name_of;

/// The algorithm of all keys.
pub const ALGORITHM: Algorithm = Algorithm::ECDSAP256SHA256;
/// Its number (RFC 6605, section 4).
pub const ALGORITHM_NUMBER: u8 = 13;
/// The length of a public key in bytes: the two coordinates of a point (RFC 6605, section 4).
pub const PUBLIC: usize = 64;
/// The DNSKEY flags of a zone key that is a secure entry point (RFC 4034, section 2.1.1).
const FLAGS: u16 = 257;

/// A key pair of the zone.
pub struct ZoneKey {
    pair: EcdsaKeyPair,
    public: [u8; PUBLIC],
    dnskey: DNSKEY,
    tag: u16,
    digest: Vec<u8>,
}

impl std::fmt::Debug for ZoneKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZoneKey")
            .field("tag", &self.tag)
            .finish_non_exhaustive()
    }
}

impl ZoneKey {
    /// A new private key in PKCS#8. `None` if the operating system provides no random numbers.
    #[must_use]
    pub fn generate() -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        Some(document.ok()?.as_ref().to_vec())
    }

    /// The zone key of a private key in PKCS#8. `None` if it is not a key of this algorithm.
    #[must_use]
    pub fn new(zone: &HostName, pkcs8: &[u8]) -> Option<Self> {
        let random = SystemRandom::new();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random).ok()?;
        // The first byte only says that the point is uncompressed.
        let point = pair.public_key().as_ref().get(1..)?.to_vec();
        let public = <[u8; PUBLIC]>::try_from(point.as_slice()).ok()?;
        let dnskey = DNSKEY::with_flags(FLAGS, PublicKeyBuf::new(point, ALGORITHM));
        let tag = dnskey.calculate_key_tag().ok()?;
        let digest = dnskey.to_digest(&name_of(zone), DigestType::SHA256).ok()?;
        Some(Self {
            pair,
            public,
            tag,
            digest: digest.as_ref().to_vec(),
            dnskey,
        })
    }

    /// The key tag in signatures and DS records (RFC 4034, appendix B).
    #[must_use]
    pub const fn tag(&self) -> u16 {
        self.tag
    }

    /// The public key.
    #[must_use]
    pub const fn public(&self) -> &[u8; PUBLIC] {
        &self.public
    }

    /// Signs `data`. `None` if the operating system provides no random numbers.
    #[must_use]
    pub fn sign(&self, data: &[u8]) -> Option<[u8; 64]> {
        let signature = self.pair.sign(&SystemRandom::new(), data).ok()?;
        signature.as_ref().try_into().ok()
    }

    /// The data of its DNSKEY record.
    #[must_use]
    pub fn dnskey(&self) -> RData {
        RData::DNSSEC(DNSSECRData::DNSKEY(self.dnskey.clone()))
    }

    /// The data of its CDS record, which asks the parent for a DS record (RFC 7344, section 3.1).
    #[must_use]
    pub fn cds(&self) -> RData {
        let digest = self.digest.clone();
        let cds = CDS::new(self.tag, Some(ALGORITHM), DigestType::SHA256, digest);
        RData::DNSSEC(DNSSECRData::CDS(cds))
    }

    /// The data of its CDNSKEY record, for parents that compute the digest themselves (RFC 7344, section 3.2).
    #[must_use]
    pub fn cdnskey(&self) -> RData {
        let cdnskey = CDNSKEY::with_flags(FLAGS, Some(ALGORITHM), self.public.to_vec());
        RData::DNSSEC(DNSSECRData::CDNSKEY(cdnskey))
    }

    /// The DS record for the parent (RFC 4034, section 5.3) in zone file format, with a SHA-256 digest (RFC 4509).
    #[must_use]
    pub fn ds(&self, zone: &HostName) -> String {
        let digest = hex::encode_upper(&self.digest);
        format!("{zone}. IN DS {} {ALGORITHM_NUMBER} 2 {digest}", self.tag)
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::dnssec::Verifier;

    use super::*;

    #[test]
    fn a_key_is_published_and_signs() {
        let zone: HostName = "fn.test".parse().expect("zone");
        let pkcs8 = ZoneKey::generate().expect("random");
        let key = ZoneKey::new(&zone, &pkcs8).expect("a key");
        assert_eq!(ZoneKey::new(&zone, &pkcs8).expect("a key").tag(), key.tag());
        let signature = key.sign(b"data").expect("random");
        let RData::DNSSEC(DNSSECRData::DNSKEY(dnskey)) = key.dnskey() else {
            panic!("no DNSKEY");
        };
        assert_eq!(dnskey.flags(), 257);
        dnskey.verify(b"data", &signature).expect("it is right");
        dnskey
            .verify(b"date", &signature)
            .expect_err("it is not for that");
        let ds = key.ds(&zone);
        assert!(
            ds.starts_with(&format!("fn.test. IN DS {} 13 2 ", key.tag())),
            "{ds}"
        );
        assert_eq!(ds.rsplit(' ').next().expect("digest").len(), 64);
        assert!(!format!("{key:?}").contains("pair"));
        assert!(ZoneKey::new(&zone, &pkcs8[1..]).is_none());
    }

    /// RFC 4034, section 5.1.4 and appendix B, computed by hand.
    #[test]
    fn the_digest_is_of_owner_and_data() {
        let zone: HostName = "fn.test".parse().expect("zone");
        let key = ZoneKey::new(&zone, &ZoneKey::generate().expect("random")).expect("a key");
        let data = [
            b"\x02fn\x04test\x00\x01\x01\x03\x0d".as_slice(),
            key.public(),
        ]
        .concat();
        let digest = ring::digest::digest(&ring::digest::SHA256, &data);
        assert_eq!(key.digest, digest.as_ref());
        // RFC 4034, appendix B: the sum of the data's 16-bit words, with the carry added.
        let words = data[9..]
            .chunks(2)
            .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
        let sum: u32 = words.sum();
        assert_eq!(u32::from(key.tag()), (sum + (sum >> 16)) & 0xffff);
    }
}
