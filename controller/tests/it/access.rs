//! Logins: throttling, expiry, and the first password.

use std::net::TcpListener;

use fdn_controller::Controller;
use fdn_core::DurationMs;
use fdn_runtime::Compiler;
use reqwest::Method;
use serde_json::json;

use crate::rig::{Backend, Rig, on_both, settings};

on_both!(
    wrong_passwords_are_throttled,
    guesses_at_once_are_throttled_too,
    tokens_expire,
    the_first_password_is_made_once_and_a_taken_address_is_said,
);

async fn wrong_passwords_are_throttled(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.accounts.login_attempts = 3).await;
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
    // Now the right password makes no difference: attempts are limited.
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

async fn guesses_at_once_are_throttled_too(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.accounts.login_attempts = 3;
        settings.accounts.login_parallel = 1;
    })
    .await;
    let guess = |n: u32| {
        let wish = json!({ "user": format!("user-{n}"), "password": "wrong" });
        rig.anonymous(Method::POST, "/v1/login").json(&wish).send()
    };
    // All of them are let in before the first one is found wrong.
    let answers = futures::future::join_all((0..40).map(guess)).await;
    let wrong = answers
        .into_iter()
        .filter(|answer| answer.as_ref().expect("an answer").status() == 401)
        .count();
    // A few more than three on a machine that stands still for seconds: each has to wait for longer.
    assert!((1..10).contains(&wrong), "{wrong} of 40 were checked");
}

async fn tokens_expire(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
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

async fn the_first_password_is_made_once_and_a_taken_address_is_said(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let mut settings = settings(folder.path(), backend).await;
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
