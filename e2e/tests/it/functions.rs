//! Every ready-made function, called through the network with the cases that stand beside its source.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fdn_e2e::{Deadlines, Network, root};
use fdn_testkit::wait;
use serde::Deserialize;
use serde_json::Value;

/// The functions that come with the network.
const FUNCTIONS: [&str; 5] = ["hello", "image", "sheet", "text-stats", "json-transform"];

/// One request and what its answer must be; `functions/README.md` tells the form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    request: Request,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    method: String,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    body_file: Option<PathBuf>,
    #[serde(default)]
    body_base64: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    json: Option<Value>,
    #[serde(default)]
    contains: Vec<String>,
    #[serde(default)]
    image: Option<Image>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    format: String,
    width: u32,
    height: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_function_passes_its_cases_through_the_network() {
    // Compiling a whole language's interpreter takes a busy machine longer than the product's deadline.
    let mut network = Network::without_nodes(Deadlines::Long)
        .await
        .expect("controller and DNS start");
    network.start_node((0, 0), "").await.expect("a node starts");
    let gateway = SocketAddr::new(network.node(0, 0), network.gateway_port);
    let cli = network.cli().expect("logged in");
    let mut failures = Vec::new();
    for name in FUNCTIONS {
        let folder = root().join("functions").join(name);
        let component = folder.join(format!("{name}.wasm"));
        assert!(
            component.is_file(),
            "{} is not built: run make functions",
            component.display()
        );
        cli.ok([
            "deploy",
            name,
            &component.display().to_string(),
            "--wait",
            "--timeout",
            "600s",
        ]);
        let text =
            std::fs::read_to_string(folder.join("cases.json")).expect("each function has cases");
        let cases: Vec<Case> =
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}/cases.json: {e}"));
        assert!(!cases.is_empty());
        // Twice: a function that keeps its instance must answer the same the second time.
        for case in cases.iter().chain(&cases) {
            if let Err(reason) = check(gateway, name, &folder, case).await {
                failures.push(format!("{name}: {}: {reason}", case.name));
            }
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

async fn check(gateway: SocketAddr, name: &str, folder: &Path, case: &Case) -> Result<()> {
    let client = fdn_service::http_client::build(wait::PATIENCE)?;
    let url = format!("http://{gateway}{}", case.request.path);
    let mut request = client
        .request(case.request.method.parse()?, url)
        .header("host", format!("{name}.fn.test"));
    for (key, value) in &case.request.headers {
        request = request.header(key, value);
    }
    if let Some(text) = &case.request.body {
        request = request.body(text.clone());
    } else if let Some(file) = &case.request.body_file {
        request = request.body(std::fs::read(folder.join(file))?);
    } else if let Some(text) = &case.request.body_base64 {
        request = request.body(STANDARD.decode(text)?);
    }
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await?;
    let text = String::from_utf8_lossy(&bytes);
    let expect = &case.expect;
    ensure!(status == expect.status, "status {status}: {text}");
    for (key, value) in &expect.headers {
        let got = headers.get(key).and_then(|v| v.to_str().ok());
        ensure!(got == Some(value), "header {key} is {got:?}, not {value:?}");
    }
    if let Some(body) = &expect.body {
        ensure!(text == *body, "body {text:?}");
    }
    for part in &expect.contains {
        ensure!(text.contains(part), "body lacks {part:?}: {text}");
    }
    if let Some(json) = &expect.json {
        let got: Value = serde_json::from_slice(&bytes)?;
        ensure!(got == *json, "json {got}");
    }
    if let Some(image) = &expect.image {
        let got = dimensions(&bytes);
        ensure!(got.as_ref() == Some(image), "image {got:?}");
    }
    Ok(())
}

/// Format and size as the file's own header tells them.
fn dimensions(bytes: &[u8]) -> Option<Image> {
    let image = |format: &str, width, height| {
        Some(Image {
            format: format.to_owned(),
            width,
            height,
        })
    };
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        // The first chunk is IHDR (PNG, section 11.2.1): width and height as big-endian 32 bits.
        let number = |at: usize| {
            bytes
                .get(at..at + 4)
                .and_then(|b| b.try_into().ok())
                .map(u32::from_be_bytes)
        };
        return image("png", number(16)?, number(20)?);
    }
    if !bytes.starts_with(&[0xff, 0xd8]) {
        return None;
    }
    // JPEG (ITU T.81, annex B): segments of marker and length; a start of frame holds height and width.
    let mut at = 2;
    loop {
        let marker = *bytes.get(at + 1)?;
        let number = |at: usize| {
            bytes
                .get(at..at + 2)
                .and_then(|b| b.try_into().ok())
                .map(u16::from_be_bytes)
        };
        if (0xc0..=0xcf).contains(&marker) && ![0xc4, 0xc8, 0xcc].contains(&marker) {
            return image("jpeg", number(at + 7)?.into(), number(at + 5)?.into());
        }
        at += 2 + usize::from(number(at + 2)?);
    }
}
