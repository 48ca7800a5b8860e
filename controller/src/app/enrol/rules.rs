//! Who may come in: decisions from what is stored and the time, without reading either.

use fdn_core::enrol::{EnrolRequest, RENEW_WINDOW, RenewRequest};
use fdn_core::fleet::JoinTokenInfo;
use fdn_core::{DurationMs, NodeId, Timestamp};

use super::EnrolError;
use crate::store::enrolment::{CertificateRow, EnrolmentRow};

/// Whether a token is good for a machine at `now`.
///
/// # Errors
/// Why not.
pub(super) fn token_fits(
    token: &JoinTokenInfo,
    request: &EnrolRequest,
    now: Timestamp,
) -> Result<(), EnrolError> {
    let cluster = token.cluster.clone();
    if token.revoked_at.is_some() {
        return Err(EnrolError::Revoked { cluster });
    }
    if now >= token.expires_at {
        let ago_s = now.since(token.expires_at).as_secs();
        return Err(EnrolError::Expired { ago_s, cluster });
    }
    if token.role != request.role {
        return Err(EnrolError::Role {
            token: token.role,
            asked: request.role,
            cluster,
        });
    }
    let meant = match (&request.cluster, &request.region) {
        (Some(meant), _) if *meant != token.cluster => format!("cluster {meant}"),
        (_, Some(meant)) if *meant != token.region => format!("region {meant}"),
        _ => return Ok(()),
    };
    Err(EnrolError::Elsewhere {
        cluster,
        region: token.region.clone(),
        meant,
    })
}

/// Who has a name now.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    /// The enrolment.
    pub(super) enrolment: EnrolmentRow,
    /// Whether the newcomer holds its key.
    pub(super) same_key: bool,
    /// Whether it was heard lately.
    pub(super) alive: bool,
}

/// What a newcomer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A new node.
    New,
    /// The same request again: its answer was lost. It takes no use of the token.
    Again,
    /// The same machine, with another token.
    Same,
    /// A machine in the place of one that is gone, whose certificates no longer count.
    Replace,
}

/// What a newcomer with a good token is to the node that has the name.
///
/// # Errors
/// When the name is another's.
pub(super) fn judge(
    node: &NodeId,
    token: &JoinTokenInfo,
    holder: Option<&Holder>,
) -> Result<Verdict, EnrolError> {
    let Some(holder) = holder else {
        return Ok(Verdict::New);
    };
    let taken = |why: String| EnrolError::NameTaken {
        node: node.clone(),
        why,
    };
    let enrolment = &holder.enrolment;
    if enrolment.role != token.role {
        return Err(taken(format!("is a {}", enrolment.role.noun())));
    }
    if enrolment.cluster != token.cluster {
        return Err(taken(format!("belongs to cluster {}", enrolment.cluster)));
    }
    match (holder.same_key, holder.alive) {
        (true, _) if enrolment.token == token.id => Ok(Verdict::Again),
        (true, _) => Ok(Verdict::Same),
        (false, true) => Err(taken("is alive".to_owned())),
        (false, false) => Ok(Verdict::Replace),
    }
}

/// The enrolment whose certificate may be renewed at `now`, if the signature is right.
///
/// # Errors
/// Why it may not.
pub(super) fn renewable(
    present: &CertificateRow,
    enrolment: Option<EnrolmentRow>,
    request: &RenewRequest,
    grace: DurationMs,
    now: Timestamp,
) -> Result<EnrolmentRow, EnrolError> {
    let Some(enrolment) = enrolment.filter(|row| row.removed_at.is_none()) else {
        return Err(EnrolError::Certificate("the node was removed"));
    };
    if present.revoked_at.is_some() {
        return Err(EnrolError::Certificate("the certificate was revoked"));
    }
    if now.since(present.expires_at) > grace.as_duration() {
        return Err(EnrolError::Certificate(
            "the certificate ended too long ago",
        ));
    }
    let off = request.at.get().abs_diff(now.get());
    if off > RENEW_WINDOW.as_millis() {
        return Err(EnrolError::Clock {
            off_s: off / 1000,
            window_s: RENEW_WINDOW.as_millis() / 1000,
        });
    }
    Ok(enrolment)
}

#[cfg(test)]
mod tests {
    use fdn_core::enrol::{NodeAddresses, Role};
    use fdn_core::{Coded, EnrolmentId, ErrorCode, JoinTokenId};
    use uuid::Uuid;

    use super::*;

    fn token(id: u128) -> JoinTokenInfo {
        JoinTokenInfo {
            id: JoinTokenId::from_uuid(Uuid::from_u128(id)),
            role: Role::Node,
            cluster: "eu-1".parse().expect("cluster"),
            region: "eu".parse().expect("region"),
            uses: 1,
            uses_left: 1,
            created_at: Timestamp(0),
            created_by: "admin".to_owned(),
            expires_at: Timestamp(1000),
            revoked_at: None,
        }
    }

