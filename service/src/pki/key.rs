//! A node's key: made on the node, kept in a file that only its owner can read.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fdn_core::{NodeId, Timestamp};
use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType, KeyPair,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm, SigningKey as _,
};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

use super::failed;
use crate::error::ServiceError;
use crate::secret::{self, Secret};

/// Bytes of a point on P-256 that is not compressed (SEC 1, section 2.3.3).
const POINT_LEN: usize = 65;

/// A node's key.
pub struct NodeKey(KeyPair);

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(…)")
    }
}

impl NodeKey {
    /// The key in `path`; a new one, written there with mode 0600, if the file does not exist.
    ///
    /// # Errors
    /// When the file can be neither read nor made, or holds no key on P-256.
    pub fn read_or_create(path: &Path) -> Result<Self, ServiceError> {
        let fresh = Self::fresh()?;
        if secret::write_new(path, &fresh.to_pem())? {
            return Ok(fresh);
        }
        Self::read(path)
    }

    /// A new key that is kept nowhere.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn fresh() -> Result<Self, ServiceError> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map(Self)
            .map_err(failed)
    }

    /// The key as it is kept in a file (PEM).
    #[must_use]
    pub fn to_pem(&self) -> Secret {
        Secret::new(self.0.serialize_pem())
    }

    /// The key in `path`.
    ///
    /// # Errors
    /// When the file cannot be read or holds no key on P-256.
    pub fn read(path: &Path) -> Result<Self, ServiceError> {
        let text = secret::read(path)?;
        let key = KeyPair::from_pem(text.expose()).ok();
        key.filter(|key| key.is_compatible(&PKCS_ECDSA_P256_SHA256))
            .map(Self)
            .ok_or_else(|| ServiceError::File {
                path: path.to_owned(),
                reason: "it holds no ECDSA key on P-256 (PEM); remove the file and join again"
                    .to_owned(),
            })
    }

    /// A certificate signing request (PEM, RFC 2986). The authority decides on the names; the request only shows that the key is held.
    ///
    /// # Errors
    /// When signing fails.
    pub fn request(&self, node: &NodeId) -> Result<String, ServiceError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, node.as_str());
        let request = params.serialize_request(&self.0).map_err(failed)?;
        request.pem().map_err(failed)
    }

    /// A signature of `text`, base64.
    ///
    /// # Errors
    /// When signing fails.
    pub fn sign(&self, text: &str) -> Result<String, ServiceError> {
        let signature = self.0.sign(text.as_bytes()).map_err(failed)?;
        Ok(STANDARD.encode(signature))
    }

    /// The public half.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key_raw().to_vec())
    }
}

/// The public half of a node's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// The key of a certificate signing request whose signature shows that its sender holds it.
    ///
    /// # Errors
    /// When it is no such request, or for another kind of key.
    pub fn of_request(pem: &str) -> Result<Self, ServiceError> {
        let request = CertificateSigningRequestParams::from_pem(pem).map_err(failed)?;
        if request.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
            return Err(failed("the key is not an ECDSA key on P-256"));
        }
        Self::from_point(request.public_key.der_bytes())
    }

    /// The key of an authority, by its certificate (PEM), if that counts at `now`.
    ///
    /// # Errors
    /// When it is no certificate, of another kind of key, or has ended.
    pub fn of_authority(pem: &str, now: Timestamp) -> Result<Self, ServiceError> {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).map_err(failed)?;
        let certificate = pem.parse_x509().map_err(failed)?;
        let seconds = i64::try_from(now.get() / 1000).map_err(failed)?;
        let now = ASN1Time::from_timestamp(seconds).map_err(failed)?;
        if !certificate.validity().is_valid_at(now) {
            return Err(failed("the authority's certificate does not count now"));
        }
        Self::from_point(&certificate.public_key().subject_public_key.data)
    }

    /// The key of a certificate as it comes with a connection. Reading it does not mean that the certificate counts.
    ///
    /// # Errors
    /// When it is no certificate, or of another kind of key.
    pub fn of_certificate(bytes: &[u8]) -> Result<Self, ServiceError> {
        let (_, certificate) = X509Certificate::from_der(bytes).map_err(failed)?;
        Self::from_point(&certificate.public_key().subject_public_key.data)
    }

    /// The key in its stored form.
    ///
    /// # Errors
    /// When it is none.
    pub fn from_text(text: &str) -> Result<Self, ServiceError> {
        Self::from_point(&STANDARD.decode(text).map_err(failed)?)
    }

    fn from_point(point: &[u8]) -> Result<Self, ServiceError> {
        if point.len() != POINT_LEN || point[0] != 4 {
            return Err(failed("the key is no whole point of P-256"));
        }
        Ok(Self(point.to_vec()))
    }

    /// The stored form: base64 of the point.
    #[must_use]
    pub fn to_text(&self) -> String {
        STANDARD.encode(&self.0)
    }

    /// Whether `signature` (base64) is the key's, of `text`.
    #[must_use]
    pub fn verifies(&self, text: &str, signature: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else {
            return false;
        };
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0)
            .verify(text.as_bytes(), &signature)
            .is_ok()
    }
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
