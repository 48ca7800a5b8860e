//! Containers through the Docker runtime: from the order to the first answer, and from paused to an answer.
//!
//! The image is the testkit's probe from scratch, so that what is measured is the engine and we, not a program's own start. Network
//! modes alternate start by start; an engine of its own is used unless `FDN_TEST_DOCKER` names one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fdn_core::{Digest, InstanceId, MebiBytes, MilliCpu, Resources};
use fdn_instances::docker::{DockerOptions, DockerRuntime, Network};
use fdn_instances::{Image, ImageSource, Instance, Owner, Runtime, StartSpec, empty_body};
use uuid::Uuid;

use crate::median;

const STARTS: usize = 30;
const MODES: [(&str, Network); 3] = [
    ("isolated", Network::Isolated),
    ("bridge", Network::Bridge),
    ("host", Network::Host),
];

pub(crate) fn run() -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(measure())
}

async fn measure() -> Result<()> {
    let socket = fdn_testkit::docker::socket().await;
    let archive = fdn_testkit::docker::saved_image("bench");
    let image = Image {
        digest: Digest::of(&std::fs::read(&archive)?),
        source: ImageSource::Archive { path: archive },
    };
    println!(
        "containers: create, start and first 200 through fdn-instances, {STARTS} starts each, modes alternating; ms"
    );
    println!(
        "{:<10} {:>10} {:>10} {:>10} {:>14} {:>14} {:>12}",
        "network", "start p50", "p90", "longest", "unpause+call", "stop p50", "warm call"
    );
    let mut rows = Vec::new();
    for (name, network) in MODES {
        let runtime = connect(name, network, socket.clone()).await?;
        runtime.prepare(&image).await?;
        rows.push((name, runtime, Samples::default()));
    }
    for _ in 0..STARTS {
        for (_, runtime, samples) in &mut rows {
            one(runtime.as_ref(), &image, samples).await?;
        }
    }
    for (name, _, mut samples) in rows {
        samples.starts.sort_by(f64::total_cmp);
        let at = |share: usize| samples.starts[(samples.starts.len() - 1) * share / 100];
        println!(
            "{name:<10} {:>10.1} {:>10.1} {:>10.1} {:>14.1} {:>14.1} {:>12.3}",
            at(50),
            at(90),
            at(100),
            median(samples.resumes),
            median(samples.stops),
            median(samples.calls)
        );
    }
    Ok(())
}

#[derive(Default)]
struct Samples {
    starts: Vec<f64>,
    resumes: Vec<f64>,
    stops: Vec<f64>,
    calls: Vec<f64>,
}

async fn connect(name: &str, network: Network, socket: PathBuf) -> Result<Arc<DockerRuntime>> {
    let owner = Owner {
        cluster: "bench".parse()?,
        node: format!("{name}-{}", std::process::id()).parse()?,
    };
    let options = DockerOptions {
        socket,
        network,
        trusted: network != Network::Isolated,
        folder: Some(std::env::temp_dir().join(format!("fdn-bench-{}", std::process::id()))),
        ..DockerOptions::default()
    };
    Ok(Arc::new(DockerRuntime::connect(owner, options).await?))
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// One container from its order to its end.
async fn one(runtime: &DockerRuntime, image: &Image, samples: &mut Samples) -> Result<()> {
    let id = InstanceId::from_uuid(Uuid::new_v4());
    let resources = Resources::new(MilliCpu(1000), MebiBytes(64));
    let spec = StartSpec::new(
        id,
        "probe".parse()?,
        "probe".parse()?,
        image.clone(),
        resources,
    );
    let began = Instant::now();
    let instance = runtime.start(spec).await?;
    call(instance.as_ref()).await?;
    samples.starts.push(ms(began));
    let began = Instant::now();
    call(instance.as_ref()).await?;
    samples.calls.push(ms(began));
    instance.pause().await?;
    let began = Instant::now();
    instance.resume().await?;
    call(instance.as_ref()).await?;
    samples.resumes.push(ms(began));
    let began = Instant::now();
    instance.stop(Duration::from_secs(5)).await?;
    samples.stops.push(ms(began));
    Ok(())
}

async fn call(instance: &dyn Instance) -> Result<()> {
    let request = http::Request::get("/hello").body(empty_body())?;
    let response = instance
        .call(request)
        .await
        .map_err(|failure| anyhow::anyhow!("{failure}"))?;
    anyhow::ensure!(
        response.status() == 200,
        "it answered {}",
        response.status()
    );
    http_body_util::BodyExt::collect(response.into_body())
        .await
        .map_err(|error| anyhow::anyhow!(error))
        .context("reading the answer")?;
    Ok(())
}
