//! A function in two forms: stored as one version, told to nodes as one function, and served by each cluster in the form that suits it.

use std::collections::BTreeSet;

use fdn_controller::store::DEFAULT_TENANT;
use fdn_controller::store::artifact::{artifact_claim, artifact_list_unused, artifact_mark};
use fdn_controller::store::version::{
    function_version_next, version_delete, version_get, version_insert,
};
use fdn_core::api::{AppDetail, DeployResponse, Explanation};
use fdn_core::device::GpuRequest;
use fdn_core::form::{FormManifest, FormSpec};
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppPhase, NodeStatus};
use fdn_core::preview::PlanPreview;
use fdn_core::serving::NodeRuntime;
use fdn_core::{Digest, FormName, Timestamp};
use fdn_testkit::{components, wait};
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder, StatusCode};

use crate::explain::told;
use crate::rig::{Backend, Rig, node_at, on_both};
use crate::store::{store, version_row};

on_both!(
    each_cluster_serves_the_form_that_suits_it,
    an_upload_brings_every_form_or_none,
    artifacts_of_forms_are_kept_with_their_version,
);

/// The manifest of a component with an image as a second form.
pub(crate) const MANIFEST: &str = r#"
expected = "40ms"
[[forms]]
name = "image"
runtime = "docker"
expected = "8ms"
cold_start = "100ms"
"#;

pub(crate) fn image() -> String {
    format!("ghcr.io/acme/thumbs@{}", Digest::of(b"manifest"))
}

fn name(text: &str) -> FormName {
    text.parse().expect("form")
}

/// An upload of a component, with the artifacts of further forms.
pub(crate) fn upload(rig: &Rig, manifest: &str, forms: &[(&str, String)]) -> RequestBuilder {
    let component = Part::bytes(components::hello("x")).file_name("component.wasm");
    let mut form = Form::new()
        .text("manifest", manifest.to_owned())
        .part("component", component);
    for (part, text) in forms {
        form = form.text((*part).to_owned(), text.clone());
    }
    rig.request(Method::POST, "/v1/apps/hello/versions")
        .multipart(form)
}

fn with(runtimes: &[NodeRuntime], status: NodeStatus) -> NodeStatus {
    NodeStatus {
        runtimes: Some(runtimes.iter().copied().collect::<BTreeSet<_>>()),
        ..status
    }
}

/// A node that only runs components, and one that runs containers as well.
async fn network(backend: Backend) -> Rig {
    let rig = Rig::start_with(backend, |_| {}).await;
    for status in nodes() {
        rig.node(status).await;
    }
    rig
}

fn nodes() -> [NodeStatus; 2] {
    let (eu, us) = (
        node_at("eu-1", "eu-west", 53.35, -6.26),
        node_at("us-1", "us-east", 39.04, -77.49),
    );
    [
        with(&[NodeRuntime::Wasm], eu),
        with(&[NodeRuntime::Wasm, NodeRuntime::Docker], us),
    ]
}

/// Waits until the clusters serve these forms; returns the app.
async fn served(rig: &Rig, wanted: &[(&str, &str)]) -> AppDetail {
    let wanted: Vec<(String, String)> = wanted
        .iter()
        .map(|(cluster, form)| ((*cluster).to_owned(), (*form).to_owned()))
        .collect();
    wait::until("the forms to be chosen", async || {
        let detail: AppDetail = rig.get("/v1/apps/hello").await;
        let all = detail.forms.iter().flat_map(|(cluster, stages)| {
            let forms = stages.values();
            forms.map(move |form| (cluster.to_string(), form.to_string()))
        });
        match all.collect::<Vec<_>>() == wanted {
            true => Ok(detail),
            false => Err(format!("{:?}", detail.forms)),
        }
    })
    .await
}

async fn each_cluster_serves_the_form_that_suits_it(backend: Backend) {
    let rig = network(backend).await;
    let deployed: DeployResponse = rig
        .json(upload(&rig, MANIFEST, &[("form.image", image())]))
        .await;
    let steps: Vec<&str> = deployed
        .validation
        .iter()
        .map(|s| s.step.as_str())
        .collect();
    assert!(
        steps.contains(&"format") && steps.contains(&"image: format"),
        "{steps:?}"
    );
    // With rare calls, each would wait for a container's cold start, in spite of its 8 ms.
    served(&rig, &[("eu-west", "main"), ("us-east", "main")]).await;
    let told_of = rig.apps_snapshot().await;
    let spec = told_of.apps[0].spec.as_ref().expect("it exists");
    assert_eq!(
        spec.functions[0].form_names(),
        [name("main"), name("image")]
    );
    assert!(
        spec.functions[0].manifest.forms.is_empty(),
        "older agents read it"
    );
    assert_eq!(
        spec.functions[0].forms[0].digest,
        Digest::of(image().as_bytes())
    );
    let cluster = "us-east".parse().expect("cluster");
    let stage = &spec.workflow.entry().name;
    assert_eq!(spec.form_in(&cluster, stage), Some(&name("main")));
    // The component turns out slower than the image where both could run.
    let [eu, us] = nodes();
    for calls in [1_000, 2_000, 3_000] {
        rig.node(told(eu.clone(), AppPhase::Ready, calls, 40.0))
            .await;
        rig.node(told(us.clone(), AppPhase::Ready, calls, 2_500.0))
            .await;
        wait::until("the calls to be learnt", async || {
            let found: Explanation = rig.get("/v1/apps/hello/explain?client=203.0.113.7").await;
            let mut rows = found.forms.iter();
            let row = rows.find(|row| row.cluster == cluster && row.form.is_main());
            match row.is_some_and(|row| row.measured) {
                true => Ok(()),
                false => Err(format!("{:?}", found.forms)),
            }
        })
        .await;
    }
    let detail = served(&rig, &[("eu-west", "main"), ("us-east", "image")]).await;
    assert_eq!(detail.versions[0].forms.len(), 1);
    assert_eq!(detail.versions[0].manifest.runtime, RuntimeKind::Wasm);
    let found: Explanation = rig.get("/v1/apps/hello/explain?client=203.0.113.7").await;
    assert_eq!(found.forms.len(), 4, "two forms in two clusters");
    let row = |cluster: &str, form: &str| {
        let mut rows = found.forms.iter();
        rows.find(|row| row.cluster.as_str() == cluster && row.form.as_str() == form)
            .expect("a row")
    };
    assert_eq!(
        row("eu-west", "image").verdict,
        "no node there runs and holds it"
    );
    assert!(row("eu-west", "main").chosen && row("us-east", "image").chosen);
    // A preview with only the manifest shows the same choice before anything is deployed.
    let asked = serde_json::json!({ "manifest": MANIFEST, "rate": 100.0 });
    let preview: PlanPreview = rig
        .json(rig.request(Method::POST, "/v1/plan").json(&asked))
        .await;
    assert_eq!(preview.forms.len(), 4);
    // A version with one form leaves no choice.
    let _: DeployResponse = rig.json(upload(&rig, "expected = \"40ms\"", &[])).await;
    served(&rig, &[]).await;
}

