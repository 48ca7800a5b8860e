//! Every kind of bad upload: its error code, its text, and that nothing is stored.

use fdn_controller::store::DEFAULT_TENANT;
use fdn_core::api::{AppSummary, DeployResponse};
use fdn_core::app::SecretInfo;
use fdn_core::{ByteSize, ErrorCode, Problem};
use fdn_testkit::components;
use reqwest::Method;
use reqwest::multipart::{Form, Part};
use serde_json::{Value, json};

use crate::accounts::people;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    each_bad_component_is_refused_with_its_own_code_and_text,
    an_endless_loop_ends_within_its_limits,
    a_large_component_is_refused_and_the_client_reads_why,
    an_image_has_a_limit_of_its_own,
    a_bad_manifest_names_the_key,
    an_upload_that_ends_early_is_refused,
    an_upload_that_stands_still_is_given_up,
    parts_that_are_wrong_are_named,
    secrets_have_the_limits_of_those_set_alone,
    one_tenant_leaves_places_to_others,
);

/// Checks that a refused upload left nothing: no app, version, artifact or temporary file.
async fn nothing_is_stored(rig: &Rig, what: &str) {
    let apps: Vec<AppSummary> = rig.get("/v1/apps").await;
    assert_eq!(apps, [], "{what}");
    assert_eq!(rig.artifacts(), [""; 0], "{what}");
    assert_eq!(rig.compiled(), [""; 0], "{what}");
    assert_eq!(rig.leftovers(), [""; 0], "{what}");
    let mut connection = rig
        .controller
        .state()
        .store
        .read()
        .await
        .expect("connected");
    for table in ["functions", "versions", "apps", "outbox"] {
        let sql = sqlx::AssertSqlSafe(format!("SELECT COUNT(*) FROM {table} WHERE 1 = 1"));
        let rows: i64 = match table {
            // There are messages about the network itself, but none about apps.
            "outbox" => {
                sqlx::query_scalar("SELECT COUNT(*) FROM outbox WHERE topic <> 'network'")
                    .fetch_one(&mut *connection)
                    .await
            }
            _ => sqlx::query_scalar(sql).fetch_one(&mut *connection).await,
        }
        .expect("counted");
        assert_eq!(rows, 0, "{what}: {table}");
    }
}

async fn refused(rig: &Rig, what: &str, component: Vec<u8>, manifest: Option<&str>) -> Problem {
    let (_, problem) = rig
        .refused(rig.upload("bad", component, manifest, None))
        .await;
    nothing_is_stored(rig, what).await;
    problem
}

async fn each_bad_component_is_refused_with_its_own_code_and_text(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(200, 0);
    let cases: Vec<(&str, Vec<u8>, &str, &str, &str)> = vec![
        (
            "an empty file",
            Vec::new(),
            "FDN-1001",
            "format",
            "the file is empty",
        ),
        ("an ELF file", elf, "FDN-1002", "format", "ELF"),
        (
            "a text file",
            b"#!/bin/sh\necho hi\n".to_vec(),
            "FDN-1002",
            "format",
            "WebAssembly",
        ),
        (
            "a core module",
            components::core_module(),
            "FDN-1003",
            "format",
            "wasm-tools component new",
        ),
        (
            "a truncated file",
            components::truncated(),
            "FDN-1004",
            "format",
            "truncated or malformed at byte",
        ),
        (
            "a component without a handler",
            components::no_handler(),
            "FDN-1005",
            "exports",
            "wasi:http/incoming-handler",
        ),
        (
            "a foreign import",
            components::foreign_import(),
            "FDN-1006",
            "imports",
            "import",
        ),
        (
            "a component that traps",
            components::trapping(),
            "FDN-1009",
            "probe",
            "trap",
        ),
        (
            "a component that answers 500",
            components::status(500),
            "FDN-1009",
            "probe",
            "500",
        ),
        (
            "a component that says nothing",
            components::no_response(),
            "FDN-1009",
            "probe",
            "without an answer",
        ),
    ];
    for (what, component, code, step, text) in cases {
        let problem = refused(&rig, what, component, None).await;
        assert_eq!(
            (
                problem.code.as_str(),
                problem.status,
                problem.step.as_deref(),
            ),
            (code, 422, Some(step)),
            "{what}: {}",
            problem.detail
        );
        assert!(problem.detail.contains(text), "{what}: {}", problem.detail);
    }
}

async fn an_endless_loop_ends_within_its_limits(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let manifest = "timeout = \"2s\"\ncpu_time = \"100ms\"\n";
    let problem = refused(&rig, "a loop", components::looping(), Some(manifest)).await;
    assert_eq!(problem.code.as_str(), "FDN-1009");
    assert!(problem.detail.contains("CPU"), "{}", problem.detail);
}

