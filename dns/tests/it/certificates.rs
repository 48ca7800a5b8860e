//! Certificates of a private authority.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The name in the certificates.
pub(crate) const NAME: &str = "dns.fn.test";

/// An authority in a folder, with a certificate for the server.
pub(crate) struct Certificates {
    dir: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        // The authority needs a name of its own: if its certificates had the same one, they would look self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
        let dir = tempfile::tempdir().expect("folder");
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).expect("written");
        let all = Self { dir, authority };
        all.issue(NAME);
        all
    }

    /// Writes a new key and a certificate for `name` to the files.
    pub(crate) fn issue(&self, name: &str) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let signed = params
            .signed_by(&key, &self.authority)
            .expect("a certificate");
        std::fs::write(self.certificate(), signed.pem()).expect("written");
        std::fs::write(self.key(), key.serialize_pem()).expect("written");
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.dir().join("ca.pem")
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir().join("server.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.dir().join("server.key")
    }
}
