//! Starts that Kubernetes refuses, and requests that it cannot fulfil.

use std::sync::Arc;

use fdn_core::{Coded, ErrorCode};
use fdn_instances::kubernetes::{KubernetesOptions, KubernetesRuntime};
use fdn_instances::{Credentials, Image, ImageSource, Outbound, Runtime, StartError, StartSpec};
use fdn_testkit::kubernetes::Image as TestImage;
use fdn_testkit::kubernetes::Resource;
use serde_json::json;

use super::{GRACE, NAMESPACE, Pods, image_named};
use crate::subject::{Program, Subject, ask, owner, spec};

async fn runtime(
    pods: &Pods,
    change: impl FnOnce(&mut KubernetesOptions),
) -> Arc<KubernetesRuntime> {
    pods.connect(owner(), change).await
}

fn hello(image: Image) -> StartSpec {
    spec(image, Program::Hello)
}

async fn refused(runtime: &KubernetesRuntime, spec: StartSpec) -> StartError {
    let error = runtime.start(spec).await.expect_err("it is refused");
    let left = runtime.collect().await.expect("the API server answers");
    assert!(
        left.removed.is_empty() && left.failed.is_empty(),
        "{left:?}"
    );
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_is_refused_with_what_to_do_and_runs_from_a_repository() {
    let pods = Pods::new().await;
    let path = fdn_testkit::docker::oci_image("for a registry");
    let bytes = std::fs::read(&path).expect("the archive was written");
    let archive = Image {
        digest: fdn_core::Digest::of(&bytes),
        source: ImageSource::Archive { path },
    };
    let without = runtime(&pods, |_| {}).await;
    let error = refused(&without, hello(archive.clone())).await;
    assert_eq!(error.code(), ErrorCode::InstanceUnsupported);
    assert!(
        error.to_string().contains("kubernetes.repository"),
        "{error}"
    );

    // The digest in the registry is that of the manifest inside the archive.
    let with = runtime(&pods, |options| {
        options.repository = Some("registry.test/mirror".to_owned());
    })
    .await;
    let error = refused(&with, hello(archive.clone())).await;
    let StartError::ImageMissing { image, .. } = &error else {
        panic!("it was not copied there yet: {error}");
    };
    pods.kubelet.add_image(image, TestImage::default());
    assert!(image.starts_with("registry.test/mirror@sha256:"), "{image}");
    assert!(!image.contains(&archive.digest.to_string()), "{image}");
    let instance = with.start(hello(archive)).await.expect("it is there now");
    assert_eq!(ask(&*instance, "/hello").await, "hello");
    instance.stop(GRACE).await.expect("it stops");

    let path = fdn_testkit::docker::saved_image("no layout");
    let digest = fdn_core::Digest::of(b"whatever");
    let saved = Image {
        digest,
        source: ImageSource::Archive { path },
    };
    let error = refused(&with, hello(saved)).await;
    assert_eq!(error.code(), ErrorCode::InstanceUnsupported, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_pod_cannot_be_held_to_is_refused() {
    let pods = Pods::new().await;
    let guarded = runtime(&pods, |_| {}).await;
    let mut list = hello(image_named("probe"));
    list.outbound = Outbound::Hosts(["api.example.com".parse().expect("it parses")].into());
    let error = refused(&guarded, list).await;
    assert_eq!(error.code(), ErrorCode::InstanceUnsupported);

    let unguarded = runtime(&pods, |options| options.network_policies = false).await;
    let error = refused(&unguarded, hello(image_named("probe"))).await;
    assert!(error.to_string().contains("network.yaml"), "{error}");
    let mut open = hello(image_named("probe"));
    open.outbound = Outbound::Open;
    let instance = unguarded
        .start(open)
        .await
        .expect("it may connect anywhere");
    assert_eq!(
        pods.pod(&*instance)["metadata"]["labels"]["net.fdn.outbound"],
        "open"
    );
    instance.stop(GRACE).await.expect("it stops");

    let mut private = image_named("probe");
    private.source = ImageSource::Registry {
        repository: "registry.test/x".to_owned(),
        credentials: Some(Credentials {
            username: "me".to_owned(),
            password: "hush".to_owned(),
        }),
    };
    let error = refused(&guarded, hello(private)).await;
    assert!(error.to_string().contains("image_pull_secrets"), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_image_needs_its_pull_secret() {
    let pods = Pods::new().await;
    let secret = Some("regcred".to_owned());
    pods.add_image(
        "private",
        TestImage {
            root: false,
            pull_secret: secret,
        },
    );
    let regcred =
        json!({ "metadata": { "name": "regcred" }, "type": "kubernetes.io/dockerconfigjson" });
    pods.cluster.put(Resource::Secrets, NAMESPACE, regcred);
    let without = runtime(&pods, |_| {}).await;
    let error = refused(&without, hello(image_named("private"))).await;
    assert_eq!(error.code(), ErrorCode::ImageMissing, "{error}");
    assert!(error.to_string().contains("denied"), "{error}");
    let with = runtime(&pods, |options| {
        options.image_pull_secrets = vec!["regcred".to_owned()];
    })
    .await;
    with.prepare(&image_named("private"))
        .await
        .expect("it is pulled");
    let instance = with
        .start(hello(image_named("private")))
        .await
        .expect("it starts");
    instance.stop(GRACE).await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_of_roots_runs_as_another_or_not_at_all() {
    let pods = Pods::new().await;
    pods.add_image(
        "root",
        TestImage {
            root: true,
            pull_secret: None,
        },
    );
    let strict = runtime(&pods, |_| {}).await;
    let error = refused(&strict, hello(image_named("root"))).await;
    assert_eq!(error.code(), ErrorCode::ImageInvalid);
    assert!(error.to_string().contains("kubernetes.user"), "{error}");
    strict
        .prepare(&image_named("root"))
        .await
        .expect("it can be pulled all the same");
    let other = runtime(&pods, |options| options.user = Some(65532)).await;
    let instance = other
        .start(hello(image_named("root")))
        .await
        .expect("it starts");
    instance.stop(GRACE).await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_room_is_told() {
    let pods = Pods::new().await;
    pods.kubelet.set_memory(100);
    let runtime = runtime(&pods, |_| {}).await;
    let first = runtime
        .start(hello(image_named("probe")))
        .await
        .expect("64 of 100 MiB");
    let error = refused(&runtime, hello(image_named("probe"))).await;
    assert!(matches!(error, StartError::NoRoom { .. }), "{error}");
    assert!(error.to_string().contains("memory"), "{error}");
    first.stop(GRACE).await.expect("it stops");
    let again = runtime
        .start(hello(image_named("probe")))
        .await
        .expect("there is room again");
    again.stop(GRACE).await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_not_pulled_in_time_is_told() {
    let pods = Pods::new().await;
    let runtime = runtime(&pods, |options| {
        options.node = "a-node-without-a-kubelet".to_owned();
        options.image_timeout = std::time::Duration::from_millis(300);
        options.engine_timeout = std::time::Duration::from_secs(6);
    })
    .await;
    let error = refused(&runtime, hello(image_named("probe"))).await;
    let StartError::NotReady { reason, .. } = &error else {
        panic!("{error}");
    };
    assert!(!reason.is_empty());
    let prepared = runtime.prepare(&image_named("probe")).await;
    assert_eq!(
        prepared.expect_err("nobody pulls").code(),
        ErrorCode::ImageMissing
    );
    assert!(
        pods.pods().is_empty(),
        "nothing stays, though no kubelet ends it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_are_not_expanded() {
    let pods = Pods::new().await;
    let runtime = pods.runtime(owner()).await;
    let mut spec = spec(image_named("probe"), Program::Env);
    let strange = "$(PORT) $$(PORT) $ $$ $(";
    spec.env
        .insert("STRANGE".parse().expect("it parses"), strange.to_owned());
    let instance = runtime.start(spec).await.expect("it starts");
    assert_eq!(ask(&*instance, "/env/STRANGE").await, strange);
    instance.stop(GRACE).await.expect("it stops");
}