async fn a_large_component_is_refused_and_the_client_reads_why(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.uploads.limit = ByteSize::from_bytes(100 << 10)
    })
    .await;
    // Much more than any socket buffer holds, so that the response has to reach a client that is still sending.
    let problem = refused(&rig, "8 MiB", vec![0; 8 << 20], None).await;
    assert_eq!((problem.code.as_str(), problem.status), ("FDN-1007", 413));
    assert_eq!(problem.step.as_deref(), Some("size"));
    assert!(
        problem.detail.contains("limit of 100KiB"),
        "{}",
        problem.detail
    );
}

async fn an_image_has_a_limit_of_its_own(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.uploads.limit = ByteSize::from_bytes(1 << 10);
        settings.uploads.image_limit = ByteSize::from_bytes(100 << 10);
    })
    .await;
    let manifest = Some("runtime = \"docker\"\n");
    let problem = refused(&rig, "8 MiB", vec![0; 8 << 20], manifest).await;
    assert_eq!((problem.code.as_str(), problem.status), ("FDN-1007", 413));
    assert!(
        problem
            .detail
            .contains("the image is larger than the limit of 100KiB"),
        "{}",
        problem.detail
    );
    // Larger than a component may be; it is refused because it is not an image.
    let problem = refused(&rig, "no image", vec![b'x'; 10 << 10], manifest).await;
    assert_eq!((problem.code.as_str(), problem.status), ("FDN-1020", 422));
    assert_eq!(problem.step.as_deref(), Some("format"));
}

async fn a_bad_manifest_names_the_key(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    for (manifest, expected) in [
        ("memroy = \"1MiB\"", "memroy"),
        ("memory = \"9000GiB\"", "memory must be from"),
        ("secrets = [\"KEY\"]", "secret KEY has no value"),
    ] {
        let problem = refused(&rig, manifest, components::hello("x"), Some(manifest)).await;
        assert_eq!((problem.code.as_str(), problem.status), ("FDN-1010", 422));
        assert_eq!(problem.step.as_deref(), Some("manifest"));
        assert!(problem.detail.contains(expected), "{}", problem.detail);
    }
}

async fn an_upload_that_ends_early_is_refused(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let body = "--b\r\ncontent-disposition: form-data; name=\"component\"\r\n\r\nhalf of a comp";
    let request = rig
        .request(Method::POST, "/v1/apps/bad/versions")
        .header("content-type", "multipart/form-data; boundary=b")
        .body(body);
    let (_, problem) = rig.refused(request).await;
    assert_eq!((problem.code.as_str(), problem.status), ("FDN-1011", 400));
    assert!(
        problem.detail.contains("send it again"),
        "{}",
        problem.detail
    );
    nothing_is_stored(&rig, "half an upload").await;
}

async fn an_upload_that_stands_still_is_given_up(backend: Backend) {
    use fdn_core::DurationMs;
    let rig = Rig::start_with(backend, |settings| {
        settings.uploads.idle_timeout = DurationMs::from_millis(200)
    })
    .await;
    let head = "--b\r\ncontent-disposition: form-data; name=\"component\"\r\n\r\n";
    let stream = futures::stream::iter([Ok::<_, std::io::Error>(bytes::Bytes::from(head))]);
    let stream = futures::StreamExt::chain(stream, futures::stream::pending());
    let request = rig
        .request(Method::POST, "/v1/apps/bad/versions")
        .header("content-type", "multipart/form-data; boundary=b")
        .body(reqwest::Body::wrap_stream(stream));
    let (_, problem) = rig.refused(request).await;
    assert_eq!(problem.code.as_str(), "FDN-1011");
    nothing_is_stored(&rig, "a stalled upload").await;
}

async fn parts_that_are_wrong_are_named(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let component = || Part::bytes(components::hello("x"));
    let send = |form: Form| {
        rig.request(Method::POST, "/v1/apps/bad/versions")
            .multipart(form)
    };
    for (form, expected) in [
        (Form::new().text("manifest", ""), "component is missing"),
        (
            Form::new()
                .part("component", component())
                .part("component", component()),
            "stands twice",
        ),
        (Form::new().text("extra", "x"), "\"extra\" is not known"),
        (
            Form::new()
                .text("secrets", "[1]")
                .part("component", component()),
            "JSON object",
        ),
    ] {
        let (_, problem) = rig.refused(send(form)).await;
        assert_eq!(problem.code.as_str(), "FDN-2005", "{}", problem.detail);
        assert!(problem.detail.contains(expected), "{}", problem.detail);
    }
    let (_, problem) = rig
        .refused(send(Form::new().text("manifest", "#".repeat(300 << 10))))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2007");
    let (_, problem) = rig
        .refused(rig.request(Method::POST, "/v1/apps/bad/versions").body("x"))
        .await;
    assert!(
        problem.detail.contains("multipart/form-data"),
        "{}",
        problem.detail
    );
    let (_, problem) = rig
        .refused(rig.upload("Bad_Name", components::hello("x"), None, None))
        .await;
    assert_eq!(problem.code.as_str(), "FDN-2005");
    assert!(problem.detail.contains("app name"), "{}", problem.detail);
    nothing_is_stored(&rig, "wrong parts").await;
}

