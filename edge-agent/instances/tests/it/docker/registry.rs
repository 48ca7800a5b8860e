//! Images that the engine pulls by digest, from a registry on loopback.

use bollard::query_parameters::{CreateImageOptionsBuilder, RemoveImageOptions};
use fdn_core::{ByteSize, Coded, ErrorCode};
use fdn_instances::docker::Network;
use fdn_instances::{Credentials, Image, ImageSource, Runtime};
use fdn_testkit::docker::oci_image;
use fdn_testkit::registry::{Behaviour, Registry};
use fdn_testkit::wait;
use futures::TryStreamExt;

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
    // Manifest, configuration and one layer, in addition to the request whether there is a registry.
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

/// Whether the engine has an image.
async fn has(engine: &Engine, image: &Image) -> bool {
    engine
        .client()
        .inspect_image(&image.to_string())
        .await
        .is_ok()
}

async fn until_gone(engine: &Engine, image: &Image) {
    wait::until("an image to go", async || {
        if has(engine, image).await {
            Err("it is there")
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_that_nobody_needs_go_when_they_take_too_much() {
    let engine = Engine::with(Network::Isolated).await;
    let scope = format!("images-{}", std::process::id());
    let runtime = engine
        .runtime_with(owner(), |options| {
            options.scope = Some(scope.clone());
            options.image_cache = ByteSize::from_bytes(1);
            options.ahead = 0;
        })
        .await;
    let mut registries = Vec::new();
    for name in ["needed", "idle", "in use", "next", "last"] {
        registries.push(Registry::start(&oci_image(name), Behaviour::default()).await);
    }
    let images: Vec<Image> = registries.iter().map(|r| image(r, None)).collect();
    let [needed, idle, in_use, next, last] = &images[..] else {
        panic!("five");
    };
    let deployed = runtime.expect(&spec(needed.clone(), Program::Hello));
    for one in [needed, idle] {
        runtime.prepare(one).await.expect("it is pulled");
    }
    let started = runtime.start(spec(in_use.clone(), Program::Hello)).await;
    let instance = started.expect("it starts");
    until_gone(&engine, idle).await;
    runtime.prepare(next).await.expect("it is pulled");
    assert!(has(&engine, needed).await, "an app is deployed with it");
    assert_eq!(ask(&*instance, "/hello").await, "hello");
    instance.stop(GRACE).await.expect("it stops");
    drop(deployed);
    runtime.prepare(last).await.expect("it is pulled");
    for one in [needed, in_use, next] {
        until_gone(&engine, one).await;
    }
    assert!(has(&engine, last).await, "it was used last");
    // An evicted image is pulled again.
    runtime.prepare(needed).await.expect("it is pulled");
    // Removes everything of this test; what is already gone counts as removed.
    for one in &images {
        let tag = format!("fdn.invalid/{scope}/pulled:{}", one.digest.hex());
        for name in [one.to_string(), tag] {
            let client = engine.client();
            let removed = client.remove_image(&name, None::<RemoveImageOptions>, None);
            drop(removed.await);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_too_large_is_refused_while_it_comes_or_once_it_is_unfolded() {
    let engine = Engine::with(Network::Isolated).await;
    let registry = Registry::start(&oci_image("too large"), Behaviour::default()).await;
    let image = image(&registry, None);
    let runtime = engine
        .runtime_with(owner(), |options| {
            options.image_unfolded = ByteSize::from_bytes(1000);
        })
        .await;
    let error = runtime.prepare(&image).await.expect_err("it is too large");
    assert_eq!(error.code(), ErrorCode::ImageInvalid, "{error}");
    assert!(error.to_string().contains("image_unfolded"), "{error}");
    assert!(!has(&engine, &image).await, "it is not kept");
}

/// Pulls an image and no more, as an agent that ends right after its pull.
async fn only_pull(engine: &Engine, image: &Image) {
    let options = CreateImageOptionsBuilder::default()
        .from_image(&image.to_string())
        .build();
    let client = engine.client();
    let steps = client.create_image(Some(options), None, None);
    let pulled = steps.try_for_each(|_| async { Ok(()) }).await;
    pulled.expect("it is pulled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_agent_that_ended_had_pulled_is_checked_and_marked_by_the_next() {
    let engine = Engine::with(Network::Isolated).await;
    let registry = Registry::start(&oci_image("left unchecked"), Behaviour::default()).await;
    let image = image(&registry, None);
    only_pull(&engine, &image).await;
    let strict = engine
        .runtime_with(owner(), |options| {
            options.image_unfolded = ByteSize::from_bytes(1000);
        })
        .await;
    let error = strict.prepare(&image).await.expect_err("it is too large");
    assert_eq!(error.code(), ErrorCode::ImageInvalid, "{error}");
    assert!(has(&engine, &image).await, "it may be somebody else's");
    let scope = format!("left-{}", std::process::id());
    let runtime = engine
        .runtime_with(owner(), |options| options.scope = Some(scope.clone()))
        .await;
    runtime.prepare(&image).await.expect("it is here");
    let tag = format!("fdn.invalid/{scope}/pulled:{}", image.digest.hex());
    let client = engine.client();
    let marked = client.inspect_image(&tag).await;
    marked.expect("it can be removed when nobody needs it");
    for name in [image.to_string(), tag] {
        let removed = client.remove_image(&name, None::<RemoveImageOptions>, None);
        drop(removed.await);
    }
}