async fn an_upload_brings_every_form_or_none(backend: Backend) {
    let rig = network(backend).await;
    for (manifest, parts, says) in [
        (MANIFEST, vec![], "the form image has no artifact"),
        (
            MANIFEST,
            vec![("form.other", image())],
            "no [[forms]] of the manifest names",
        ),
        (
            MANIFEST,
            vec![("form.image", "ghcr.io/acme/thumbs:latest".to_owned())],
            "a tag can be moved",
        ),
        (
            MANIFEST,
            vec![("form.image", image()), ("form.image", image())],
            "stands twice",
        ),
        (
            MANIFEST,
            vec![("signature.image", "x".to_owned())],
            "no part form.image",
        ),
        (MANIFEST, vec![("forms", image())], "is not known"),
        (
            "",
            vec![("form.image", image())],
            "no [[forms]] of the manifest names",
        ),
    ] {
        let (status, problem) = rig.refused(upload(&rig, manifest, &parts)).await;
        let told = problem.detail;
        assert!(
            status.is_client_error() && told.contains(says),
            "{status}: {told}"
        );
    }
    assert_eq!(rig.artifacts(), Vec::<String>::new(), "nothing was stored");
    let both = || upload(&rig, MANIFEST, &[("form.image", image())]);
    let first: DeployResponse = rig.json(both()).await;
    let again: DeployResponse = rig.json(both()).await;
    assert!(!first.unchanged && again.unchanged);
    assert_eq!(rig.artifacts().len(), 2);
    // With another image it is another version, with the same component.
    let other = format!("ghcr.io/acme/thumbs@{}", Digest::of(b"another"));
    let second: DeployResponse = rig
        .json(upload(&rig, MANIFEST, &[("form.image", other)]))
        .await;
    assert!(!second.unchanged && second.digest == first.digest);
    // Environment variables are shared by all forms.
    let set = serde_json::json!({ "set": { "GREETING": "hi" }, "unset": [] });
    let request = rig.request(Method::PATCH, "/v1/apps/hello/env").json(&set);
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let spec = rig
        .apps_snapshot()
        .await
        .apps
        .remove(0)
        .spec
        .expect("it exists");
    let image = spec.functions[0].in_form(&name("image")).expect("a form");
    assert_eq!(image.manifest.env.len(), 1);
}

async fn artifacts_of_forms_are_kept_with_their_version(backend: Backend) {
    let (_folder, store) = store(backend).await;
    let c = &mut *store.read().await.expect("connected");
    let function = "hello".parse().expect("function");
    let number = function_version_next(c, DEFAULT_TENANT, &function, Timestamp(1))
        .await
        .expect("a number");
    let digest = Digest::of(b"image");
    let mut row = version_row("hello", number);
    row.forms = vec![FormSpec {
        manifest: FormManifest {
            name: name("gpu"),
            runtime: RuntimeKind::Docker,
            memory: None,
            cpu_milli: None,
            expected: None,
            cold_start: None,
            reuse: None,
            concurrency: Some(8),
            port: None,
            health_path: None,
            startup: None,
            gpu: Some(GpuRequest::of_memory(fdn_core::ByteSize::from_mib(1024))),
        },
        digest,
        size: 7,
    }];
    assert_eq!(row.bytes(), row.size + 7);
    assert_eq!(
        row.forms[0].manifest.over(&Manifest::default()).concurrency,
        8
    );
    artifact_claim(c, &digest, 7, "object", Timestamp(1))
        .await
        .expect("claimed");
    version_insert(c, &row).await.expect("inserted");
    let read = version_get(c, DEFAULT_TENANT, &function, number).await;
    assert_eq!(read.expect("read"), Some(row));
    let late = Timestamp(1_000);
    let unused = artifact_list_unused(c, late, 10).await.expect("read");
    assert!(unused.is_empty(), "a form uses it: {unused:?}");
    assert!(!artifact_mark(c, &digest, late, late).await.expect("asked"));
    let deleted = version_delete(c, DEFAULT_TENANT, (&function, number), Timestamp(2)).await;
    assert!(deleted.expect("deleted"));
    let unused = artifact_list_unused(c, late, 10).await.expect("read");
    assert_eq!(unused, [digest]);
    assert!(artifact_mark(c, &digest, late, late).await.expect("asked"));
}
