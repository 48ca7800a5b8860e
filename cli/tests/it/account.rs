//! The output of the commands about accounts, as golden files, and their requests.

use clap::Parser as _;
use fdn_cli::args::Cli;
use fdn_cli::commands::tenant::TenantReport;
use fdn_cli::commands::user::InvitationReport;
use fdn_cli::exit::Exit;
use fdn_core::account::{ApiTokenInfo, AuditRecord, MemberInfo, TenantInfo, UserInfo};
use fdn_core::invitation::{
    AcceptInvitation, AcceptedInvitation, CreatedInvitation, InvitationInfo,
};
use fdn_core::repository::{SignaturePolicy, StorageUse};
use fdn_core::{ErrorCode, NetworkRole, Right, TenantRole, Timestamp};

use crate::golden_output::{check, listing};
use crate::support::sample::{self, NOW, parse};
use crate::support::{Fake, Home, Reply};

fn ago(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 - seconds * 1000)
}

fn hence(seconds: u64) -> Timestamp {
    Timestamp(NOW.0 + seconds * 1000)
}

fn tenants() -> Vec<TenantInfo> {
    let tenant = |n: u32, name: &str, suspended_at| TenantInfo {
        id: parse(&format!("ten_{n:032}")),
        name: parse(name),
        created_at: ago(7200),
        suspended_at,
        members: 2,
        apps: 3,
        storage: StorageUse {
            bytes: 5 << 20,
            bytes_limit: 50 << 30,
            versions: 7,
            versions_limit: 10_000,
            own_limit: n == 2,
        },
        signature_policy: SignaturePolicy::Optional,
        deleted_at: None,
        generation: 1,
    };
    vec![tenant(1, "default", None), tenant(2, "shop", Some(ago(60)))]
}

fn members() -> Vec<MemberInfo> {
    let member = |user: &str, role| MemberInfo {
        user: parse(user),
        role,
        created_at: ago(90_000),
        created_by: "admin".to_owned(),
        generation: 2,
    };
    vec![
        member("ann", TenantRole::Owner),
        member("bob", TenantRole::Viewer),
    ]
}

fn users() -> Vec<UserInfo> {
    let user = |name: &str, network_role, disabled_at, invited_until| UserInfo {
        name: parse(name),
        network_role,
        created_at: ago(90_000),
        disabled_at,
        password_changed_at: ago(60),
        invited_until,
        generation: 1,
    };
    vec![
        user("admin", Some(NetworkRole::Admin), None, None),
        user("bob", None, Some(ago(5)), None),
        user("eve", Some(NetworkRole::Operator), None, Some(hence(3600))),
        user("fay", None, None, Some(ago(5))),
    ]
}

fn invitation() -> CreatedInvitation {
    CreatedInvitation {
        token: format!("fdn-invite.657665.{}", "ab".repeat(32)),
        info: InvitationInfo {
            user: parse("eve"),
            created_at: ago(60),
            created_by: "admin".to_owned(),
            expires_at: hence(3600),
        },
    }
}

fn tokens() -> Vec<ApiTokenInfo> {
    let token = |n: u32, last_used_at, revoked_at| ApiTokenInfo {
        id: parse(&format!("fdn_{n:032}")),
        name: "ci".to_owned(),
        user: parse("ann"),
        scopes: [Right::Look, Right::Deploy].into(),
        tenant: (n == 1).then(|| parse("ten_00000000000000000000000000000001")),
        created_at: ago(600),
        expires_at: Timestamp(NOW.0 + 3_000_000),
        last_used_at,
        revoked_at,
    };
    vec![token(1, Some(ago(120)), None), token(2, None, Some(ago(5)))]
}

fn audit() -> Vec<AuditRecord> {
    let record = AuditRecord {
        id: "0".repeat(32),
        at: ago(5),
        actor: "ann".to_owned(),
        token: None,
        tenant: Some(parse("ten_00000000000000000000000000000001")),
        action: "member.put".to_owned(),
        subject: "member/bob".to_owned(),
        before: Some(serde_json::json!({ "role": "viewer" })),
        after: Some(serde_json::json!({ "role": "owner" })),
        address: Some("192.0.2.1".to_owned()),
        request: Some("r-1".to_owned()),
    };
    let bare = AuditRecord {
        id: "1".repeat(32),
        tenant: None,
        before: None,
        after: None,
        address: None,
        request: None,
        token: Some(parse("fdn_00000000000000000000000000000001")),
        ..record.clone()
    };
    vec![record, bare]
}