async fn secrets_have_the_limits_of_those_set_alone(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        settings.secrets.value_limit = ByteSize::from_bytes(8);
        settings.secrets.per_app = 2;
    })
    .await;
    let upload = |names: &str, secrets: Value| {
        let manifest = format!("secrets = {names}\n");
        let secrets = secrets.to_string();
        let component = components::hello("x");
        rig.upload("bad", component, Some(&manifest), Some(&secrets))
    };
    let long = json!({ "A": "tr0ub4dor" });
    let (status, problem) = rig.refused(upload(r#"["A"]"#, long)).await;
    let code = problem.code.as_str();
    assert_eq!((status.as_u16(), code), (422, "FDN-2021"));
    assert!(!problem.detail.contains("tr0ub4dor"), "{}", problem.detail);
    nothing_is_stored(&rig, "a value that is too large").await;
    let (two, three) = (r#"["A", "B"]"#, r#"["A", "B", "C"]"#);
    let sent = json!({ "A": "1", "B": "1", "C": "1" });
    let (status, problem) = rig.refused(upload(three, sent)).await;
    let code = problem.code.as_str();
    assert_eq!((status.as_u16(), code), (409, "FDN-2004"));
    assert!(problem.detail.contains("2 secrets"), "{}", problem.detail);
    nothing_is_stored(&rig, "too many secrets").await;
    // The limits themselves are allowed, and new values of secrets that are there are not more of them.
    let first = json!({ "A": "12345678", "B": "1" });
    let _: Value = rig.json(upload(two, first)).await;
    let again: DeployResponse = rig.json(upload(two, json!({ "A": "2", "B": "2" }))).await;
    assert_eq!(again.version.get(), 2);
    let artifacts = rig.artifacts();
    let third = upload(three, json!({ "C": "3" }));
    assert_eq!(rig.code(third).await, "FDN-2004");
    assert_eq!(rig.artifacts(), artifacts);
    let secrets: Vec<SecretInfo> = rig.get("/v1/apps/bad/secrets").await;
    assert_eq!(secrets.len(), 2);
}

async fn one_tenant_leaves_places_to_others(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.uploads.parallel = 3).await;
    let people = people(&rig).await;
    // As if two uploads of the tenant were on their way.
    let place = || rig.controller.state().uploads.acquire_place(DEFAULT_TENANT);
    let (first, second) = (place().expect("free"), place().expect("free"));
    let upload = || rig.upload("hello", components::hello("x"), None, None);
    let answer = upload().send().await.expect("an answer");
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "5");
    let ready = rig.request(Method::POST, "/v1/catalogue/hello/deploy");
    assert_eq!(rig.code(ready.json(&json!({}))).await, "FDN-2006");
    let theirs = rig.anonymous(Method::POST, "/v1/apps/theirs/versions");
    let form = Form::new().part("component", Part::bytes(components::hello("y")));
    let theirs = theirs.bearer_auth(&people.outsider).multipart(form);
    let _: Value = rig.json(theirs).await;
    drop(first);
    let _: Value = rig.json(upload()).await;
    drop(second);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_artifact_store_that_cannot_be_written_is_counted() {
    let rig = Rig::start().await;
    let local = &rig.settings.artifacts.local;
    // File permissions would not do: they do not bind the user that runs the tests.
    std::fs::remove_dir_all(local).expect("taken away");
    std::fs::write(local, "no folder").expect("written");
    let upload = || rig.upload("hello", components::hello("x"), None, None);
    let (_, problem) = rig.refused(upload()).await;
    assert_eq!(problem.code, ErrorCode::ArtifactStoreFailed);
    let failures = &rig.controller.state().metrics.artifacts.write_failures;
    assert_eq!(failures.get(), 1);
    std::fs::remove_file(local).expect("removed");
    std::fs::create_dir(local).expect("made");
    let answer = upload().send().await.expect("an answer");
    assert!(answer.status().is_success(), "{}", answer.status());
    assert_eq!(failures.get(), 1);
}
