//! A function in two forms over separate processes: each cluster serves the one that suits it, by what its nodes hold and by what calls take there.

use std::net::IpAddr;

use anyhow::{Result, ensure};
use fdn_e2e::network::REGIONS;
use fdn_e2e::{Cli, Deadlines, Network};
use fdn_testkit::{components, wait};
use serde_json::Value;
use tokio::task::JoinSet;

/// The second form promises more and needs more.
const MANIFEST: &str = r#"
expected = "40ms"
memory = "64MiB"

[[forms]]
name = "roomy"
runtime = "wasm"
expected = "4ms"
memory = "512MiB"
"#;

/// Calls made at the same time.
const BURST: usize = 10;

struct Files {
    manifest: String,
    slim: String,
    roomy: String,
    slow: String,
}

impl Files {
    fn new(network: &Network) -> Self {
        let file = |name: &str, bytes: &[u8]| {
            let path = network.folder().join(name);
            std::fs::write(&path, bytes).expect("the folder takes a file");
            path.display().to_string()
        };
        Self {
            manifest: file("forms.toml", MANIFEST.as_bytes()),
            slim: file("slim.wasm", &components::hello("slim")),
            roomy: file("roomy.wasm", &components::hello("roomy")),
            slow: file("slow.wasm", &components::sleeping(400)),
        }
    }

    fn deploy(&self, cli: &Cli, roomy: &str) -> Value {
        let form = format!("roomy={roomy}");
        let args = ["deploy", "shape", &self.slim, "--manifest", &self.manifest];
        let rest = ["--form", &form, "--wait", "--timeout", "120s"];
        cli.json(args.into_iter().chain(rest))
    }
}

async fn body(url: String) -> Result<String> {
    let client = fdn_service::http_client::build(wait::PATIENCE)?;
    let answer = client.get(url).header("host", "shape.fn.test").send();
    let answer = answer.await?;
    ensure!(answer.status() == 200, "{}", answer.status());
    Ok(answer.text().await?)
}

/// Calls a node until all answers are `text`; what came before is one of `others`.
async fn until_text(network: &Network, node: IpAddr, text: &str, others: &[&str]) {
    let url = format!("http://{node}:{}/", network.gateway_port);
    wait::until(&format!("the answer {text}"), async || {
        let calls: JoinSet<_> = (0..BURST).map(|_| body(url.clone())).collect();
        for got in calls.join_all().await {
            let got = got?;
            assert!(got == text || others.contains(&got.as_str()), "{got}");
            ensure!(got == text, "{got}");
        }
        Ok::<_, anyhow::Error>(())
    })
    .await;
}

/// What `fdn explain` says of a form in a cluster.
fn row(cli: &Cli, cluster: &str, form: &str) -> Value {
    let explained = cli.json(["explain", "shape", "--client", "192.0.2.1"]);
    let rows = explained["forms"].as_array().expect("forms").iter();
    let mut found = rows.filter(|row| row["cluster"] == cluster && row["form"] == form);
    found.next().expect("a row").clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cluster_serves_the_form_that_it_holds_until_calls_say_otherwise() {
    let mut network = Network::without_nodes(Deadlines::Long)
        .await
        .expect("controller and DNS start");
    for (region, memory) in [(0, "256MiB"), (1, "2GiB")] {
        let settings = format!("[capacity]\nmemory = \"{memory}\"\n");
        let node = network.start_node((region, 0), &settings).await;
        node.expect("it joins and starts");
    }
    let (small, large) = (network.node(0, 0), network.node(1, 0));
    let [small_cluster, large_cluster] = [REGIONS[0].name, REGIONS[1].name];
    let (cli, files) = (network.cli().expect("logged in"), Files::new(&network));

    let deployed = files.deploy(&cli, &files.roomy);
    assert_eq!(deployed["version"].as_u64(), Some(1));
    until_text(&network, small, "slim", &[]).await;
    until_text(&network, large, "roomy", &["slim"]).await;
    let lost = row(&cli, small_cluster, "roomy");
    assert_eq!(
        (&lost["chosen"], &lost["verdict"]),
        (&false.into(), &"no node there runs and holds it".into())
    );
    assert_eq!(row(&cli, small_cluster, "main")["chosen"], true);
    let won = row(&cli, large_cluster, "roomy");
    assert_eq!(won["chosen"], true, "{won}");
    let shown = cli.ok(["explain", "shape", "--client", "192.0.2.1"]);
    assert!(shown.contains("roomy *"), "{shown}");
    let shown = cli.ok(["describe", "shape"]);
    assert!(shown.contains("roomy") && shown.contains("512"), "{shown}");
    let calls = cli.ok(["calls", "shape"]);
    assert!(calls.contains("v1 roomy"), "{calls}");

    // What it promises is not what it takes: the component of 40 ms is better than that.
    files.deploy(&cli, &files.slow);
    until_text(&network, large, "awake", &["slim", "roomy"]).await;
    until_text(&network, large, "slim", &["awake"]).await;
    let left = row(&cli, large_cluster, "roomy");
    assert_eq!(
        (&left["chosen"], &left["measured"]),
        (&false.into(), &true.into()),
        "{left}"
    );
    until_text(&network, small, "slim", &[]).await;
}
