//! Bad files, typed as a person would upload them: each is refused with its own code and what to do, and nothing is stored.

use std::path::PathBuf;

use fdn_e2e::{Embedded, root};
use fdn_testkit::components;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_file_gets_its_own_clear_error() {
    let network = Embedded::start().await;
    let cli = network.cli();
    let hello = std::fs::read(root().join("functions/hello/hello.wasm"))
        .expect("hello is part of the project");
    let elf = std::fs::read(fdn_e2e::binary("fdn-dns")).expect("a program");
    let cases: [(&str, Vec<u8>, &str, &str); 7] = [
        ("empty", Vec::new(), "FDN-1001", "empty"),
        ("elf", elf[..100_000].to_vec(), "FDN-1002", "ELF"),
        (
            "text",
            b"print('hello')\n".to_vec(),
            "FDN-1002",
            "plain text",
        ),
        (
            "core",
            components::core_module(),
            "FDN-1003",
            "wasm-tools component new",
        ),
        (
            "truncated",
            hello[..hello.len() / 2].to_vec(),
            "FDN-1004",
            "offset",
        ),
        (
            "no-handler",
            components::no_handler(),
            "FDN-1005",
            "wasi:http/incoming-handler",
        ),
        (
            "foreign",
            components::foreign_import(),
            "FDN-1006",
            "import",
        ),
    ];
    for (name, bytes, code, words) in cases {
        let path: PathBuf = network.folder().join(format!("{name}.wasm"));
        std::fs::write(&path, bytes).expect("the folder takes a file");
        let typed = cli.run(["deploy", "bad", &path.display().to_string()]);
        assert_eq!(typed.code, 2, "{name}: {} {}", typed.out, typed.err);
        assert!(
            typed.err.contains(code) && typed.err.contains(words),
            "{name}: {}",
            typed.err
        );
    }
    assert_eq!(
        cli.json(["list"]),
        serde_json::json!([]),
        "nothing was deployed"
    );
    let stored: Vec<PathBuf> = files(&network.data().join("artifacts"));
    assert!(stored.is_empty(), "nothing is stored: {stored:?}");
}

fn files(folder: &std::path::Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .flat_map(|entry| {
            if entry.path().is_dir() {
                files(&entry.path())
            } else {
                vec![entry.path()]
            }
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_that_misbehaves_ends_in_a_clean_error_and_harms_no_neighbour() {
    let network = Embedded::start().await;
    let cli = network.cli();
    let (bad, good) = (
        network.folder().join("bad.wasm"),
        network.folder().join("good.wasm"),
    );
    std::fs::write(&bad, components::faulty()).expect("the folder takes a file");
    std::fs::write(&good, components::hello("still here")).expect("the folder takes a file");
    let manifest = network.folder().join("bad.toml");
    std::fs::write(
        &manifest,
        // The CPU time is what must end it, on a busy machine too.
        "cpu_time = \"300ms\"\ntimeout = \"60s\"\nmemory = \"16MiB\"\nresponse_limit = \"1MiB\"\n",
    )
    .expect("the folder takes a file");
    let (bad, good, manifest) = (
        bad.display().to_string(),
        good.display().to_string(),
        manifest.display().to_string(),
    );
    cli.ok(["deploy", "bad", &bad, "--manifest", &manifest, "--wait"]);
    cli.ok(["deploy", "good", &good, "--wait"]);
    let client =
        fdn_service::http_client::build(2 * fdn_testkit::wait::PATIENCE).expect("a client");
    let call = async |app: &str, path: &str| {
        let url = format!("http://{}{path}", network.gateway());
        client
            .get(url)
            .header("host", format!("{app}.fn.test"))
            .send()
            .await
    };
    for (path, status, code) in [
        ("/loop", 502, "FDN-3004"),
        ("/trap", 502, "FDN-3002"),
        ("/memory", 502, "FDN-3005"),
    ] {
        let response = call("bad", path).await.expect("an answer");
        assert_eq!(response.status(), status, "{path}");
        let problem: serde_json::Value = response.json().await.expect("a problem document");
        assert_eq!(problem["code"], code, "{path}: {problem}");
        let neighbour = call("good", "/").await.expect("an answer");
        assert_eq!(neighbour.text().await.expect("a body"), "still here");
    }
    // A body without end is cut where its limit is: the client sees a broken transfer, not a short answer.
    let endless = call("bad", "/body").await.expect("a head");
    assert!(endless.bytes().await.is_err(), "the connection is cut");
    let logs = cli.ok(["logs", "bad", "--tail", "100"]);
    for reason in [
        "300ms of CPU time",
        "unreachable",
        "16MiB of memory",
        "larger than 1MiB",
    ] {
        assert!(logs.contains(reason), "{reason} is not in the log: {logs}");
    }
    assert_eq!(call("good", "/").await.expect("an answer").status(), 200);
}
