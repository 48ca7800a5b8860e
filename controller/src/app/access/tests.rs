use super::*;
use crate::store::enrolment::EnrolmentRow;
use fdn_core::TenantRole;

const HOME: TenantId = TenantId::from_uuid(uuid::Uuid::from_u128(1));
const ELSEWHERE: TenantId = TenantId::from_uuid(uuid::Uuid::from_u128(2));

fn person(network_role: Option<NetworkRole>, role: Option<TenantRole>) -> Person {
    let member = |role| Membership {
        id: HOME,
        tenant: "home".parse().expect("tenant"),
        role,
        suspended: false,
    };
    Person {
        name: "ann".parse().expect("user"),
        network_role,
        tenants: role.map(member).into_iter().collect(),
        credential: Credential::Session {
            id: SessionId::from_uuid(uuid::Uuid::from_u128(3)),
            kind: SessionKind::Bearer,
            csrf: None,
        },
        expires_at: Timestamp(1),
    }
}

fn token(person: Person, scopes: &[Right], tenant: Option<TenantId>) -> Person {
    Person {
        credential: Credential::Token {
            id: ApiTokenId::from_uuid(uuid::Uuid::from_u128(4)),
            scopes: scopes.iter().copied().collect(),
            tenant,
        },
        ..person
    }
}

#[test]
fn a_member_has_the_rights_of_the_role_and_only_there() {
    for role in TenantRole::ALL {
        let member = person(None, Some(*role));
        for right in Right::ALL {
            let (here, there) = (
                member.allowed(*right, Some(HOME)),
                member.allowed(*right, Some(ELSEWHERE)),
            );
            match right.scope() {
                Scope::Everyone => assert_eq!((here, there), (Verdict::Allowed, Verdict::Allowed)),
                Scope::Tenant => {
                    assert_eq!(here == Verdict::Allowed, role.has(*right), "{role} {right}");
                    assert_eq!(there, Verdict::Hidden, "{role} {right}");
                }
                Scope::Network => {
                    assert_eq!((here, there), (Verdict::Refused, Verdict::Refused));
                }
            }
        }
    }
}

#[test]
fn the_networks_people_have_their_rights_without_being_members() {
    let admin = person(Some(NetworkRole::Admin), None);
    let operator = person(Some(NetworkRole::Operator), None);
    assert_eq!(admin.allowed(Right::Deploy, Some(HOME)), Verdict::Allowed);
    assert_eq!(admin.allowed(Right::Administer, None), Verdict::Allowed);
    assert_eq!(
        operator.allowed(Right::OperateMachines, None),
        Verdict::Allowed
    );
    assert_eq!(operator.allowed(Right::Administer, None), Verdict::Refused);
    assert_eq!(operator.allowed(Right::Look, Some(HOME)), Verdict::Hidden);
}

#[test]
fn a_token_allows_less_than_its_maker_never_more() {
    let viewer = || person(None, Some(TenantRole::Viewer));
    let all: Vec<Right> = Right::ALL.to_vec();
    let wide = token(viewer(), &all, None);
    assert_eq!(wide.allowed(Right::Look, Some(HOME)), Verdict::Allowed);
    assert_eq!(wide.allowed(Right::Deploy, Some(HOME)), Verdict::Refused);
    assert_eq!(wide.allowed(Right::OwnAccount, None), Verdict::Refused);
    let narrow = token(person(None, Some(TenantRole::Owner)), &[Right::Look], None);
    assert_eq!(narrow.allowed(Right::Look, Some(HOME)), Verdict::Allowed);
    assert_eq!(narrow.allowed(Right::Deploy, Some(HOME)), Verdict::Refused);
    assert_eq!(narrow.allowed(Right::LookNetwork, None), Verdict::Allowed);
    assert_eq!(
        narrow.allowed(Right::Deploy, Some(ELSEWHERE)),
        Verdict::Hidden
    );
}

#[test]
fn a_token_of_one_tenant_counts_nowhere_else_not_even_an_admins() {
    let admin = person(Some(NetworkRole::Admin), Some(TenantRole::Owner));
    let all: Vec<Right> = Right::ALL.to_vec();
    let bound = token(admin, &all, Some(HOME));
    assert_eq!(bound.allowed(Right::Deploy, Some(HOME)), Verdict::Allowed);
    assert_eq!(bound.allowed(Right::Look, Some(ELSEWHERE)), Verdict::Hidden);
    assert_eq!(bound.allowed(Right::Administer, None), Verdict::Refused);
}

#[test]
fn in_a_suspended_tenant_members_only_look() {
    let mut owner = person(None, Some(TenantRole::Owner));
    owner.tenants[0].suspended = true;
    assert_eq!(owner.allowed(Right::Look, Some(HOME)), Verdict::Allowed);
    assert_eq!(
        owner.allowed(Right::ReadBilling, Some(HOME)),
        Verdict::Allowed
    );
    assert_eq!(owner.allowed(Right::Deploy, Some(HOME)), Verdict::Suspended);
    owner.network_role = Some(NetworkRole::Admin);
    assert_eq!(owner.allowed(Right::Deploy, Some(HOME)), Verdict::Allowed);
}

#[test]
fn somewhere_means_in_any_tenant() {
    let viewer = person(None, Some(TenantRole::Viewer));
    assert_eq!(viewer.allowed(Right::Deploy, None), Verdict::Refused);
    let nobody = person(None, None);
    assert_eq!(
        nobody.allowed(Right::Look, None),
        Verdict::Allowed,
        "at nothing"
    );
    assert_eq!(nobody.allowed(Right::ReadAudit, None), Verdict::Refused);
}

#[test]
fn a_nodes_token_ends_with_its_enrolment() {
    let row = |id: u128| EnrolmentRow {
        role: fdn_core::enrol::Role::Node,
        node: "n".parse().expect("node"),
        id: fdn_core::EnrolmentId::from_uuid(uuid::Uuid::from_u128(id)),
        cluster: "c".parse().expect("cluster"),
        token: fdn_core::JoinTokenId::from_uuid(uuid::Uuid::from_u128(1)),
        addresses: fdn_core::enrol::NodeAddresses {
            gateway: "192.0.2.1:80".parse().expect("address"),
            admin: "192.0.2.1:81".parse().expect("address"),
            peer: None,
            names: Vec::new(),
        },
        enrolled_at: Timestamp(1),
        removed_at: None,
    };
    let network = Secret::new("network");
    let token = node_token(&network, &row(1));
    assert_eq!(token, node_token(&network, &row(1)));
    assert_ne!(token, node_token(&network, &row(2)), "it joined anew");
    assert_ne!(token, node_token(&Secret::new("other"), &row(1)));
    assert!(!token.expose().contains("network"));
}