#[test]
fn lists_of_accounts_are_printed_as_reviewed() {
    check("tenants", &listing(&tenants()));
    check("members", &listing(&members()));
    check("users", &listing(&users()));
    check("api-tokens", &listing(&tokens()));
    check("audit", &listing(&audit()));
    let invited = InvitationReport {
        made: &invitation(),
        place: "https://fdn.example.org",
    };
    check("invitation", &invited);
    let tenant = TenantReport {
        tenant: tenants().remove(0),
        members: members(),
        now: NOW,
    };
    check("tenant", &tenant);
}

/// A page of a list, with a link to the next one.
fn page<T: serde::Serialize>(rows: &[T], next: Option<&str>) -> Reply {
    let mut headers = vec![("content-type", "application/json".to_owned())];
    if let Some(next) = next {
        headers.push(("link", format!("<{next}>; rel=\"next\"")));
    }
    Reply::Full(200, headers, serde_json::to_vec(rows).expect("JSON"))
}

#[tokio::test]
async fn lists_are_read_to_their_last_page() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/users" => page(&users()[..1], Some("/v1/users?cursor=6162")),
        "/v1/users?cursor=6162" => page(&users()[1..], None),
        "/v1/apps?tenant=shop" => page(
            &[sample::summary("a")],
            Some("/v1/apps?tenant=shop&cursor=61"),
        ),
        "/v1/apps?tenant=shop&cursor=61" => page(&[sample::summary("b")], None),
        "/v1/tenants" => page(&tenants(), Some("/v1/tenants?cursor=00")),
        // Endless pages.
        "/v1/tenants?cursor=00" => page(&tenants(), Some("/v1/tenants?cursor=00")),
        other => Reply::problem(ErrorCode::NotFound, other),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["user", "list", "-o", "name"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "admin\nbob\neve\nfay\n"),
        "{}",
        ran.err
    );
    let ran = home.fdn(&["list", "--tenant", "shop", "-o", "name"]).await;
    assert_eq!(
        (ran.exit, ran.out.as_str()),
        (Exit::Ok, "a\nb\n"),
        "{}",
        ran.err
    );
    let ran = home.fdn(&["tenant", "list"]).await;
    assert_ne!(ran.exit, Exit::Ok);
    assert!(ran.err.contains("do not end"), "{}", ran.err);
}

#[tokio::test]
async fn what_is_typed_is_what_is_sent() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/tenants" => Reply::json(&tenants()[1]),
        "/v1/tenants/shop" => Reply::json(&tenants()[1]),
        "/v1/tenants/shop/members/bob" if request.method == http::Method::PUT => {
            Reply::json(&members()[1])
        }
        "/v1/tokens" => {
            Reply::json(&serde_json::json!({ "token": "fdn_1_s3cret", "info": tokens()[0] }))
        }
        "/v1/users" => Reply::json(&users()[1]),
        "/v1/invitations" => Reply::json(&invitation()),
        path if path.starts_with("/v1/audit?limit=7&actor=ann&since=") => Reply::json(&audit()),
        _ => Reply::Full(204, Vec::new(), Vec::new()),
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "correct horse\n").expect("written");
    let password = file.path().to_str().expect("a path");
    for (args, out) in [
        (
            vec!["tenant", "create", "shop", "--owner", "ann"],
            "made tenant shop",
        ),
        (vec!["tenant", "suspend", "shop"], "may only look"),
        (
            vec!["member", "set", "shop", "bob", "viewer"],
            "bob is viewer in shop",
        ),
        (
            vec!["member", "remove", "shop", "bob"],
            "removed bob from shop",
        ),
        (
            vec![
                "token", "create", "ci", "--scope", "look", "--scope", "deploy",
            ],
            "fdn_1_s3cret\n",
        ),
        (
            vec!["token", "revoke", "fdn_00000000000000000000000000000001"],
            "took back",
        ),
        (
            vec!["user", "create", "bob", "--password-file", password],
            "made user bob",
        ),
        (
            vec!["user", "password", "bob", "--password-file", password],
            "set the password of bob",
        ),
        (
            vec![
                "user",
                "invite",
                "eve",
                "--network-role",
                "operator",
                "--ttl",
                "24h",
            ],
            "/invitation#fdn-invite.657665.abab",
        ),
        (
            vec![
                "audit", "--limit", "7", "--actor", "ann", "--since", "1h", "-o", "name",
            ],
            "0000",
        ),
    ] {
        let ran = home.fdn(&args).await;
        assert_eq!(ran.exit, Exit::Ok, "{args:?}: {}", ran.err);
        assert!(ran.out.contains(out), "{args:?}: {}", ran.out);
    }
    let sent: Vec<String> = fake
        .requests()
        .iter()
        .map(|request| {
            let body = String::from_utf8_lossy(&request.body);
            format!("{} {} {body}", request.method, request.path)
        })
        .collect();
    assert_eq!(
        sent[..9],
        [
            r#"POST /v1/tenants {"name":"shop","owner":"ann"}"#,
            r#"PATCH /v1/tenants/shop {"suspended":true}"#,
            r#"PUT /v1/tenants/shop/members/bob {"role":"viewer"}"#,
            r#"DELETE /v1/tenants/shop/members/bob "#,
            r#"POST /v1/tokens {"name":"ci","scopes":["look","deploy"],"ttl":"720h"}"#,
            r#"DELETE /v1/tokens/fdn_00000000000000000000000000000001 "#,
            r#"POST /v1/users {"name":"bob","password":"correct horse","oidc":false}"#,
            r#"PUT /v1/users/bob/password {"password":"correct horse"}"#,
            r#"POST /v1/invitations {"name":"eve","network_role":"operator","ttl":"24h"}"#,
        ]
    );
}

