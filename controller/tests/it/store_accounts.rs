//! Tests of the store for accounts, the same on both databases.

use fdn_controller::app::actor::Actor;
use fdn_controller::store::DEFAULT_TENANT;
use fdn_controller::store::audit::{AuditEntry, AuditFilter, audit_insert, audit_list};
use fdn_controller::store::invitation::{
    InvitationRow, invitation_delete, invitation_end, invitation_get, invitation_put,
    invitation_take,
};
use fdn_controller::store::session::{
    SessionRow, session_delete, session_delete_others, session_find, session_insert, session_list,
    session_touch, session_trim,
};
use fdn_controller::store::user::{
    UserRow, user_count, user_count_admins, user_get, user_insert, user_list, user_set_password,
    user_update,
};
use fdn_core::account::{SessionKind, UserInfo};
use fdn_core::invitation::InvitationInfo;
use fdn_core::{NetworkRole, SessionId, Timestamp, UserName};
use sqlx::AnyConnection;
use uuid::Uuid;

use crate::rig::{Backend, on_both};
use crate::store::store;

on_both!(users, invitations, sessions, the_audit_log);

fn name(text: &str) -> UserName {
    text.parse().expect("user")
}

async fn add(c: &mut AnyConnection, user: &str, role: Option<NetworkRole>) -> bool {
    let row = UserRow::new(name(user), role, "hash".to_owned(), Timestamp(1));
    user_insert(c, &row).await.expect("inserted")
}

async fn users(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    assert_eq!(user_count(c).await.expect("read"), 0);
    assert!(add(c, "ann", Some(NetworkRole::Admin)).await);
    assert!(!add(c, "ann", None).await, "taken");
    assert!(add(c, "'; DROP TABLE users; --", None).await);
    assert_eq!(user_count(c).await.expect("read"), 2);
    let ann = user_get(c, "ann").await.expect("read").expect("there");
    assert_eq!(ann.info.network_role, Some(NetworkRole::Admin));
    assert!(user_get(c, "nobody").await.expect("read").is_none());
    let changed = UserInfo {
        network_role: None,
        disabled_at: Some(Timestamp(5)),
        ..ann.info.clone()
    };
    assert!(user_update(c, &changed).await.expect("changed"));
    assert!(
        !user_update(c, &changed).await.expect("asked"),
        "it has another generation now"
    );
    user_set_password(c, &name("ann"), "other", Timestamp(9))
        .await
        .expect("set");
    let ann = user_get(c, "ann").await.expect("read").expect("there");
    assert_eq!(
        (ann.info.disabled_at, ann.info.generation),
        (Some(Timestamp(5)), 3)
    );
    assert_eq!(
        (ann.password_hash.as_str(), ann.info.password_changed_at),
        ("other", Timestamp(9))
    );
    let rows = user_list(c, "", 1).await.expect("read");
    assert_eq!(rows.len(), 1);
    let rest = user_list(c, rows[0].info.name.as_str(), 9)
        .await
        .expect("read");
    assert_eq!(rest.len(), 1);
    assert_ne!(rest[0].info.name, rows[0].info.name);
}

fn invitation(hash: char, expires_at: u64) -> InvitationRow {
    InvitationRow {
        info: InvitationInfo {
            user: name("ann"),
            created_at: Timestamp(2),
            created_by: "admin'; --".to_owned(),
            expires_at: Timestamp(expires_at),
        },
        hash: String::from(hash).repeat(64),
    }
}

async fn until(c: &mut AnyConnection) -> Option<Timestamp> {
    let user = user_get(c, "ann").await.expect("read").expect("there");
    user.info.invited_until
}

