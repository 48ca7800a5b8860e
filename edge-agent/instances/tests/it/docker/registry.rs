//! Images that the engine pulls by digest, from a registry on loopback.

use fdn_core::{Coded, ErrorCode};
use fdn_instances::docker::Network;
use fdn_instances::{Credentials, Image, ImageSource};
use fdn_testkit::docker::oci_image;
use fdn_testkit::registry::{Behaviour, Registry};

use super::{Engine, GRACE};
use crate::subject::{Program, Subject, ask, owner, spec};

fn image(registry: &Registry, credentials: Option<(&str, &str)>) -> Image {
    let credentials = credentials.map(|(username, password)| Credentials {
        username: username.to_owned(),
        password: password.to_owned(),
    });
    Image {
        digest: registry.digest(),
        source: ImageSource::Registry {
            repository: registry.repository(),
            credentials,
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_is_pulled_by_its_digest_once_and_runs() {
    let engine = Engine::with(Network::Isolated).await;
    let runtime = engine.runtime(owner()).await;
    let registry = Registry::start(&oci_image("to be pulled"), Behaviour::default()).await;
    let image = image(&registry, None);
    let prepared = futures::future::join_all((0..5).map(|_| runtime.prepare(&image))).await;
    for one in prepared {
        one.expect("it is pulled");
    }
    let requests = registry.requests();
    // Manifest, configuration and one layer, besides the question whether there is a registry.
    assert!((3..=6).contains(&requests), "{requests} requests");
    let started = runtime.start(spec(image.clone(), Program::Hello)).await;
    let instance = started.expect("it starts");
    assert_eq!(ask(&*instance, "/hello").await, "hello");
    instance.stop(GRACE).await.expect("it stops");
    runtime.prepare(&image).await.expect("it is here");
    assert_eq!(registry.requests(), requests, "nothing is asked for again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_registry_wants_the_right_name_and_password() {
    let engine = Engine::with(Network::Isolated).await;
    let runtime = engine.runtime(owner()).await;
    let behaviour = Behaviour {
        credentials: Some(("puller", "open sesame")),
        ..Behaviour::default()
    };
    let registry = Registry::start(&oci_image("private"), behaviour).await;
    for credentials in [None, Some(("puller", "a wrong password"))] {
        let refused = runtime.prepare(&image(&registry, credentials)).await;
        let error = refused.expect_err("nobody is let in");
        assert_eq!(error.code(), ErrorCode::ImageMissing, "{error}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("a wrong password"), "{text}");
    }
    let right = image(&registry, Some(("puller", "open sesame")));
    runtime.prepare(&right).await.expect("it is pulled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_what_its_digest_says_is_not_run() {
    let engine = Engine::with(Network::Isolated).await;
    let runtime = engine.runtime(owner()).await;
    let behaviour = Behaviour {
        tampered: true,
        ..Behaviour::default()
    };
    let registry = Registry::start(&oci_image("tampered with"), behaviour).await;
    let refused = runtime
        .start(spec(image(&registry, None), Program::Hello))
        .await;
    let error = refused.expect_err("it is another image");
    assert_eq!(error.code(), ErrorCode::ImageInvalid, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_digest_that_the_registry_does_not_know_is_told() {
    let engine = Engine::with(Network::Isolated).await;
    let runtime = engine.runtime(owner()).await;
    let registry = Registry::start(&oci_image("another one"), Behaviour::default()).await;
    let unknown = Image {
        digest: fdn_core::Digest::of(b"an image of nobody"),
        ..image(&registry, None)
    };
    let error = runtime.prepare(&unknown).await.expect_err("it is nowhere");
    assert_eq!(error.code(), ErrorCode::ImageMissing, "{error}");
}