#[tokio::test]
async fn the_link_stands_alone_where_it_can_be_written_to_a_file() {
    let fake = Fake::start(|_, _| Reply::json(&invitation())).await;
    let home = Home::logged_in(&fake.url());
    let ran = home.fdn(&["user", "invite", "eve"]).await;
    let link = format!("{}/invitation#{}\n", fake.url(), invitation().token);
    assert_eq!((ran.exit, ran.out), (Exit::Ok, link), "{}", ran.err);
    let typed = format!("fdn login {} --invitation-file FILE", fake.url());
    assert!(
        ran.err.contains(&typed) && ran.err.contains("within 72h"),
        "{}",
        ran.err
    );
    let ran = home.fdn(&["user", "invite", "eve", "-o", "name"]).await;
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("eve\n", ""));
}

#[tokio::test]
async fn whoever_was_invited_chooses_a_password_and_is_logged_in() {
    let fake = Fake::start(|request, _| match request.path.as_str() {
        "/v1/invitations/accept" => {
            let request: AcceptInvitation =
                serde_json::from_slice(&request.body).expect("a request");
            match request.password.as_str() {
                "correct horse" => Reply::json(&AcceptedInvitation {
                    user: parse("eve"),
                    token: Some("token-of-eve".to_owned()),
                    expires_at: Timestamp(1),
                }),
                _ => Reply::problem(ErrorCode::InvitationExpired, "the invitation ended 2h ago"),
            }
        }
        "/v1/network" => Reply::json(&sample::network()),
        other => Reply::problem(ErrorCode::NotFound, other),
    })
    .await;
    let home = Home::new();
    let token = invitation().token;
    let link = home.file("link", format!("{}/invitation#{token}\n", fake.url()));
    let cut = home.file("cut", &token[..token.len() - 1]);
    let (right, wrong) = (
        home.file("right", "correct horse\n"),
        home.file("wrong", "wrong\n"),
    );
    let url = fake.url();
    let login = |link: &str, password: &str| {
        let args = [
            "login",
            &url,
            "--invitation-file",
            link,
            "--password-file",
            password,
            "--context",
            "work",
        ];
        args.map(str::to_owned)
    };
    let run = async |args: [String; 8]| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        home.fdn(&args).await
    };
    let broken = run(login(&cut, &right)).await;
    assert_eq!(broken.exit, Exit::Usage, "{broken:?}");
    assert!(!broken.err.contains("abab"), "{}", broken.err);
    assert!(fake.requests().is_empty(), "nothing was sent");
    let over = run(login(&link, &wrong)).await;
    assert_eq!(over.exit, Exit::Denied, "{over:?}");
    assert!(over.err.contains("ended 2h ago"), "{}", over.err);
    assert_eq!(home.read(".config/fdn/tokens/work"), "");
    let ran = run(login(&link, &right)).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    assert!(ran.out.contains("as eve"), "{}", ran.out);
    assert_eq!(home.read(".config/fdn/tokens/work"), "token-of-eve");
    let body = String::from_utf8(fake.requests()[1].body.clone()).expect("text");
    assert_eq!(
        body,
        format!(r#"{{"token":"{token}","password":"correct horse","kind":"bearer"}}"#)
    );
    // The invitation determines the user.
    let both = ["fdn", "login", "--invitation-file", "x", "--user", "eve"];
    assert!(Cli::try_parse_from(both).is_err());
}
