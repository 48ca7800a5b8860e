//! The certificate authority of nodes, DNS servers and controllers.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fdn_core::enrol::{ControllerIdentity, Machine};
use fdn_core::{HostName, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber, SigningKey as _,
};

use super::{BACKDATED_MS, PublicKey, date, failed, serial};
use crate::error::ServiceError;
use crate::secret::Secret;

/// A certificate authority: its certificate and its key.
pub struct Authority {
    certificate: String,
    key: Secret,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(…)")
    }
}

/// The identity in a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// A node or a DNS server.
    Machine(Machine),
    /// A controller.
    Controller(ControllerIdentity),
}

impl Bearer {
    fn common_name(&self) -> &str {
        match self {
            Self::Machine(machine) => machine.name.as_str(),
            Self::Controller(controller) => controller.name.as_str(),
        }
    }

    fn uri(&self) -> String {
        match self {
            Self::Machine(machine) => machine.to_string(),
            Self::Controller(controller) => controller.to_string(),
        }
    }
}

/// The content of a certificate to be issued.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The identity.
    pub bearer: Bearer,
    /// The addresses by which others connect to it.
    pub addresses: Vec<IpAddr>,
    /// The names by which others connect to it.
    pub names: Vec<HostName>,
}

/// An issued certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate (PEM).
    pub certificate: String,
    /// Its serial number, in hexadecimal.
    pub serial: String,
}

impl Authority {
    /// Creates an authority that is valid from `now` until `expires_at`.
    ///
    /// # Errors
    /// When the operating system provides no random numbers.
    pub fn create(now: Timestamp, expires_at: Timestamp) -> Result<Self, ServiceError> {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(failed)?;
        let serial = serial()?;
        let mut params = CertificateParams::default();
        params.not_before = date(Timestamp(now.get().saturating_sub(BACKDATED_MS)))?;
        params.not_after = date(expires_at)?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        // Authorities replace one another: each has a unique name, so that a chain identifies the right one.
        params.distinguished_name = named(&format!("FDN authority {}", hex::encode(&serial[..4])));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?.pem();
        let text = Secret::new(key.serialize_pem());
        Self::load(&certificate, &text)
    }

    /// Loads a stored authority.
    ///
    /// # Errors
    /// When the certificate or the key cannot be parsed.
    pub fn load(certificate: &str, key: &Secret) -> Result<Self, ServiceError> {
        let pair =
            KeyPair::from_pem(key.expose()).map_err(|_| failed("the authority's key is no key"))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, pair).map_err(failed)?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.clone(),
            issuer,
        })
    }

    /// Its certificate (PEM).
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its private key (PEM), for sealing.
    #[must_use]
    pub const fn key(&self) -> &Secret {
        &self.key
    }

    /// Signs `text`. Returns the signature in base64, which [`PublicKey::of_authority`] verifies.
    ///
    /// # Errors
    /// When signing fails.
    pub fn sign(&self, text: &str) -> Result<String, ServiceError> {
        let key = KeyPair::from_pem(self.key.expose())
            .map_err(|_| failed("the authority's key is no key"))?;
        let signature = key.sign(text.as_bytes()).map_err(failed)?;
        Ok(STANDARD.encode(signature))
    }

    /// Issues a certificate for `subject`'s key that is valid from `now` until `expires_at`.
    ///
    /// # Errors
    /// When a name cannot be in a certificate, or the operating system provides no random numbers.
    pub fn issue(
        &self,
        subject: &Subject,
        key: &PublicKey,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> Result<Issued, ServiceError> {
        let serial = serial()?;
        let mut params = CertificateParams::default();
        params.not_before = date(Timestamp(now.get().saturating_sub(BACKDATED_MS)))?;
        params.not_after = date(expires_at)?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.distinguished_name = named(subject.bearer.common_name());
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        // The same certificate is used as client and as server.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let uri = subject.bearer.uri();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().map_err(failed)?)];
        for address in &subject.addresses {
            let name = SanType::IpAddress(*address);
            if !params.subject_alt_names.contains(&name) {
                params.subject_alt_names.push(name);
            }
        }
        for name in &subject.names {
            let name = name.as_str().to_owned().try_into().map_err(failed)?;
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        let certificate = params.signed_by(key, &self.issuer).map_err(failed)?;
        Ok(Issued {
            certificate: certificate.pem(),
            serial: hex::encode(serial),
        })
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut all = DistinguishedName::new();
    all.push(DnType::CommonName, name);
    all
}
