//! Container images as their authors upload them: through the command line into the artifact store, run by a node's Docker engine, with no
//! registry anywhere; one that is named instead, and pulled from a registry; and what is told of those that cannot run.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use fdn_e2e::{Cli, Deadlines, Network};
use fdn_testkit::registry::{Behaviour, Registry};
use fdn_testkit::{docker, wait};

/// Asks an app through the node's gateway.
async fn ask(network: &Network, app: &str, path: &str) -> Result<(u16, String)> {
    // A call waits for its first container.
    let client = fdn_service::http_client::build(5 * wait::PATIENCE)?;
    let url = format!(
        "http://{}:{}{path}",
        network.node(0, 0),
        network.gateway_port
    );
    let request = client.get(url).header("host", format!("{app}.fn.test"));
    let answer = request.send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

/// A network of one node that has a Docker engine, and may pull from this registry.
async fn network(registry: &Registry) -> Network {
    let mut network = Network::without_nodes(Deadlines::Long)
        .await
        .expect("it starts");
    let password = file(&network, "registry.password", "open sesame\n");
    // Calls of an app whose containers do not start wait until its description was seen.
    let settings = format!(
        "[docker]\nenabled = true\nsocket = \"{}\"\nengine_timeout = \"2m\"\nhealth_timeout = \"30s\"\n\
         [instances]\nwait = \"5m\"\nstart_timeout = \"5m\"\n[reports]\nstatus_interval = \"200ms\"\n\
         [[apps.registries]]\nhost = \"{}\"\nusername = \"puller\"\npassword_file = \"{password}\"\n",
        docker::socket().await.display(),
        host(registry)
    );
    network
        .start_node((0, 0), &settings)
        .await
        .expect("it starts");
    network
}

/// Where a registry is.
fn host(registry: &Registry) -> String {
    let repository = registry.repository();
    let host = repository.split('/').next().expect("a registry");
    host.to_owned()
}

/// Writes a file for an upload.
fn file(network: &Network, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path: PathBuf = network.folder().join(name);
    std::fs::write(&path, bytes).expect("the folder takes a file");
    path.display().to_string()
}

/// Waits until the description of an app has all of these words.
async fn describes(cli: &Cli, app: &str, words: &[&str]) {
    wait::until("the description", async || {
        let text = cli.ok(["describe", app]);
        let missing = words.iter().find(|words| !text.contains(**words));
        ensure!(missing.is_none(), "no {missing:?} in {text}");
        Ok(())
    })
    .await;
}

/// One network for all: it takes longer to start than the images do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_are_refused_with_the_reason_and_run_from_archives_and_a_registry() {
    let behaviour = Behaviour {
        credentials: Some(("puller", "open sesame")),
        ..Behaviour::default()
    };
    let registry = Registry::start(&docker::oci_image("by its digest"), behaviour).await;
    let mut network = network(&registry).await;
    let cli = network.cli().expect("a user");
    what_cannot_run_is_refused(&network, &cli);
    archives_are_called_and_logged(&network, &cli).await;
    an_image_in_a_registry_is_called(&network, &cli, &registry).await;
    what_exits_is_told_with_its_last_words(&network, &cli).await;
    network.stop().expect("it stops");
}

/// Archives that are none, or of no use here: each is refused with its reason, and nothing is deployed.
fn what_cannot_run_is_refused(network: &Network, cli: &Cli) {
    let manifest = file(network, "fdn.toml", "runtime = \"docker\"\n");
    let mut archive = tar_of("etc/passwd");
    // Of a processor that no node has; the unit tests of archives have what one node alone refuses.
    let foreign = docker::saved_image_for("foreign", "s390x");
    let mut damaged = std::fs::read(&foreign).expect("an archive");
    let foreign = damaged.clone();
    // Within the layer, which is nearly all of it.
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    for (name, bytes, code, words) in [
        ("foreign", foreign, "FDN-1020", "it is for linux/s390x"),
        ("damaged", damaged, "FDN-1020", "the image is damaged"),
        ("text", b"no image".repeat(1000), "FDN-1020", "docker save"),
        ("other", archive.clone(), "FDN-1020", "manifest.json"),
        (
            "large",
            {
                archive.resize(5 << 20, 0);
                archive
            },
            "FDN-1007",
            "limit of 4MiB",
        ),
    ] {
        let upload = file(network, name, bytes);
        let typed = cli.run(["deploy", "bad", &upload, "--manifest", &manifest]);
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
}

/// An image whose container ends at once: the app's description and its log say what it said last.
async fn what_exits_is_told_with_its_last_words(network: &Network, cli: &Cli) {
    let exits = "runtime = \"docker\"\n[env]\nPROBE = \"exit\"\n";
    let exits = file(network, "exits.toml", exits);
    let archive = docker::saved_image("exits").display().to_string();
    cli.ok([
        "deploy",
        "exits",
        &archive,
        "--manifest",
        &exits,
        "--wait",
        "--timeout",
        "120s",
    ]);
    let words = ["degraded", "status 3", "fatal: told to fail"];
    tokio::select! {
        // It is held while instances are tried.
        answer = ask(network, "exits", "/") => panic!("{answer:?}"),
        () = describes(cli, "exits", &words) => {}
    }
    let logs = cli.ok(["logs", "exits", "--tail", "100"]);
    assert!(logs.contains("fatal: told to fail"), "{logs}");
}

/// A tar file that holds one empty file of this name.
fn tar_of(name: &str) -> Vec<u8> {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(100, b"0000644\0");
    put(124, b"00000000000\0");
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut bytes = header.to_vec();
    bytes.resize(512 * 3, 0);
    bytes
}

/// Archives in both forms: called through the gateway, and their output read.
async fn archives_are_called_and_logged(network: &Network, cli: &Cli) {
    let manifest = file(
        network,
        "fdn.toml",
        "runtime = \"docker\"\nmemory = \"32MiB\"\n",
    );
    for (app, archive) in [
        ("saved", docker::saved_image("end to end")),
        ("layout", docker::oci_image("end to end")),
    ] {
        let archive = archive.display().to_string();
        let deploy = ["deploy", app, &archive, "--manifest", &manifest];
        let printed = cli.ok(deploy.iter().chain(&["--wait", "--timeout", "120s"]));
        assert!(printed.contains("ready on 1 node"), "{printed}");
        let answer = ask(network, app, "/").await.expect("an answer");
        assert_eq!(answer, (200, "hello".to_owned()), "{app}");
    }
    let printed = ask(network, "saved", "/print/3").await;
    assert_eq!(printed.expect("an answer").1, "printed");
    wait::until("the container's lines", async || {
        let logs = cli.ok(["logs", "saved", "--tail", "100"]);
        ensure!(
            logs.contains("probe starts") && logs.contains("line 2 xxx"),
            "{logs}"
        );
        Ok(())
    })
    .await;
}

/// An image that is named by its digest, pulled with a password.
async fn an_image_in_a_registry_is_called(network: &Network, cli: &Cli, registry: &Registry) {
    let image = format!("{}@{}", registry.repository(), registry.digest());
    let printed = cli.ok(["deploy", "pulled", &image, "--wait", "--timeout", "120s"]);
    assert!(
        printed.contains("ready on 1 node")
            && printed.contains(&format!("from {}", host(registry))),
        "{printed}"
    );
    let answer = ask(network, "pulled", "/").await.expect("an answer");
    assert_eq!(answer, (200, "hello".to_owned()));
}
