//! Workflows over the clusters of three regions, as separate processes on PostgreSQL and RabbitMQ: the sample of deploy/workflows on pictures, with the
//! right answer, byte for byte, wherever its stages run. In soak also one whose stages take long enough to be killed in: one cluster dies in the
//! middle of a run, once of a call and once of a job.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use fdn_core::workflow::parts::{Multipart, Part};
use fdn_e2e::network::REGIONS;
use fdn_e2e::{Cli, Deadlines, Network, root};
use fdn_testkit::wait;

/// So many nodes in each region. eu-west has room for the light functions, whatever the number, and on no node for the heavy ones, so that
/// their stages run elsewhere for its clients.
async fn network(nodes: usize, deadlines: Deadlines) -> Network {
    let patience = match deadlines {
        Deadlines::Shipped => "",
        Deadlines::Long => "connect = \"10s\"\nkeep_alive = \"30s\"\n",
    };
    let mut network = Network::without_nodes(deadlines)
        .await
        .expect("the network starts");
    for region in 0..REGIONS.len() {
        for n in 0..nodes {
            let room = if region == 0 { 200 / nodes } else { 2048 };
            let listen = network.node(region, n);
            let settings = format!(
                "[workflows]\nenabled = true\nlisten = \"{listen}:0\"\n{patience}[capacity]\nmemory = \"{room}MiB\"\n"
            );
            network
                .start_node((region, n), &settings)
                .await
                .expect("a node starts");
        }
    }
    network
}

/// Deploys the ready-made functions of the sample, and the sample.
fn deploy_sample(network: &Network, cli: &Cli) {
    for (name, memory) in [("image", "32MiB"), ("sheet", "256MiB")] {
        let folder = root().join("functions").join(name);
        let component = folder.join(format!("{name}.wasm")).display().to_string();
        let manifest = std::fs::read_to_string(folder.join("fdn.toml")).expect("a manifest");
        let lines = manifest.lines().map(|line| {
            if line.starts_with("memory = ") {
                format!("memory = \"{memory}\"\n")
            } else {
                format!("{line}\n")
            }
        });
        let path = network.folder().join(format!("{name}.toml"));
        std::fs::write(&path, lines.collect::<String>()).expect("the folder takes a file");
        let manifest = path.display().to_string();
        cli.ok([
            "deploy",
            name,
            &component,
            "--manifest",
            &manifest,
            "--no-wait",
        ]);
    }
    let sample = root().join("deploy/workflows/photo.yaml");
    let sample = sample.display().to_string();
    cli.ok([
        "workflow",
        "deploy",
        "photo",
        &sample,
        "--wait",
        "--timeout",
        "240s",
    ]);
}

/// One function by itself, at a gateway that has room for it.
async fn function(
    network: &Network,
    host: &str,
    path: &str,
    content_type: &str,
    body: &[u8],
) -> Vec<u8> {
    let url = format!(
        "http://{}:{}{path}",
        network.node(1, 0),
        network.gateway_port
    );
    let client = fdn_service::http_client::build(2 * wait::PATIENCE).expect("a client");
    wait::until("a function to answer", async || {
        let request = client.post(&url).header("host", format!("{host}.fn.test"));
        let request = request
            .header("content-type", content_type)
            .body(body.to_vec());
        let answer = request.send().await?;
        ensure!(
            answer.status() == 200,
            "{}: {}",
            answer.status(),
            answer.text().await?
        );
        Ok::<_, anyhow::Error>(answer.bytes().await?.to_vec())
    })
    .await
}

/// What the sample must answer: its stages one by one, put together by hand.
async fn sheet_by_hand(network: &Network, picture: &[u8]) -> Vec<u8> {
    let image =
        async |path: &str, body: &[u8]| function(network, "image", path, "image/jpeg", body).await;
    let taken_in = image("/?w=640&format=png", picture).await;
    let branches = [
        ("resize", "image/png", image("/?w=160", &taken_in).await),
        (
            "sharpen",
            "image/png",
            image("/?sharpen=0.8", &taken_in).await,
        ),
        (
            "text",
            "text/plain; charset=utf-8",
            image("/?format=text", &taken_in).await,
        ),
    ];
    let stages = branches
        .each_ref()
        .map(|(name, ..)| name.parse().expect("stage"));
    let parts: Vec<Part<'_>> = branches
        .iter()
        .zip(&stages)
        .map(|((_, content_type, body), stage)| Part {
            stage,
            content_type,
            body,
        })
        .collect();
    let body = Multipart::new(&parts);
    function(network, "sheet", "/", &body.content_type, &body.body).await
}