async fn invitations(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let ann = name("ann");
    add(c, "ann", Some(NetworkRole::Admin)).await;
    let (one, two) = (invitation('1', 10), invitation('2', 20));
    assert_eq!(until(c).await, None);
    assert_eq!(user_count_admins(c).await.expect("read"), 1);
    invitation_put(c, &one).await.expect("kept");
    invitation_put(c, &two).await.expect("kept");
    let found = invitation_get(c, &ann).await.expect("read").expect("there");
    assert_eq!((found.row, found.disabled_at), (two.clone(), None));
    assert_eq!(until(c).await, Some(Timestamp(20)));
    assert_eq!(user_count_admins(c).await.expect("read"), 0);
    let user = user_get(c, "ann").await.expect("read").expect("there");
    assert_eq!(user.info.generation, 3, "each one is a change of the user");
    for (hash, now) in [(&one.hash, 5), (&two.hash, 20)] {
        let taken = invitation_take(c, &ann, hash, Timestamp(now)).await;
        assert!(!taken.expect("asked"), "replaced, and over");
    }
    for expected in [true, false] {
        let taken = invitation_take(c, &ann, &two.hash, Timestamp(19)).await;
        assert_eq!(taken.expect("asked"), expected, "good once");
    }
    assert_eq!(until(c).await, None);
    invitation_put(c, &two).await.expect("kept");
    invitation_end(c, &ann, Timestamp(7)).await.expect("ended");
    assert_eq!(until(c).await, Some(Timestamp(7)));
    invitation_end(c, &ann, Timestamp(9)).await.expect("asked");
    assert_eq!(until(c).await, Some(Timestamp(7)), "it had ended");
    user_set_password(c, &ann, "other", Timestamp(8))
        .await
        .expect("set");
    assert_eq!(until(c).await, None, "a password was set since");
    assert_eq!(user_count_admins(c).await.expect("read"), 1);
    assert!(invitation_get(c, &ann).await.expect("read").is_none());
    invitation_delete(c, &ann).await.expect("gone");
    let mut stranger = two;
    stranger.info.user = name("nobody");
    invitation_put(c, &stranger).await.expect("asked");
    assert!(
        invitation_get(c, &stranger.info.user)
            .await
            .expect("read")
            .is_none()
    );
}

fn session(n: u64, user: &str) -> SessionRow {
    SessionRow {
        id: SessionId::from_uuid(Uuid::from_u128(u128::from(n))),
        hash: format!("{n:064}"),
        user: name(user),
        kind: SessionKind::Cookie,
        created_at: Timestamp(n),
        expires_at: Timestamp(100 + n),
        last_used_at: Timestamp(n),
        address: Some("192.0.2.1".to_owned()),
    }
}

async fn sessions(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    add(c, "ann", Some(NetworkRole::Operator)).await;
    add(c, "bob", None).await;
    for n in 0..5 {
        session_insert(c, &session(n, "ann"))
            .await
            .expect("inserted");
    }
    let (found, holder) = session_find(c, &session(0, "ann").hash, Timestamp(99))
        .await
        .expect("read")
        .expect("valid");
    assert_eq!(found, session(0, "ann"));
    assert_eq!(
        (holder.network_role, holder.disabled_at),
        (Some(NetworkRole::Operator), None)
    );
    let late = session_find(c, &found.hash, Timestamp(100))
        .await
        .expect("read");
    assert!(late.is_none(), "expired");
    session_touch(c, &found.hash, Timestamp(50))
        .await
        .expect("touched");
    session_trim(c, &name("ann"), 2, Timestamp(101))
        .await
        .expect("trimmed");
    let left: Vec<SessionId> = session_list(c, &name("ann"), Timestamp(10))
        .await
        .expect("read")
        .into_iter()
        .map(|row| row.id)
        .collect();
    assert_eq!(
        left,
        [session(4, "ann").id, session(3, "ann").id],
        "0 and 1 had expired, 2 was not used for the longest time"
    );
    assert!(
        !session_delete(c, &name("bob"), left[0])
            .await
            .expect("asked"),
        "it is not his"
    );
    let gone = session_delete_others(c, &name("ann"), Some(left[0])).await;
    assert_eq!(gone.expect("ended"), 1);
    assert!(
        session_delete(c, &name("ann"), left[0])
            .await
            .expect("ended")
    );
}

async fn the_audit_log(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    for n in 0..3 {
        let entry = AuditEntry {
            at: Timestamp(n),
            actor: Actor {
                address: Some([192, 0, 2, 1].into()),
                request: Some("r".to_owned()),
                ..Actor::named("admin")
            },
            tenant: (n > 0).then_some(DEFAULT_TENANT),
            action: "deploy",
            subject: format!("app/{n}"),
            before: (n > 0).then(|| "{}".to_owned()),
            after: None,
        };
        audit_insert(c, &entry).await.expect("inserted");
    }
    let mut list = async |filter: AuditFilter| {
        let rows = audit_list(c, &filter, 2).await.expect("read");
        rows.into_iter().map(|row| row.subject).collect::<Vec<_>>()
    };
    assert_eq!(list(AuditFilter::default()).await, ["app/2", "app/1"]);
    let of = |tenant| AuditFilter {
        tenant,
        since: Some(Timestamp(0)),
        until: Some(Timestamp(2)),
        ..AuditFilter::default()
    };
    assert_eq!(list(of(Some(DEFAULT_TENANT))).await, ["app/1"]);
    assert_eq!(list(of(None)).await, ["app/1", "app/0"]);
    let nobody = AuditFilter {
        owner: Some("nobody".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(list(nobody).await, [""; 0]);
}