    fn addresses() -> NodeAddresses {
        NodeAddresses {
            gateway: "192.0.2.1:80".parse().expect("address"),
            admin: "192.0.2.1:81".parse().expect("address"),
            peer: None,
            names: Vec::new(),
        }
    }

    fn request(cluster: Option<&str>, region: Option<&str>) -> EnrolRequest {
        EnrolRequest {
            role: Role::Node,
            token: String::new(),
            node: "n".parse().expect("node"),
            csr: String::new(),
            addresses: addresses(),
            cluster: cluster.map(|c| c.parse().expect("cluster")),
            region: region.map(|r| r.parse().expect("region")),
        }
    }

    fn enrolment(cluster: &str) -> EnrolmentRow {
        EnrolmentRow {
            node: "n".parse().expect("node"),
            id: EnrolmentId::from_uuid(Uuid::from_u128(1)),
            role: Role::Node,
            cluster: cluster.parse().expect("cluster"),
            token: token(1).id,
            addresses: addresses(),
            enrolled_at: Timestamp(0),
            removed_at: None,
        }
    }

    #[test]
    fn a_token_is_good_in_its_time_and_place() {
        let code = |token: &JoinTokenInfo, request: EnrolRequest, now| {
            token_fits(token, &request, Timestamp(now))
                .map_err(|error| error.code())
                .err()
        };
        let good = token(1);
        for fine in [
            request(None, None),
            request(Some("eu-1"), None),
            request(Some("eu-1"), Some("eu")),
        ] {
            assert_eq!(code(&good, fine, 999), None);
        }
        assert_eq!(
            code(&good, request(None, None), 1000),
            Some(ErrorCode::JoinTokenExpired)
        );
        for other in [
            request(Some("eu-2"), Some("eu")),
            request(None, Some("us")),
            request(Some("eu-1"), Some("us")),
        ] {
            assert_eq!(code(&good, other, 1), Some(ErrorCode::JoinElsewhere));
        }
        let revoked = JoinTokenInfo {
            revoked_at: Some(Timestamp(5)),
            ..good
        };
        assert_eq!(
            code(&revoked, request(None, None), 6),
            Some(ErrorCode::JoinTokenRevoked)
        );
    }

    #[test]
    fn a_name_is_taken_over_only_from_the_dead() {
        let node: NodeId = "n".parse().expect("node");
        let judged = |id, cluster: &str, same_key, alive| {
            let holder = Holder {
                enrolment: enrolment(cluster),
                same_key,
                alive,
            };
            judge(&node, &token(id), Some(&holder)).map_err(|error| error.code())
        };
        assert_eq!(judge(&node, &token(1), None).expect("free"), Verdict::New);
        for alive in [true, false] {
            assert_eq!(judged(1, "eu-1", true, alive), Ok(Verdict::Again));
            assert_eq!(judged(2, "eu-1", true, alive), Ok(Verdict::Same));
            assert_eq!(
                judged(1, "eu-2", true, alive),
                Err(ErrorCode::NodeNameTaken)
            );
        }
        assert_eq!(
            judged(1, "eu-1", false, true),
            Err(ErrorCode::NodeNameTaken)
        );
        assert_eq!(judged(1, "eu-1", false, false), Ok(Verdict::Replace));
    }

    #[test]
    fn a_certificate_is_renewed_unless_it_was_revoked_or_long_over() {
        let present = CertificateRow {
            serial: "ab".to_owned(),
            node: "n".parse().expect("node"),
            public_key: String::new(),
            issued_at: Timestamp(0),
            expires_at: Timestamp(1_000_000),
            revoked_at: None,
        };
        let grace = DurationMs::from_millis(500_000);
        let renewed = |present: &CertificateRow, row: Option<EnrolmentRow>, at, now| {
            let request = RenewRequest {
                serial: "ab".to_owned(),
                at: Timestamp(at),
                addresses: addresses(),
                signature: String::new(),
            };
            renewable(present, row, &request, grace, Timestamp(now)).is_ok()
        };
        let row = || Some(enrolment("eu-1"));
        assert!(renewed(&present, row(), 700_000, 700_000));
        assert!(
            renewed(&present, row(), 1_500_000, 1_500_000),
            "within the grace"
        );
        assert!(!renewed(&present, row(), 1_500_001, 1_500_001));
        assert!(renewed(&present, row(), 400_000, 700_000));
        assert!(
            !renewed(&present, row(), 399_999, 700_000),
            "an old request"
        );
        assert!(
            !renewed(&present, row(), 1_000_001, 700_000),
            "a clock ahead"
        );
        assert!(!renewed(&present, None, 1, 1));
        let removed = EnrolmentRow {
            removed_at: Some(Timestamp(1)),
            ..enrolment("eu-1")
        };
        assert!(!renewed(&present, Some(removed), 1, 1));
        let revoked = CertificateRow {
            revoked_at: Some(Timestamp(1)),
            ..present
        };
        assert!(!renewed(&revoked, row(), 1, 1));
    }
}