/// The sample over two regions: its answer is what its functions make one by one.
async fn the_sample_is_right(network: &Network, cli: &Cli) {
    deploy_sample(network, cli);
    let picture = std::fs::read(root().join("functions/image/cases/ball.jpg")).expect("a picture");
    let expected = sheet_by_hand(network, &picture).await;
    let url = format!("http://{}:{}/", network.node(0, 0), network.gateway_port);
    wait::until("a sheet made in two regions", async || {
        let answer = call(url.clone(), "photo.fn.test", picture.clone()).await?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(answer.status == 200, "{}: {text}", answer.status);
        assert!(answer.body == expected, "byte for byte");
        let clusters: BTreeSet<&String> = answer.stages.values().collect();
        ensure!(
            answer.stages.len() == 5 && clusters.len() >= 2,
            "{:?}",
            answer.stages
        );
        Ok(())
    })
    .await;
    // Pictures fit into eu-west, where the call comes in; the sheet does not.
    wait::until("a plan that says so", async || {
        let map = stage_map(cli, "photo", "192.0.2.7");
        let split = map["in"] == "eu-west" && map["join"] != "eu-west";
        ensure!(split, "{map:?}");
        Ok(())
    })
    .await;
    let explained = cli.ok(["explain", "photo", "--client", "192.0.2.7"]);
    assert!(
        explained.contains("sharpen") && explained.contains("join"),
        "{explained}"
    );
}

/// Where the plan puts the stages of a client's calls.
fn stage_map(cli: &Cli, app: &str, client: &str) -> BTreeMap<String, String> {
    let explained = cli.json(["explain", app, "--client", client]);
    let stages = explained["stages"].as_array().expect("a stage map");
    let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
    stages
        .iter()
        .map(|place| (text(&place["stage"]), text(&place["cluster"])))
        .collect()
}

struct Answer {
    status: u16,
    stages: BTreeMap<String, String>,
    body: Vec<u8>,
}

