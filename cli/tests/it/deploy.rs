//! `fdn deploy` against a fake controller.

use fdn_cli::exit::Exit;
use http::Method;

use crate::support::{Fake, Home, Recorded, Reply, sample};

fn is(request: &Recorded, method: &Method, path: &str) -> bool {
    request.method == *method && request.path == path
}

#[tokio::test]
async fn deploy_sends_manifest_secrets_and_component_and_waits_for_every_node() {
    let fake = Fake::start(|request, before| {
        if is(request, &Method::POST, "/v1/apps/hello/versions") {
            return Reply::json(&sample::deployed("hello"));
        }
        // First not ready, then at an older revision, then ready.
        match before {
            0..=2 => Reply::json(&sample::detail("hello")),
            3 => Reply::json(&sample::ready("hello", 8)),
            _ => Reply::json(&sample::ready("hello", 9)),
        }
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let file = home.file("f/hello.wasm", b"\0asm component");
    home.file("f/fdn.toml", "memory = \"16MiB\"\nsecrets = [\"KEY\"]\n");
    let secret = format!("KEY={}", home.file("key", "s3cret\n"));
    let ran = home
        .fdn(&["deploy", "hello", &file, "--secret", &secret])
        .await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    for expected in [
        "deployed hello v3",
        "http://hello.fn.test/",
        "status 200",
        "3.25 ms",
        "ready on 3 nodes",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.out);
    }
    assert!(
        !ran.err.contains("eu-west-2"),
        "the failure of an older revision is no news: {}",
        ran.err
    );
    let requests = fake.requests();
    let upload = String::from_utf8_lossy(&requests[0].body).into_owned();
    let place = |text: &str| {
        upload
            .find(text)
            .unwrap_or_else(|| panic!("{text} is missing in {upload}"))
    };
    assert!(
        place("name=\"manifest\"") < place("name=\"secrets\""),
        "{upload}"
    );
    assert!(
        place("name=\"secrets\"") < place("name=\"component\""),
        "{upload}"
    );
    assert!(
        upload.contains("memory = \"16MiB\"") && upload.contains("{\"KEY\":\"s3cret\"}"),
        "{upload}"
    );
    assert!(
        upload.contains("\0asm component") && upload.contains("filename=\"hello.wasm\""),
        "{upload}"
    );
    assert!(
        requests
            .iter()
            .all(|r| r.authorization.as_deref() == Some("Bearer secret-token"))
    );
    assert!(requests.len() >= 5, "it waited: {}", requests.len());
}

#[tokio::test]
async fn deploy_without_waiting_asks_no_more_and_prints_one_value_for_scripts() {
    let fake = Fake::start(|_, _| Reply::json(&sample::deployed("hello"))).await;
    let home = Home::logged_in(&fake.url());
    let file = home.file("hello.wasm", b"\0asm");
    let ran = home
        .fdn(&["deploy", "hello", &file, "--no-wait", "-o", "json"])
        .await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    let printed: fdn_core::api::DeployResponse =
        serde_json::from_str(&ran.out).expect("one JSON value");
    assert_eq!(printed, sample::deployed("hello"));
    assert_eq!(fake.requests().len(), 1);
    let ran = home
        .fdn(&["deploy", "hello", &file, "--no-wait", "-o", "name"])
        .await;
    assert_eq!(ran.out, "hello\n");
}

#[tokio::test]
async fn deploy_says_which_nodes_are_late() {
    let fake = Fake::start(|request, _| match request.method {
        Method::POST => Reply::json(&sample::deployed("hello")),
        _ => {
            let mut detail = sample::ready("hello", 9);
            let failed = fdn_core::message::AppPhase::Failed {
                reason: "the disk is full".into(),
            };
            detail.nodes[1].observed.as_mut().expect("observed").phase = failed;
            detail.nodes[2].observed = None;
            Reply::json(&detail)
        }
    })
    .await;
    let home = Home::logged_in(&fake.url());
    let file = home.file("hello.wasm", b"\0asm");
    let ran = home
        .fdn(&["deploy", "hello", &file, "--timeout", "300ms"])
        .await;
    assert_eq!(ran.exit, Exit::Timeout, "{ran:?}");
    assert!(
        ran.err.contains("not ready on 2 of 3 nodes within 300ms"),
        "{}",
        ran.err
    );
    assert!(
        ran.err
            .contains("eu-west-2 failed: the disk is full, us-east-1 waiting"),
        "{}",
        ran.err
    );
    assert_eq!(
        ran.err.matches("it tries again").count(),
        1,
        "a reason is told once: {}",
        ran.err
    );
}

#[tokio::test]
async fn what_is_wrong_with_a_file_is_found_before_anything_is_sent() {
    let fake = Fake::start(|_, _| Reply::json(&sample::deployed("hello"))).await;
    let home = Home::logged_in(&fake.url());
    let good = home.file("ok/hello.wasm", b"\0asm");
    let empty = home.file("empty.wasm", b"");
    let with_bad_manifest = home.file("bad/hello.wasm", b"\0asm");
    home.file("bad/fdn.toml", "memroy = \"1MiB\"\n");
    let missing_secret = format!("KEY={}", home.folder.path().join("none").display());
    let folder = home.folder.path().display().to_string();
    for (args, expected) in [
        (
            vec!["deploy", "a", "/nonexistent.wasm"],
            "/nonexistent.wasm: there is no such file",
        ),
        (vec!["deploy", "a", &folder], "it is a folder"),
        (vec!["deploy", "a", &empty], "FDN-1001"),
        (vec!["deploy", "a", &with_bad_manifest], "FDN-1010"),
        (
            vec!["deploy", "a", &good, "--manifest", "/nonexistent.toml"],
            "/nonexistent.toml",
        ),
        (
            vec!["deploy", "a", &good, "--secret", &missing_secret],
            "none",
        ),
    ] {
        let ran = home.fdn(&args).await;
        assert_eq!(ran.exit, Exit::Usage, "{args:?}: {ran:?}");
        assert!(ran.err.contains(expected), "{args:?}: {}", ran.err);
        assert!(ran.err.contains("hint:"), "{args:?}: {}", ran.err);
    }
    assert_eq!(fake.requests().len(), 0);
}

#[tokio::test]
async fn an_image_in_a_registry_is_named_instead_of_sent() {
    let fake = Fake::start(|_, _| Reply::json(&sample::deployed("thumbs"))).await;
    let home = Home::logged_in(&fake.url());
    let image = format!("ghcr.io/acme/thumbs@sha256:{}", "0f".repeat(32));
    let ran = home.fdn(&["deploy", "thumbs", &image, "--no-wait"]).await;
    assert_eq!(ran.exit, Exit::Ok, "{ran:?}");
    let upload = String::from_utf8_lossy(&fake.requests()[0].body).into_owned();
    assert!(upload.contains(&image), "{upload}");
    assert!(upload.contains("runtime = \"docker\""), "{upload}");
    let other = home.file("fdn.toml", "memory = \"16MiB\"\n");
    let refused: [(&[&str], &str); 2] = [
        (
            &[&image, "--manifest", &other],
            "needs runtime = \"docker\"",
        ),
        (&["ghcr.io/acme/thumbs:latest"], "a tag can be moved"),
    ];
    for (args, expected) in refused {
        let ran = home.fdn(&[&["deploy", "thumbs"], args].concat()).await;
        assert_eq!(ran.exit, Exit::Usage, "{args:?}: {ran:?}");
        assert!(ran.err.contains(expected), "{args:?}: {}", ran.err);
    }
    assert_eq!(fake.requests().len(), 1);
}
