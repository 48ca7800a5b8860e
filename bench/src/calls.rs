//! What gateway and scheduler add to a call of an instance that is warm, and a burst from zero, on instances that cost nothing.
//!
//! The instances are the scripted runtime of the tests, in this process: what is measured is the way through the gateway, the pool's
//! decision and back, from a client over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fdn_bus::{Limits, MemoryBroker, SharedBroker};
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppDesired, AppSpec, Envelope, FunctionSpec, Message};
use fdn_core::workflow::Workflow;
use fdn_core::{
    Digest, DurationMs, MebiBytes, MessageId, MilliCpu, Resources, Revision, VersionNumber,
};
use fdn_edge_agent::artifacts::Machine;
use fdn_edge_agent::invocations::Ledger;
use fdn_edge_agent::{Agent, Settings};
use fdn_instances::fake::{FakeEngine, FakeProgram};
use fdn_service::secret;

use crate::Options;

/// Calls of one measurement.
const CALLS: usize = 4000;
const BURST: usize = 50;
/// What a start of a container takes here, create, start and first answer together.
const START: Duration = Duration::from_millis(90);

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "calls: through gateway and scheduler to instances that cost nothing; {CALLS} calls one after another over one connection, {} rounds",
        options.rounds
    );
    ledger();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(measure(options))
}

/// The decision on a call of a component while there is room.
fn ledger() {
    let ledger = Ledger::new(Resources::new(MilliCpu(1000), MebiBytes(1 << 20)), 1000);
    let rounds = 1_000_000u32;
    let begin = Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(ledger.enter(MebiBytes(64)));
    }
    let each = begin.elapsed() / rounds;
    println!("  letting a component's call in and out again: {each:?}");
}

struct Rig {
    agent: Agent,
    broker: SharedBroker,
    engine: Arc<FakeEngine>,
    client: reqwest::Client,
    _folder: tempfile::TempDir,
}

async fn rig() -> Result<Rig> {
    let folder = tempfile::tempdir()?;
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut settings = Settings {
        data: folder.path().join("agent"),
        ..Settings::default()
    };
    settings.gateway.listen = any;
    settings.gateway.workers = 1;
    settings.admin.listen = any;
    settings.controller.url = "http://127.0.0.1:9".to_owned();
    settings.network.token_file = folder.path().join("token");
    settings.network.key_file = folder.path().join("key");
    settings.capacity.cpu_milli = MilliCpu(100_000);
    settings.stop.drain = DurationMs::from_millis(0);
    secret::read_or_create(&settings.network.token_file)?;
    secret::read_or_create(&settings.network.key_file)?;
    // The image is here already: nobody fetches it.
    let image = b"image";
    let components = settings.data.join("cache/components");
    std::fs::create_dir_all(&components)?;
    let name = format!("{}.wasm", Digest::of(image).hex());
    std::fs::write(components.join(name), image)?;
    let engine = FakeEngine::new();
    engine.add_image("image", FakeProgram::text("hello"));
    engine.delay_starts(START);
    let runtime = engine.runtime(settings.cluster.clone(), settings.node.clone());
    let broker: SharedBroker = Arc::new(MemoryBroker::new(Limits::default()));
    let machine = Machine::new(&settings.runtime)?;
    let agent = Agent::start_with(settings, Arc::clone(&broker), machine, Some(runtime)).await?;
    Ok(Rig {
        agent,
        broker,
        engine,
        client: fdn_service::http_client::build(Duration::from_secs(60))?,
        _folder: folder,
    })
}

impl Rig {
    async fn deploy(&self) -> Result<()> {
        let manifest = Manifest {
            runtime: RuntimeKind::Docker,
            timeout: DurationMs::from_secs(60),
            ..Manifest::default()
        };
        let function: fdn_core::FunctionName = "bench".parse()?;
        let spec = AppSpec {
            host: "bench.fn.test".parse()?,
            workflow: Workflow::single(function.clone(), VersionNumber::FIRST),
            functions: vec![FunctionSpec {
                function,
                version: VersionNumber::FIRST,
                digest: Digest::of(b"image"),
                size: 5,
                manifest,
                secrets: std::collections::BTreeMap::new(),
            }],
            primary: std::collections::BTreeSet::new(),
        };
        let desired = AppDesired {
            app: "bench".parse()?,
            revision: Revision(1),
            spec: Some(spec),
        };
        let id = MessageId::from_uuid(uuid::Uuid::now_v7());
        let message = Message::AppDesired(desired);
        let envelope = Envelope::new(id, fdn_service::now(), message);
        self.broker.publish(&envelope).await?;
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.status().await? == 404 {
            ensure!(Instant::now() < deadline, "the app is not taken");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    async fn status(&self) -> Result<u16> {
        let url = format!("http://{}/", self.agent.gateway_address());
        let answer = self
            .client
            .get(url)
            .header("host", "bench.fn.test")
            .send()
            .await?;
        let status = answer.status().as_u16();
        answer.bytes().await?;
        Ok(status)
    }
}

async fn measure(options: &Options) -> Result<()> {
    let rig = rig().await?;
    rig.deploy().await.context("deploying")?;
    for _ in 0..options.rounds {
        let mut took = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let begin = Instant::now();
            ensure!(rig.status().await? == 200, "a warm call failed");
            took.push(begin.elapsed());
        }
        print("warm, client to instance and back", took);
        rig.engine.crash_all();
        let begin = Instant::now();
        let calls = (0..BURST).map(|_| async {
            let status = rig.status().await?;
            ensure!(status == 200, "a call of the burst ended {status}");
            Ok(begin.elapsed())
        });
        let took = futures::future::try_join_all(calls).await?;
        print("50 at once after a kill of all, 90 ms a start", took);
    }
    rig.agent.stop().await;
    Ok(())
}

fn print(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    println!(
        "  {what:<46} p50 {:?}  p99 {:?}  worst {:?}",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