async fn call(url: String, host: &str, image: Vec<u8>) -> Result<Answer> {
    let client = fdn_service::http_client::build(2 * wait::PATIENCE)?;
    let request = client.post(url).header("host", host).body(image);
    let response = request.send().await?;
    let status = response.status().as_u16();
    let told = response.headers().get("x-fdn-stages");
    let told = told
        .map(|told| told.to_str().map(str::to_owned))
        .transpose()?;
    let stages = told.unwrap_or_default();
    let stages = stages.split(", ").filter_map(|one| one.split_once('='));
    let stages = stages.map(|(stage, at)| (stage.to_owned(), at.to_owned()));
    Ok(Answer {
        status,
        stages: stages.collect(),
        body: response.bytes().await?.to_vec(),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sample_runs_over_regions_and_answers_byte_for_byte() {
    let mut network = network(1, Deadlines::Long).await;
    let cli = network.cli().expect("logged in");
    the_sample_is_right(&network, &cli).await;
    let shown = cli.ok(["workflow", "show", "photo"]);
    assert!(shown.contains("sharpen"), "{shown}");
    network.stop().expect("everything stops cleanly");
}

/// A cluster that dies in the middle of a run, with the deadlines of the product.
mod soak {
    use std::net::IpAddr;

    use fdn_core::workflow::parts::UNKNOWN;
    use fdn_e2e::network::NODES;
    use fdn_testkit::components;

    use super::*;

    const FLOW: &str = "
timeout: 120s
stages:
  - { name: in, function: light }
  - { name: resize, function: path, path: '/?w=160', needs: [{ stage: in, size: 200KiB }] }
  - { name: sharpen, function: heavy, needs: [{ stage: in, size: 200KiB }] }
  - { name: text, function: slow, needs: [in] }
  - { name: join, function: light, needs: [resize, sharpen, text] }
";

    /// Long enough to be killed in, however slow the machine is.
    const SLOW_MS: u32 = 4_000;

    fn deploy(network: &Network, cli: &Cli) {
        let heavy = "memory = \"256MiB\"\nidempotent = true\ntimeout = \"60s\"\n";
        let light = "memory = \"16MiB\"\nidempotent = true\n";
        let file = |name: &str, bytes: &[u8]| {
            let path = network.folder().join(name);
            std::fs::write(&path, bytes).expect("the folder takes a file");
            path.display().to_string()
        };
        for (name, component, manifest) in [
            ("light", components::echo(), light),
            ("heavy", components::echo(), heavy),
            ("path", components::path(), heavy),
            ("slow", components::sleeping(SLOW_MS), heavy),
        ] {
            let component = file(&format!("{name}.wasm"), &component);
            let manifest = file(&format!("{name}.toml"), manifest.as_bytes());
            cli.ok([
                "deploy",
                name,
                &component,
                "--manifest",
                &manifest,
                "--no-wait",
            ]);
        }
        let flow = file("flow.yaml", FLOW.as_bytes());
        cli.ok(["workflow", "validate", "flow", &flow]);
        cli.ok([
            "workflow",
            "deploy",
            "flow",
            &flow,
            "--wait",
            "--timeout",
            "240s",
        ]);
    }

    /// What the join is handed, and so answers.
    fn joined(image: &[u8], slept: &[u8]) -> Vec<u8> {
        let stage = |name: &str| name.parse().expect("stage");
        let (resize, sharpen, text) = (stage("resize"), stage("sharpen"), stage("text"));
        let part = |stage, body| Part {
            stage,
            content_type: UNKNOWN,
            body,
        };
        let parts = [
            part(&resize, &b"/?w=160"[..]),
            part(&sharpen, image),
            part(&text, slept),
        ];
        Multipart::new(&parts).body
    }

    /// Calls that run on a node now.
    async fn busy(address: IpAddr, port: u16) -> Result<bool> {
        let client = fdn_service::http_client::build(wait::PATIENCE)?;
        let url = format!("http://{address}:{port}/metrics");
        let text = client.get(url).send().await?.text().await?;
        let line = text
            .lines()
            .find(|line| line.starts_with("fdn_agent_calls_busy"));
        Ok(line.is_some_and(|line| !line.ends_with(" 0")))
    }

    /// The cluster that a job's attempt runs in, once a stage of it runs somewhere.
    async fn job_runs_in(network: &Network, cli: &Cli, job: &str) -> String {
        let addresses: Vec<IpAddr> = (0..REGIONS.len())
            .flat_map(|region| (0..NODES).map(move |n| (region, n)))
            .map(|(region, n)| network.node(region, n))
            .collect();
        wait::until("a stage of the job to run", async || {
            let status = cli.json(["job", "status", job]);
            let found = &status[0];
            ensure!(found["state"] == "running", "{found}");
            for address in &addresses {
                if busy(*address, network.admin_port).await? {
                    let cluster = found["cluster"].as_str().expect("a cluster");
                    return Ok(cluster.to_owned());
                }
            }
            Err(anyhow::anyhow!("all idle"))
        })
        .await
    }

    /// A job whose cluster dies under it is run again elsewhere, and ends once.
    async fn a_job_survives_the_death_of_its_cluster(
        network: &mut Network,
        cli: &Cli,
        image: &[u8],
        expected: &[u8],
    ) {
        let input = network.folder().join("image");
        std::fs::write(&input, image).expect("the folder takes a file");
        let data = format!("@{}", input.display());
        let job = cli.json(["job", "submit", "flow", "--data", &data]);
        let job = job[0]["id"].as_str().expect("an id").to_owned();
        let first = job_runs_in(network, cli, &job).await;
        for n in 1..=NODES {
            network.kill_agent(&format!("{first}-{n}"));
        }
        let ended = job_has_ended_once(network, cli, &job, expected);
        assert_ne!(ended["cluster"], first.as_str(), "{ended}");
        assert!(
            ended["attempts"].as_u64() >= Some(2),
            "the first attempt was cut short: {ended}"
        );
    }

    /// Starts the nodes of a cluster again, and waits until they have the workflow.
    async fn comes_back(network: &mut Network, cli: &Cli, cluster: &str) {
        for n in 1..=NODES {
            let name = format!("{cluster}-{n}");
            network.start_agent(&name).await.expect("it comes back");
        }
        wait::until("its nodes to have the workflow", async || {
            let described = cli.json(["describe", "flow"]);
            let nodes = described["nodes"].as_array().expect("nodes");
            let ready = nodes.iter().filter(|node| {
                node["cluster"] == cluster && node["observed"]["phase"]["phase"] == "ready"
            });
            ensure!(ready.count() == NODES, "{}", described["nodes"]);
            Ok(())
        })
        .await;
    }

    /// The job has ended with the same answer, and there is no other.
    fn job_has_ended_once(
        network: &Network,
        cli: &Cli,
        job: &str,
        expected: &[u8],
    ) -> serde_json::Value {
        let ended = cli.json(["job", "status", job, "--wait", "--timeout", "240s"]);
        assert_eq!(ended[0]["state"], "succeeded", "{ended}");
        let all = cli.json(["job", "list", "flow"]);
        assert_eq!(all.as_array().map(Vec::len), Some(1), "{all}");
        let file = network.folder().join("result");
        cli.ok([
            "job",
            "result",
            job,
            "--output",
            &file.display().to_string(),
        ]);
        let result = std::fs::read(&file).expect("a result");
        assert!(result == expected, "byte for byte");
        let ended_again = cli.json(["job", "status", job]);
        assert_eq!(
            ended_again[0]["attempts"], ended[0]["attempts"],
            "it ended for good"
        );
        ended[0].clone()
    }

    /// Waits until a call from eu-west has its long stages run in us-east, as the plan says.
    async fn runs_as_planned(url: &str, image: &[u8], expected: &[u8]) {
        wait::until("the stages to run where the plan says", async || {
            let answer = call(url.to_owned(), "flow.fn.test", image.to_owned()).await?;
            ensure!(
                answer.status == 200,
                "{}: {:?}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            );
            assert!(answer.body == expected, "byte for byte");
            ensure!(answer.stages["in"] == "eu-west", "{:?}", answer.stages);
            ensure!(answer.stages["text"] == "us-east", "{:?}", answer.stages);
            Ok(())
        })
        .await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn five_stages_over_regions_survive_the_death_of_one_in_the_middle() {
        let mut network = network(NODES, Deadlines::Shipped).await;
        let cli = network.cli().expect("logged in");
        deploy(&network, &cli);

        let client = "192.0.2.7";
        let mut map = BTreeMap::new();
        wait::until("a plan over two clusters", async || {
            map = stage_map(&cli, "flow", client);
            ensure!(
                map["in"] == "eu-west" && map["sharpen"] == "us-east",
                "{map:?}"
            );
            ensure!(
                map["text"] == "us-east" && map["resize"] == "us-east",
                "{map:?}"
            );
            Ok(())
        })
        .await;
        let shown = cli.ok(["workflow", "show", "flow"]);
        assert!(
            shown.contains("sharpen") && shown.contains("us-east"),
            "{shown}"
        );

        let image: Vec<u8> = (0..300_000_u32).map(|n| (n * 31 % 253) as u8).collect();
        let entry = network.node(0, 0);
        let url = format!("http://{entry}:{}/", network.gateway_port);
        let expected = joined(&image, b"awake");
        runs_as_planned(&url, &image, &expected).await;

        the_sample_is_right(&network, &cli).await;

        let running = tokio::spawn(call(url, "flow.fn.test", image.clone()));
        let port = network.admin_port;
        wait::until("a stage to run in us-east", async || {
            let (one, two) = (network.node(1, 0), network.node(1, 1));
            ensure!(busy(one, port).await? || busy(two, port).await?, "idle");
            Ok(())
        })
        .await;
        network.kill_agent("us-east-1");
        network.kill_agent("us-east-2");
        let answer = running.await.expect("a task").expect("an answer");
        assert_eq!(
            answer.status,
            200,
            "{}",
            String::from_utf8_lossy(&answer.body)
        );
        assert!(
            answer.body == expected,
            "byte for byte, in spite of the death"
        );
        assert_eq!(answer.stages["text"], "ap-south", "{:?}", answer.stages);
        comes_back(&mut network, &cli, "us-east").await;
        a_job_survives_the_death_of_its_cluster(&mut network, &cli, &image, &expected).await;
        network.stop().expect("everything stops cleanly");
    }
}
