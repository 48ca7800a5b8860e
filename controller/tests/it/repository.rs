//! The code repository over the API, on both databases: storage limits, labels, signatures, the catalogue, and the record of checks.

use ed25519_dalek::pkcs8::EncodePublicKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::{Signer, SigningKey};
use fdn_core::account::TenantInfo;
use fdn_core::api::{AppDetail, AppSummary, DeployResponse};
use fdn_core::label::Labels;
use fdn_core::repository::{CatalogueEntry, SigningKeyInfo};
use fdn_core::{ByteSize, Digest};
use fdn_testkit::components;
use reqwest::multipart::{Form, Part};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::accounts::people;
use crate::rig::{Backend, Rig, on_both};

on_both!(
    a_tenant_stores_as_much_as_it_may,
    changed_variables_and_workflows_count_too,
    labels_are_set_shown_and_filtered_by,
    unsigned_uploads_are_refused_when_the_tenant_says_so,
    both_kinds_of_keys_sign,
    the_catalogue_is_deployed_by_name,
);

async fn tenant(rig: &Rig) -> TenantInfo {
    rig.get("/v1/tenants/default").await
}

async fn limit(rig: &Rig, storage: Value) -> TenantInfo {
    let request = rig.request(Method::PATCH, "/v1/tenants/default");
    rig.json(request.json(&json!({ "storage": storage }))).await
}

async fn a_tenant_stores_as_much_as_it_may(backend: Backend) {
    let one = components::hello("one");
    let size = one.len() as u64;
    let rig = Rig::start_with(backend, |settings| {
        settings.repository.tenant_bytes = ByteSize::from_bytes(size * 2 + 1);
        settings.repository.tenant_versions = 3;
    })
    .await;
    rig.deploy("one", one).await;
    rig.deploy("two", components::hello("two")).await;
    let used = tenant(&rig).await.storage;
    assert_eq!((used.bytes, used.versions), (2 * size, 2));
    assert_eq!((used.bytes_limit, used.versions_limit), (2 * size + 1, 3));
    assert!(!used.own_limit);
    let refused = async |text: &str| {
        let upload = rig.upload("three", components::hello("six"), None, None);
        let (status, problem) = rig.refused(upload).await;
        assert_eq!((status.as_u16(), problem.code.as_str()), (409, "FDN-2035"));
        assert!(problem.detail.contains(text), "{}", problem.detail);
    };
    refused(&format!("limit of {} bytes", 2 * size + 1)).await;
    assert_eq!(rig.artifacts().len(), 2, "nothing of it is stored");
    // An artifact that is stored already may be uploaded again.
    rig.deploy("two", components::hello("two")).await;

    let own = limit(&rig, json!({ "bytes": "1GiB", "versions": 2 })).await;
    assert!(own.storage.own_limit);
    assert_eq!(
        (own.storage.bytes_limit, own.storage.versions_limit),
        (1 << 30, 2)
    );
    refused("the tenant's limit is 2").await;
    let back = limit(&rig, json!({ "bytes": "1GiB" })).await;
    assert_eq!(back.storage.versions_limit, 3, "the network's");
    rig.deploy("three", components::hello("six")).await;
    let listed: Vec<TenantInfo> = rig.get("/v1/tenants").await;
    assert_eq!(listed[0].storage.versions, 3);
    let people = people(&rig).await;
    let by_owner = rig
        .anonymous(Method::PATCH, "/v1/tenants/default")
        .bearer_auth(&people.owner)
        .json(&json!({ "storage": {} }));
    assert_eq!(rig.code(by_owner).await, "FDN-2002");
}

async fn changed_variables_and_workflows_count_too(backend: Backend) {
    let component = components::hello("one");
    let size = component.len() as u64;
    let rig = Rig::start_with(backend, |settings| {
        settings.repository.tenant_bytes = ByteSize::from_bytes(size * 2);
    })
    .await;
    rig.deploy("one", component).await;
    let change = |value: &str| {
        let request = rig.request(Method::PATCH, "/v1/apps/one/env");
        request.json(&json!({ "set": { "A": value } }))
    };
    let second: DeployResponse = rig.json(change("1")).await;
    assert_eq!(second.version.get(), 2);
    assert_eq!(rig.code(change("2")).await, "FDN-2035");
    let same: DeployResponse = rig.json(change("1")).await;
    assert!(same.unchanged, "what is there takes no more room");
    let flow = json!({ "stages": [{ "name": "only", "function": "one" }] });
    let put = rig.request(Method::PUT, "/v1/apps/flow/workflow");
    assert_eq!(rig.code(put.json(&flow)).await, "FDN-2035");
    let used = tenant(&rig).await.storage;
    assert_eq!((used.bytes, used.versions), (2 * size, 2));
}

