//! A node's private key: created on the node, and stored in a file that only its owner can read.

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

/// The length of an uncompressed point on P-256, in bytes (SEC 1, section 2.3.3).
const POINT_LEN: usize = 65;

/// A node's private key.
pub struct NodeKey(KeyPair);

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeKey(…)")
    }
}

impl NodeKey {
    /// The key in `path`; if the file does not exist, it is created with a new key and mode 0600.
    ///
    /// # Errors
    /// When the file can be neither read nor created, or does not hold a P-256 key.
    pub fn read_or_create(path: &Path) -> Result<Self, ServiceError> {
        let fresh = Self::fresh()?;
        if secret::write_new(path, &fresh.to_pem())? {
            return Ok(fresh);
        }
        Self::read(path)
    }

    /// A new key that is not stored.
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn fresh() -> Result<Self, ServiceError> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
            .map(Self)
            .map_err(failed)
    }

    /// The key in the format of its file (PEM).
    #[must_use]
    pub fn to_pem(&self) -> Secret {
        Secret::new(self.0.serialize_pem())
    }

    /// The key in `path`.
    ///
    /// # Errors
    /// When the file cannot be read or does not hold a P-256 key.
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

    /// A certificate signing request (PEM, RFC 2986). The authority decides on the names; the request only proves possession of the key.
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

    /// Signs `text`. Returns the signature in base64.
    ///
    /// # Errors
    /// When signing fails.
    pub fn sign(&self, text: &str) -> Result<String, ServiceError> {
        let signature = self.0.sign(text.as_bytes()).map_err(failed)?;
        Ok(STANDARD.encode(signature))
    }

    /// The public key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.public_key_raw().to_vec())
    }
}

/// A node's public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKey {
    /// The key of a certificate signing request, whose signature proves possession of the private key.
    ///
    /// # Errors
    /// When it is not a valid request, or for another kind of key.
    pub fn of_request(pem: &str) -> Result<Self, ServiceError> {
        let request = CertificateSigningRequestParams::from_pem(pem).map_err(failed)?;
        if request.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
            return Err(failed("the key is not an ECDSA key on P-256"));
        }
        Self::from_point(request.public_key.der_bytes())
    }

    /// The key of an authority, from its certificate (PEM), if that is valid at `now`.
    ///
    /// # Errors
    /// When it is not a certificate, has another kind of key, or is not valid.
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

    /// The key of a certificate (DER), as received on a connection. Reading it does not validate the certificate.
    ///
    /// # Errors
    /// When it is not a certificate, or has another kind of key.
    pub fn of_certificate(bytes: &[u8]) -> Result<Self, ServiceError> {
        let (_, certificate) = X509Certificate::from_der(bytes).map_err(failed)?;
        Self::from_point(&certificate.public_key().subject_public_key.data)
    }

    /// Parses the key from its stored form.
    ///
    /// # Errors
    /// When it is not a key.
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

    /// Whether `signature` (base64) is a signature of `text` by this key.
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
