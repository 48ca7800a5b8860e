//! Decisions about enrolment and renewal: pure functions of stored rows and the time.

use fdn_core::enrol::{EnrolRequest, NodeAddresses, RENEW_WINDOW, RenewRequest, renew_at};
use fdn_core::fleet::JoinTokenInfo;
use fdn_core::{DurationMs, NodeId, Timestamp};

use super::EnrolError;
use crate::store::enrolment::{CertificateRow, EnrolmentRow};

/// Checks that a token is valid for a machine at `now`.
///
/// # Errors
/// With the reason why it is not.
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

/// The machine that has a name now.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    /// The enrolment.
    pub(super) enrolment: EnrolmentRow,
    /// Whether the new machine has the same key.
    pub(super) same_key: bool,
    /// Whether it has reported recently.
    pub(super) alive: bool,
}

/// How a new machine relates to the one that has the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// Nobody has the name.
    New,
    /// The same request again, as its response was lost. It does not consume a use of the token.
    Again,
    /// The same machine with another token.
    Same,
    /// A machine that replaces one that is gone; the certificates of that one are revoked.
    Replace,
}

/// Judges how a new machine with a valid token relates to the one that has the name.
///
/// # Errors
/// When another machine keeps the name.
pub(super) fn relate(
    node: &NodeId,
    token: &JoinTokenInfo,
    holder: Option<&Holder>,
) -> Result<Relation, EnrolError> {
    let Some(holder) = holder else {
        return Ok(Relation::New);
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
        (true, _) if enrolment.token == token.id => Ok(Relation::Again),
        (true, _) => Ok(Relation::Same),
        (false, true) => Err(taken("is alive".to_owned())),
        (false, false) => Ok(Relation::Replace),
    }
}

/// The enrolment whose certificate may be renewed at `now`, provided that the signature is right.
///
/// # Errors
/// With the reason why there is none.
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

/// The most certificates that one join token issues to one machine whose responses are lost.
const REISSUE_MAX: u64 = 8;

/// Checks that a machine with `live` valid certificates may get another one by the token that admitted it.
///
/// # Errors
/// When it has too many.
pub(super) const fn check_reissue(live: u64) -> Result<(), EnrolError> {
    if live < REISSUE_MAX {
        return Ok(());
    }
    Err(EnrolError::Certificate(
        "the join token has made certificates for this machine again and again",
    ))
}

/// Checks that a machine may get its next certificate at `now`: `present` must be due, and each further valid certificate doubles the pause since
/// the `newest`. So a machine whose responses are lost never waits forever, and whoever has its key gets about a dozen at a time at most.
///
/// # Errors
/// With the time to wait.
pub(super) fn due(
    present: &CertificateRow,
    newest: Option<&CertificateRow>,
    live: u64,
    now: Timestamp,
) -> Result<(), EnrolError> {
    // The machine decides by its own clock, which may be ahead.
    let due_at = renew_at(present.issued_at, present.expires_at);
    let early = due_at
        .get()
        .saturating_sub(now.get().saturating_add(RENEW_WINDOW.as_millis()));
    let pause = match (newest, live.saturating_sub(1)) {
        (None, _) | (_, 0) => 0,
        (Some(newest), others) => {
            let life = newest
                .expires_at
                .get()
                .saturating_sub(newest.issued_at.get());
            let factor = 1_u64 << others.min(32);
            let pause = (life / PAUSES).saturating_mul(factor);
            let ends = newest.issued_at.get().saturating_add(pause);
            ends.saturating_sub(now.get())
        }
    };
    match early.max(pause) {
        0 => Ok(()),
        wait => Err(EnrolError::TooSoon {
            wait_s: wait.div_ceil(1000),
        }),
    }
}

/// The lifetime of a certificate divided by this is half of the first pause: about four minutes for a lifetime of a month.
const PAUSES: u64 = 10_000;

/// The addresses of a machine after its renewal. Others send users and requests to them, so the hosts stay those that the machine joined with;
/// ports may change, and names are set only when it joins.
///
/// # Errors
/// When a host differs.
pub(super) fn updated_addresses(
    known: &NodeAddresses,
    asked: &NodeAddresses,
) -> Result<NodeAddresses, EnrolError> {
    let same = |a: std::net::SocketAddr, b: std::net::SocketAddr| {
        a.ip().to_canonical() == b.ip().to_canonical()
    };
    if !same(known.gateway, asked.gateway) || !same(known.admin, asked.admin) {
        return Err(EnrolError::Moved);
    }
    Ok(NodeAddresses {
        names: known.names.clone(),
        ..asked.or(known)
    })
}

#[cfg(test)]
mod tests {
    use fdn_core::enrol::Role;
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
            relate(&node, &token(id), Some(&holder)).map_err(|error| error.code())
        };
        assert_eq!(relate(&node, &token(1), None).expect("free"), Relation::New);
        for alive in [true, false] {
            assert_eq!(judged(1, "eu-1", true, alive), Ok(Relation::Again));
            assert_eq!(judged(2, "eu-1", true, alive), Ok(Relation::Same));
            assert_eq!(
                judged(1, "eu-2", true, alive),
                Err(ErrorCode::NodeNameTaken)
            );
        }
        assert_eq!(
            judged(1, "eu-1", false, true),
            Err(ErrorCode::NodeNameTaken)
        );
        assert_eq!(judged(1, "eu-1", false, false), Ok(Relation::Replace));
    }

    #[test]
    fn a_machine_gets_its_next_certificate_when_it_is_due_and_few_more() {
        let day = 86_400_000_u64;
        let made = |at: u64| CertificateRow {
            serial: at.to_string(),
            node: "n".parse().expect("node"),
            public_key: String::new(),
            issued_at: Timestamp(at),
            expires_at: Timestamp(at + 30 * day),
            revoked_at: None,
        };
        let first = made(0);
        let fine = |newest: &CertificateRow, live, now| {
            due(&first, Some(newest), live, Timestamp(now)).is_ok()
        };
        assert!(!fine(&first, 1, day), "not due");
        assert!(fine(&first, 1, 20 * day - 299_000), "clocks differ");
        // Its response was lost: not at once again, but well before the first one expires.
        let second = made(20 * day);
        assert!(!fine(&second, 2, 20 * day + 60_000));
        assert!(fine(&second, 2, 20 * day + 600_000));
        // A machine that asks all the time until the first one expires gets few.
        let (mut all, mut now) = (vec![first.clone()], 20 * day);
        while now < 30 * day {
            let live = all.iter().filter(|one| now < one.expires_at.get()).count();
            if due(&first, all.last(), live as u64, Timestamp(now)).is_ok() {
                all.push(made(now));
            }
            now += 60_000;
        }
        assert!((8..16).contains(&all.len()), "{}", all.len());
        assert!(check_reissue(7).is_ok() && check_reissue(8).is_err());
    }

    #[test]
    fn a_machine_stays_at_the_hosts_that_it_joined_with() {
        let known = addresses();
        let at = |gateway: &str, admin: &str| NodeAddresses {
            gateway: gateway.parse().expect("address"),
            admin: admin.parse().expect("address"),
            peer: None,
            names: vec!["console.example".parse().expect("a name")],
        };
        let ports = updated_addresses(&known, &at("192.0.2.1:8080", "[::ffff:192.0.2.1]:9"))
            .expect("the same");
        assert_eq!((ports.gateway.port(), ports.names.len()), (8080, 0));
        assert!(updated_addresses(&known, &at("192.0.2.2:80", "192.0.2.1:81")).is_err());
        assert!(updated_addresses(&known, &at("192.0.2.1:80", "169.254.169.254:80")).is_err());
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
