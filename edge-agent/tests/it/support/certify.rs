//! Certificates of a simulated network.

use fdn_core::Timestamp;
use fdn_service::pki::tls::Credentials;
use fdn_service::pki::{Authority, Bearer, NodeKey, Subject};

/// Credentials that are valid for ten days.
pub(super) fn certify(authority: &Authority, bearer: Bearer, key: &NodeKey) -> Credentials {
    let end = Timestamp(fdn_service::now().get() + 864_000_000);
    certify_until(authority, bearer, key, end)
}

/// Credentials that expire at `end`, issued a day before that, or now.
pub(super) fn certify_until(
    authority: &Authority,
    bearer: Bearer,
    key: &NodeKey,
    end: Timestamp,
) -> Credentials {
    let now = fdn_service::now().min(Timestamp(end.get() - 86_400_000));
    let subject = Subject {
        bearer,
        addresses: Vec::new(),
        names: Vec::new(),
    };
    let issued = authority
        .issue(&subject, &key.public(), now, end)
        .expect("issued");
    Credentials {
        authorities: authority.certificate().to_owned(),
        certificate: issued.certificate,
        key: key.to_pem(),
    }
}
