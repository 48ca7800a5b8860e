//! Checks that the committed API document is the one that the handlers generate.

use fdn_controller::openapi_json;
use reqwest::Method;

use crate::rig::Rig;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");

#[tokio::test(flavor = "multi_thread")]
async fn the_checked_in_document_is_current() {
    let made = openapi_json().expect("made");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(PATH, &made).expect("written");
    }
    let kept = std::fs::read_to_string(PATH).expect("docs/openapi.json");
    assert!(
        kept == made,
        "docs/openapi.json differs from the handlers; run this test with UPDATE_GOLDEN=1 and look at the change"
    );
    let rig = Rig::start().await;
    let served = rig
        .anonymous(Method::GET, "/api/openapi.json")
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("text");
    assert_eq!(served, made);
}

#[test]
fn every_path_of_the_shared_table_is_there() {
    let document: serde_json::Value =
        serde_json::from_str(&openapi_json().expect("made")).expect("JSON");
    let table = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../core/src/api.rs"))
        .expect("core/src/api.rs");
    let mut found = 0;
    for line in table.lines().filter(|line| line.starts_with("//! | `")) {
        for call in line.split('|').nth(1).expect("a cell").split(',') {
            let call = call.trim().trim_matches('`');
            let (method, path) = call.split_once(' ').expect("method and path");
            let path = path.split('?').next().expect("a path");
            // The machines' listener is not part of the API.
            if path.starts_with("/edge/") {
                continue;
            }
            assert!(
                document["paths"][path][method.to_lowercase()].is_object(),
                "{method} {path}"
            );
            found += 1;
        }
    }
    assert_eq!(
        found,
        document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .map(|p| p.as_object().expect("item").len())
            .sum::<usize>()
    );
}
