//! Who may do what: every operation refuses whoever lacks its right.

use std::net::TcpListener;

use fdn_controller::app::access::Role;
use fdn_controller::app::login::hash_password;
use fdn_controller::store::account::{User, user_insert};
use fdn_controller::{Controller, openapi_json};
use fdn_core::DurationMs;
use fdn_runtime::Compiler;
use reqwest::Method;
use serde_json::{Value, json};

use crate::rig::{Backend, Rig, settings};

/// Every operation of the document: method, path with its parameters filled in, and the kind of credentials it wants.
fn operations() -> Vec<(Method, String, Option<String>)> {
    let document: Value =
        serde_json::from_str(&openapi_json().expect("the document")).expect("JSON");
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let method: Method = method.to_uppercase().parse().expect("a method");
            let scheme = operation["security"][0]
                .as_object()
                .expect("every operation says what it needs")
                .keys()
                .next()
                .cloned();
            let digest = format!("sha256:{}", "0".repeat(64));
            all.push((
                method,
                path.replace("{app}", "hello")
                    .replace("{digest}", &digest)
                    .replace("{cluster}", "eu-west")
                    .replace("{node}", "eu-west-1")
                    .replace("{token}", &format!("jtk_{}", "0".repeat(32))),
                scheme,
            ));
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_strangers() {
    let rig = Rig::start().await;
    let operations = operations();
    assert!(operations.len() >= 26, "the walk found operations");
    for (method, path, scheme) in &operations {
        if scheme.is_none() {
            // Whoever logs in, joins or renews brings what shows who they are in the body.
            let open = ["/v1/login", "/v1/nodes/enrol", "/v1/nodes/renew"];
            assert!(open.contains(&path.as_str()), "{path} is open to everybody");
            continue;
        }
        for request in [
            rig.anonymous(method.clone(), path),
            rig.anonymous(method.clone(), path)
                .bearer_auth("0".repeat(64)),
            rig.anonymous(method.clone(), path)
                .basic_auth("admin", Some(&rig.password)),
        ] {
            let answer = request.send().await.expect("an answer");
            assert_eq!(answer.status(), 401, "{method} {path}");
            assert_eq!(answer.headers()["www-authenticate"], "Bearer");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_kinds_of_credentials_do_not_open_each_others_doors() {
    let rig = Rig::start().await;
    let network = std::fs::read_to_string(&rig.settings.network.token_file).expect("token");
    for (method, path, scheme) in operations() {
        let wrong = match scheme.as_deref() {
            None => continue,
            Some("session") => &network,
            Some(_) => &rig.token,
        };
        let (_, problem) = rig
            .refused(rig.anonymous(method.clone(), &path).bearer_auth(wrong))
            .await;
        assert_eq!(problem.code.as_str(), "FDN-2002", "{method} {path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_look_but_change_nothing() {
    let rig = Rig::start().await;
    let store = &rig.controller.state().store;
    let user = User {
        name: "eve".to_owned(),
        role: Role::Viewer,
        password_hash: hash_password("look").expect("hashed"),
    };
    let mut tx = store.begin().await.expect("begun");
    assert!(
        user_insert(&mut tx, &user, fdn_service::now())
            .await
            .expect("inserted")
    );
    tx.commit().await.expect("committed");
    let token = rig.login("eve", "look").await;
    let status = async |method, path| {
        rig.anonymous(method, path)
            .bearer_auth(&token)
            .send()
            .await
            .expect("an answer")
            .status()
            .as_u16()
    };
    assert_eq!(status(Method::GET, "/v1/apps").await, 200);
    assert_eq!(status(Method::DELETE, "/v1/apps/hello").await, 403);
    assert_eq!(status(Method::POST, "/v1/apps/hello/versions").await, 403);
    assert_eq!(status(Method::POST, "/v1/apps/hello/rollback").await, 403);
    assert_eq!(status(Method::GET, "/v1/nodes").await, 200);
    for (method, path) in [
        (Method::POST, "/v1/clusters"),
        (Method::POST, "/v1/join-tokens"),
        (Method::GET, "/v1/join-tokens"),
        (Method::POST, "/v1/nodes/eu-1/drain"),
        (Method::POST, "/v1/nodes/eu-1/uncordon"),
        (Method::DELETE, "/v1/nodes/eu-1"),
    ] {
        assert_eq!(status(method, path).await, 403, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_are_throttled() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.accounts.login_attempts = 3
    })
    .await;
    let login = |user: &str, password: &str| {
        rig.anonymous(Method::POST, "/v1/login")
            .json(&json!({ "user": user, "password": password }))
    };
    for user in ["admin", "nobody", "admin"] {
        let (_, problem) = rig.refused(login(user, "wrong")).await;
        assert_eq!(problem.code.as_str(), "FDN-2001");
        assert_eq!(
            problem.detail, "user or password is wrong",
            "it does not tell which"
        );
    }
    // The right password makes no difference now: trying is what is limited.
    let answer = login("admin", &rig.password)
        .send()
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 429);
    let after: u64 = answer.headers()["retry-after"]
        .to_str()
        .expect("text")
        .parse()
        .expect("seconds");
    assert!((1..=4).contains(&after));
    let (_, problem) = rig
        .refused(
            rig.anonymous(Method::POST, "/v1/login")
                .json(&json!({ "user": "a" })),
        )
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2005");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_expire() {
    let rig = Rig::start_with(Backend::Sqlite, |settings| {
        settings.accounts.token_lifetime = DurationMs::from_millis(1)
    })
    .await;
    fdn_testkit::wait::until("the token to expire", async || {
        let status = rig
            .request(Method::GET, "/v1/apps")
            .send()
            .await
            .map_err(|e| e.to_string())?
            .status();
        if status == 401 {
            Ok(())
        } else {
            Err(status.to_string())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_password_is_made_once_and_a_taken_address_is_said() {
    let folder = tempfile::tempdir().expect("folder");
    let mut settings = settings(folder.path(), Backend::Sqlite).await;
    settings.accounts.initial_password_file = None;
    let start = || {
        let broker = std::sync::Arc::new(fdn_bus::MemoryBroker::default());
        Controller::start_with(settings.clone(), broker, Compiler::InProcess)
    };
    let controller = start().await.expect("started");
    let password = controller
        .initial_password()
        .expect("made at the first start");
    assert!(password.expose().len() >= 20);
    controller.stop().await;
    let again = start().await.expect("started again");
    assert!(again.initial_password().is_none(), "it is shown once");
    again.stop().await;

    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    settings.listen = taken.local_addr().expect("address");
    let broker = std::sync::Arc::new(fdn_bus::MemoryBroker::default());
    let error = Controller::start_with(settings.clone(), broker, Compiler::InProcess)
        .await
        .err()
        .expect("taken");
    assert!(
        error.to_string().contains("already taken") && error.to_string().contains("listen"),
        "{error}"
    );
}