/// An upload with additional parts.
fn upload(
    rig: &Rig,
    app: &str,
    component: Vec<u8>,
    parts: &[(&'static str, String)],
) -> RequestBuilder {
    let mut form = Form::new();
    for (name, text) in parts {
        form = form.text(*name, text.clone());
    }
    let form = form.part("component", Part::bytes(component));
    rig.request(Method::POST, &format!("/v1/apps/{app}/versions"))
        .multipart(form)
}

async fn names(rig: &Rig, query: &str) -> Vec<String> {
    let rows: Vec<AppSummary> = rig.get(&format!("/v1/apps{query}")).await;
    rows.into_iter().map(|row| row.app.to_string()).collect()
}

async fn label(rig: &Rig, path: &str, labels: Value) -> Labels {
    rig.json(rig.request(Method::PUT, path).json(&labels)).await
}

async fn labels_are_set_shown_and_filtered_by(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    let wish = [("labels", r#"{"tier":"gold","commit":"abc"}"#.to_owned())];
    let _: DeployResponse = rig
        .json(upload(&rig, "one", components::hello("1"), &wish))
        .await;
    rig.deploy("two", components::hello("2")).await;
    label(
        &rig,
        "/v1/apps/one/labels",
        json!({ "team": "shop", "tier": "silver" }),
    )
    .await;
    label(
        &rig,
        "/v1/apps/two/labels",
        json!({ "team": "shop", "tier": "silver" }),
    )
    .await;
    let detail: AppDetail = rig.get("/v1/apps/one").await;
    assert_eq!(
        detail.summary.labels.to_string(),
        "commit=abc,team=shop,tier=gold"
    );
    assert_eq!(
        detail.versions[0].labels.to_string(),
        "commit=abc,tier=gold"
    );
    for (query, expected) in [
        ("?label=team=shop", &["one", "two"][..]),
        ("?label=team", &["one", "two"]),
        ("?label=tier=silver", &["two"]),
        ("?label=tier=gold", &["one"]),
        ("?label=team=shop,tier=gold", &["one"]),
        ("?label=team=other", &[]),
        ("?label=absent", &[]),
        ("?label=commit&limit=1", &["one"]),
    ] {
        assert_eq!(names(&rig, query).await, expected, "{query}");
    }
    for bad in ["?label=Team", "?label=a%3Db%20c"] {
        let request = rig.request(Method::GET, &format!("/v1/apps{bad}"));
        assert_eq!(rig.code(request).await, "FDN-2005");
    }
    // The labels of a version are hidden when it is not current, and return with it.
    let wish = [("labels", r#"{"commit":"def"}"#.to_owned())];
    let _: DeployResponse = rig
        .json(upload(&rig, "one", components::hello("3"), &wish))
        .await;
    assert_eq!(names(&rig, "?label=tier=silver").await, ["one", "two"]);
    label(
        &rig,
        "/v1/apps/one/labels?version=2",
        json!({ "commit": "def", "good": "" }),
    )
    .await;
    assert_eq!(names(&rig, "?label=good=").await, ["one"]);
    // The same upload with other labels creates no new version.
    let wish = [("labels", r#"{"commit":"ghi"}"#.to_owned())];
    let same: DeployResponse = rig
        .json(upload(&rig, "one", components::hello("3"), &wish))
        .await;
    assert!(same.unchanged);
    let own: Labels = rig.get("/v1/apps/one/labels?version=2").await;
    assert_eq!(own.to_string(), "commit=ghi");

    let tag = rig
        .request(Method::GET, "/v1/apps/one/labels")
        .send()
        .await
        .expect("an answer");
    let tag = tag.headers()["etag"].to_str().expect("text").to_owned();
    label(&rig, "/v1/apps/one/labels", json!({})).await;
    let stale = rig
        .request(Method::PUT, "/v1/apps/one/labels")
        .header("if-match", tag)
        .json(&json!({ "a": "b" }));
    assert_eq!(rig.code(stale).await, "FDN-2013");
    for (path, wish, code) in [
        ("/v1/apps/one/labels?version=9", json!({}), "FDN-2003"),
        ("/v1/apps/none/labels", json!({}), "FDN-2003"),
        ("/v1/apps/one/labels", json!({ "A": "b" }), "FDN-2005"),
    ] {
        let request = rig.request(Method::PUT, path).json(&wish);
        assert_eq!(rig.code(request).await, code, "{path}");
    }
    let many: serde_json::Map<String, Value> =
        (0..33).map(|n| (format!("k{n}"), json!(""))).collect();
    let request = rig.request(Method::PUT, "/v1/apps/one/labels").json(&many);
    assert_eq!(rig.code(request).await, "FDN-2005");
}

const POLICY: &str = "/v1/tenants/default/signature-policy";

fn key() -> (SigningKey, String) {
    let secret = SigningKey::from_bytes(&[7; 32]);
    let pem = secret
        .verifying_key()
        .to_public_key_pem(LineEnding::LF)
        .expect("PEM");
    (secret, pem)
}

fn signed(secret: &SigningKey, bytes: &[u8]) -> [(&'static str, String); 1] {
    use base64::Engine;
    let made = secret.sign(bytes).to_bytes();
    let text = base64::engine::general_purpose::STANDARD.encode(made);
    [("signature", text)]
}

async fn unsigned_uploads_are_refused_when_the_tenant_says_so(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| settings.repository.signing_keys_max = 1).await;
    let (secret, pem) = key();
    let keys = "/v1/tenants/default/signing-keys";
    let policy = |policy: &str| {
        rig.request(Method::PUT, POLICY)
            .json(&json!({ "policy": policy }))
    };
    assert_eq!(
        rig.code(policy("required")).await,
        "FDN-2004",
        "there is no key"
    );
    let put = |name: &str, pem: &str| {
        rig.request(Method::PUT, &format!("{keys}/{name}"))
            .json(&json!({ "public_key": pem }))
    };
    assert_eq!(rig.code(put("release", "no key")).await, "FDN-1032");
    let added: SigningKeyInfo = rig.json(put("release", &pem)).await;
    assert_eq!(added.algorithm.as_str(), "ed25519");
    assert_eq!(
        rig.code(put("second", &pem)).await,
        "FDN-2004",
        "one is the most"
    );
    let listed: Vec<SigningKeyInfo> = rig.get(keys).await;
    assert_eq!(listed, [added]);

    let hello = components::hello("signed");
    // A signature is checked if sent, even where none is required.
    let wrong = signed(&secret, b"other bytes");
    let request = upload(&rig, "hello", hello.clone(), &wrong);
    assert_eq!(rig.code(request).await, "FDN-1031");
    rig.deploy("free", components::hello("free")).await;
    let info: TenantInfo = rig.json(policy("required")).await;
    assert_eq!(info.signature_policy.as_str(), "required");
    let unsigned = rig.upload("hello", hello.clone(), None, None);
    let (status, problem) = rig.refused(unsigned).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (422, "FDN-1030"));
    assert!(
        problem.detail.contains("cosign sign-blob"),
        "{}",
        problem.detail
    );
    assert_eq!(
        rig.code(upload(&rig, "hello", hello.clone(), &wrong)).await,
        "FDN-1031"
    );
    assert_eq!(rig.artifacts().len(), 1, "refused uploads leave nothing");

    let right = signed(&secret, &hello);
    let deployed: DeployResponse = rig.json(upload(&rig, "hello", hello, &right)).await;
    let step = &deployed.validation[0];
    assert_eq!(step.step, "signature");
    assert!(
        step.result.starts_with("by key release (ed25519, "),
        "{}",
        step.result
    );
    let detail: AppDetail = rig.get("/v1/apps/hello").await;
    assert_eq!(
        detail.versions[0].validation, deployed.validation,
        "it is kept"
    );
    // What is deployed already is not a new upload.
    rig.deploy("free", components::hello("free")).await;
    let request = rig
        .request(Method::POST, "/v1/catalogue/hello/deploy")
        .json(&json!({ "app": "ready" }));
    assert_eq!(
        rig.code(request).await,
        "FDN-1030",
        "the catalogue is not above the policy"
    );

    let remove = || rig.request(Method::DELETE, &format!("{keys}/release"));
    assert_eq!(
        rig.code(remove()).await,
        "FDN-2004",
        "the last one, and asked for"
    );
    let _: TenantInfo = rig.json(policy("optional")).await;
    assert_eq!(remove().send().await.expect("an answer").status(), 204);
    assert_eq!(rig.code(remove()).await, "FDN-2003");
    let other = components::hello("other");
    let right = signed(&secret, &other);
    assert_eq!(
        rig.code(upload(&rig, "hello", other, &right)).await,
        "FDN-1031",
        "the key is gone"
    );
}

async fn both_kinds_of_keys_sign(backend: Backend) {
    use base64::Engine as _;
    use p256::ecdsa::signature::Signer as _;

    let rig = Rig::start_with(backend, |_| {}).await;
    let (edwards, edwards_pem) = key();
    let curve = p256::ecdsa::SigningKey::from_slice(&[7; 32]).expect("a key");
    let curve_pem = curve.verifying_key().to_public_key_pem(LineEnding::LF);
    let by_curve = |bytes: &[u8]| {
        let made: p256::ecdsa::Signature = curve.sign(bytes);
        let text = base64::engine::general_purpose::STANDARD.encode(made.to_der());
        [("signature", text)]
    };
    for (name, pem, algorithm) in [
        ("edwards", edwards_pem, "ed25519"),
        ("curve", curve_pem.expect("PEM"), "ecdsa-p256"),
    ] {
        let path = format!("/v1/tenants/default/signing-keys/{name}");
        let put = rig.request(Method::PUT, &path);
        let added: SigningKeyInfo = rig.json(put.json(&json!({ "public_key": pem }))).await;
        assert_eq!(added.algorithm.as_str(), algorithm);
    }
    let required = rig.request(Method::PUT, POLICY);
    let _: TenantInfo = rig
        .json(required.json(&json!({ "policy": "required" })))
        .await;
    for (text, by) in [("one", "curve"), ("two", "edwards")] {
        let bytes = components::hello(text);
        let sign = |bytes: &[u8]| match by {
            "curve" => by_curve(bytes),
            _ => signed(&edwards, bytes),
        };
        let wrong = upload(&rig, "hello", bytes.clone(), &sign(b"other bytes"));
        assert_eq!(rig.code(wrong).await, "FDN-1031", "{by}");
        let right = sign(&bytes);
        let deployed: DeployResponse = rig.json(upload(&rig, "hello", bytes, &right)).await;
        let algorithm = match by {
            "curve" => "ecdsa-p256",
            _ => "ed25519",
        };
        let words = format!("by key {by} ({algorithm}, ");
        let step = &deployed.validation[0];
        assert!(step.result.starts_with(&words), "{}", step.result);
    }
}

async fn the_catalogue_is_deployed_by_name(backend: Backend) {
    let folder = tempfile::tempdir().expect("folder");
    let mine = components::hello("mine");
    let write = |path: &str, bytes: &[u8]| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, bytes).expect("written");
    };
    write(
        "catalogue.toml",
        b"[mine]\nsummary = \"says mine\"\nlanguage = \"WAT\"\n",
    );
    write("mine/mine.wasm", &mine);
    write("mine/fdn.toml", b"memory = \"8MiB\"\n");
    write(
        "CHECKSUMS",
        format!("{}  mine/mine.wasm\n", Digest::of(&mine).hex()).as_bytes(),
    );
    let rig = Rig::start_with(backend, |settings| {
        settings.repository.catalogue = Some(folder.path().to_owned());
    })
    .await;
    let all: Vec<CatalogueEntry> = rig.get("/v1/catalogue").await;
    let of: Vec<&str> = all.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(of, ["hello", "image", "mine", "sheet"]);
    let page: Vec<CatalogueEntry> = rig.get("/v1/catalogue?limit=1").await;
    assert_eq!(page, all[..1]);
    let deploy = |name: &str, wish: Value| {
        rig.request(Method::POST, &format!("/v1/catalogue/{name}/deploy"))
            .json(&wish)
    };
    let hello: DeployResponse = rig.json(deploy("hello", json!({}))).await;
    assert_eq!((hello.app.as_str(), hello.digest), ("hello", all[0].digest));
    assert!(
        hello.validation.iter().any(|step| step.step == "probe"),
        "it is checked as an upload is"
    );
    let wish = json!({ "app": "shop", "labels": { "from": "catalogue" } });
    let shop: DeployResponse = rig.json(deploy("mine", wish)).await;
    assert_eq!(shop.app.as_str(), "shop");
    let detail: AppDetail = rig.get("/v1/apps/shop").await;
    assert_eq!(detail.versions[0].manifest.memory, ByteSize::from_mib(8));
    assert_eq!(names(&rig, "?label=from=catalogue").await, ["shop"]);
    assert_eq!(rig.code(deploy("none", json!({}))).await, "FDN-2003");
    write("mine/mine.wasm", &components::hello("evil"));
    let (status, problem) = rig.refused(deploy("mine", json!({ "app": "evil" }))).await;
    assert_eq!((status.as_u16(), problem.code.as_str()), (503, "FDN-2038"));
    let people = people(&rig).await;
    let by_viewer = rig
        .anonymous(Method::POST, "/v1/catalogue/hello/deploy")
        .bearer_auth(&people.viewer)
        .json(&json!({}));
    assert_eq!(rig.code(by_viewer).await, "FDN-2002");
    assert_eq!(names(&rig, "").await, ["hello", "shop"]);
}
