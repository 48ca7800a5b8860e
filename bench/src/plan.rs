//! One pass of the planner over a whole network, all that it computes: from the nodes' statuses and the rows that it reads to the rows that it would
//! write. Reading and writing the database is not in it.
//!
//! 1,000 apps with 50 client groups each on 50 clusters of four nodes, at 70 % of what their slots can do; every other app runs in instances that hold memory.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result};
use fdn_controller::Settings;
use fdn_controller::geo::Geo;
use fdn_controller::reconcile::actual::Learner;
use fdn_controller::reconcile::difference::binding_rows;
use fdn_controller::reconcile::dwell::Dwell;
use fdn_controller::reconcile::node_registry::NodeRegistry;
use fdn_controller::reconcile::pass::{PassSettings, PassState, Rows, pass};
use fdn_controller::reconcile::reason::Failovers;
use fdn_controller::reconcile::world::{MeasuredRtts, World};
use fdn_controller::reconcile::write::plan_rows;
use fdn_controller::settings::{ClientLocation, GeoSettings};
use fdn_controller::store::DEFAULT_TENANT;
use fdn_controller::store::app::AppRow;
use fdn_controller::store::binding::BindingRow;
use fdn_controller::store::demand::DemandRow;
use fdn_controller::store::plan::PlanRow;
use fdn_controller::store::version::VersionRow;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::message::{AppObserved, AppPhase, NodeStatus};
use fdn_core::phases::PhaseTimes;
use fdn_core::serving::NodeRuntime;
use fdn_core::workflow::Workflow;
use fdn_core::{
    AppName, ByteSize, ClientPrefix, Digest, DurationMs, GeoPoint, MebiBytes, MessageId, MilliCpu,
    Millis, Resources, Revision, Timestamp, VersionNumber,
};
use fdn_scheduling::compete::Moves;

use crate::{Options, median};

const APPS: usize = 1_000;
const GROUPS: usize = 50;
const CLUSTERS: usize = 50;
const NODES: usize = 4;
/// Memory of a node.
const MEMORY: MebiBytes = MebiBytes(64 * 1024);
/// The share of all slots that calls keep busy.
const LOAD: f64 = 0.7;

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "plan: a pass over {APPS} apps x {GROUPS} client groups x {CLUSTERS} clusters of {NODES} nodes, {:.0} % of their slots asked for; \
         median of {} rounds",
        LOAD * 100.0,
        options.rounds
    );
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>12} {:>10}",
        "", "seconds", "moved", "unplaced", "memory", "of it GiB"
    );
    let mut network = Network::new()?;
    for name in ["from nothing", "planned again", "and again"] {
        network.measure(name, options.rounds)?;
    }
    for (share, name) in [
        (0.01, "1 % of the apps called twice"),
        (0.1, "10 % of the apps"),
        (1.0, "all apps"),
    ] {
        let kept = network.double(share);
        network.measure(name, options.rounds)?;
        network.rates = kept;
        network.settle()?;
    }
    network.kill_largest();
    network.measure("the largest cluster has died", options.rounds)?;
    network.measure("planned again", options.rounds)
}

/// Numbers that look drawn and are always the same (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, from: f64, to: f64) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        from + (to - from) * unit
    }
}

/// Everything that a pass reads.
struct Network {
    statuses: Vec<NodeStatus>,
    geo: Arc<Geo>,
    apps: Vec<AppRow>,
    versions: Vec<VersionRow>,
    demand: Vec<DemandRow>,
    plans: Vec<PlanRow>,
    bindings: Vec<BindingRow>,
    /// Calls per second, by app.
    rates: Vec<f64>,
    /// What calls took, from pass to pass.
    learner: Mutex<Learner>,
    now: Timestamp,
}

impl Network {
    fn new() -> Result<Self> {
        let mut numbers = Numbers(1);
        let now = Timestamp(1_000_000);
        let locations = (0..GROUPS)
            .map(|n| {
                Ok(ClientLocation {
                    prefix: format!("10.{n}.0.0/16").parse()?,
                    lat: numbers.next(-60.0, 70.0),
                    lon: numbers.next(-180.0, 180.0),
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let works: Vec<f64> = (0..APPS).map(|_| numbers.next(1.0, 100.0)).collect();
        let apps = (0..APPS).map(app).collect::<Result<Vec<_>>>()?;
        let observed: Vec<AppObserved> = apps
            .iter()
            .zip(&works)
            .map(|(row, work)| observed(&row.name, *work))
            .collect();
        let statuses = statuses(&mut numbers, &observed)?;
        let capacity: f64 = statuses
            .iter()
            .map(|node| node.speed * f64::from(node.slots))
            .sum();
        let rates = works
            .iter()
            .map(|work| numbers.next(0.0, 2.0) * LOAD * capacity / APPS as f64 * 1000.0 / work);
        let rates = rates.collect();
        let prefixes: Vec<ClientPrefix> = locations.iter().map(|at| at.prefix).collect();
        let mut demand = Vec::with_capacity(APPS * GROUPS);
        for row in &apps {
            for prefix in &prefixes {
                demand.push(DemandRow {
                    app: row.name.clone(),
                    prefix: *prefix,
                    queries: 100,
                    recent: numbers.next(0.0, 100.0),
                    last_seen: now,
                });
            }
        }
        let settings = GeoSettings {
            locations,
            ..GeoSettings::default()
        };
        Ok(Self {
            versions: (0..APPS).map(version).collect::<Result<_>>()?,
            geo: Arc::new(Geo::open(&settings)?),
            statuses,
            apps,
            demand,
            plans: Vec::new(),
            bindings: Vec::new(),
            rates,
            learner: Mutex::new(Learner::new(Settings::default().planner.learnt)),
            now,
        })
    }

    fn live(&self) -> NodeRegistry {
        let mut live = NodeRegistry::new(Vec::new(), self.statuses.len(), self.now);
        for status in &self.statuses {
            live.observe(status.clone(), self.now);
        }
        live
    }

    /// Has a share of the apps called twice as often, or half as often if it is every other one; returns how often they were called.
    fn double(&mut self, share: f64) -> Vec<f64> {
        let kept = self.rates.clone();
        let step = (1.0 / share).round().max(1.0) as usize;
        for (number, rate) in self.rates.iter_mut().step_by(step).enumerate() {
            *rate *= if number % 2 == 0 { 2.0 } else { 0.5 };
        }
        kept
    }

    /// Plans until nothing moves any more, at most twenty times.
    fn settle(&mut self) -> Result<()> {
        let live = self.live();
        for _ in 0..20 {
            let done = self.pass(&live)?;
            (self.plans, self.bindings) = (done.plans, done.bindings);
            if done.moved == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Has the cluster with most slots drained.
    fn kill_largest(&mut self) {
        let slots = |at: usize| -> u32 {
            let nodes = &self.statuses[at * NODES..(at + 1) * NODES];
            nodes.iter().map(|node| node.slots).sum()
        };
        let largest = (0..CLUSTERS).max_by_key(|at| slots(*at)).unwrap_or(0);
        for node in &mut self.statuses[largest * NODES..(largest + 1) * NODES] {
            node.draining = true;
        }
    }

    /// Passes some times from the same state, prints what they took, and leaves the state as one pass does.
    fn measure(&mut self, name: &str, rounds: u32) -> Result<()> {
        let mut times = Vec::new();
        let mut last = None;
        for _ in 0..rounds.max(1) {
            // Each pass hears of more calls.
            for app in self.statuses.iter_mut().flat_map(|node| &mut node.apps) {
                app.invocations += 10;
            }
            let live = self.live();
            let begun = Instant::now();
            let done = self.pass(&live)?;
            times.push(begun.elapsed().as_secs_f64());
            last = Some(done);
        }
        let done = last.context("at least one round")?;
        println!(
            "{name:<34} {:>9.3} {:>9} {:>9} {:>10.1} % {:>10.0}",
            median(times),
            done.moved,
            done.unplaced,
            100.0 * done.needed / done.there,
            done.there / 1024.0
        );
        (self.plans, self.bindings) = (done.plans, done.bindings);
        Ok(())
    }

    fn pass(&self, live: &NodeRegistry) -> Result<Done> {
        let planner = &Settings::default().planner;
        let terms = planner.terms()?;
        let world = World::new(
            live,
            Arc::clone(&self.geo),
            MeasuredRtts::default(),
            terms,
            self.now,
        );
        let rows = Rows {
            apps: &self.apps,
            versions: &self.versions,
            plans: &self.plans,
            bindings: &self.bindings,
            demand: &self.demand,
        };
        let pass_settings = PassSettings {
            limit: planner.bindings_per_app as usize,
            memory: planner.demand_memory,
            settled: true,
            now: self.now,
        };
        let rate = |name: &AppName| {
            let at = self.apps.binary_search_by(|row| row.name.cmp(name));
            at.map_or(0.0, |at| self.rates[at])
        };
        let interval = Millis::from(planner.move_interval.as_duration());
        let mut moves = Moves::new(planner.move_share, interval).unwrap_or_else(Moves::unlimited);
        let passed = pass(
            &world,
            rows,
            rate,
            &pass_settings,
            PassState {
                moves: &mut moves,
                dwell: &mut Dwell::default(),
                failovers: &Failovers::default(),
                learner: &self.learner,
                record: None,
            },
        )?;
        let (needed, there) = world.memory(&passed.loads);
        let mut done = Done {
            moved: 0,
            unplaced: passed.unplaced,
            needed,
            there,
            plans: Vec::new(),
            bindings: Vec::new(),
        };
        let revision = Revision(1);
        for decided in &passed.apps {
            let (app, placed) = (&decided.app.name, &decided.placed);
            done.moved += decided.difference.bindings;
            done.bindings
                .extend(binding_rows(app, &decided.before, placed, revision));
            done.plans
                .extend(plan_rows(app, placed, revision, self.now)?);
        }
        Ok(done)
    }
}

/// What a pass came to.
struct Done {
    moved: usize,
    unplaced: usize,
    needed: f64,
    there: f64,
    plans: Vec<PlanRow>,
    bindings: Vec<BindingRow>,
}

fn name_of(number: usize) -> String {
    format!("app-{number:04}")
}

fn app(number: usize) -> Result<AppRow> {
    let name: AppName = name_of(number).parse()?;
    Ok(AppRow {
        tenant: DEFAULT_TENANT,
        host: format!("{name}.fn.test").parse()?,
        workflow: Workflow::single(name_of(number).parse()?, VersionNumber::FIRST),
        definition: None,
        version: VersionNumber::FIRST,
        previous: None,
        primaries: [].into(),
        revision: Revision(1),
        bindings_revision: Revision(1),
        deployed_at: Timestamp(0),
        ttl: None,
        holders: fdn_core::message::Holders::EVERYWHERE,
        answering: fdn_core::message::Holders::EVERYWHERE,
        name,
        forms: Default::default(),
    })
}

fn version(number: usize) -> Result<VersionRow> {
    let in_instances = number.is_multiple_of(2);
    Ok(VersionRow {
        tenant: DEFAULT_TENANT,
        function: name_of(number).parse()?,
        number: VersionNumber::FIRST,
        digest: Digest::of(name_of(number).as_bytes()),
        size: 1,
        manifest: Manifest {
            runtime: if in_instances {
                RuntimeKind::Docker
            } else {
                RuntimeKind::Wasm
            },
            concurrency: if in_instances { 4 } else { 1 },
            memory: ByteSize::from_mib(256),
            expected: DurationMs::from_millis(50),
            ..Manifest::default()
        },
        secrets: [].into(),
        created_at: Timestamp(0),
        created_by: "bench".to_owned(),
        validation: Vec::new(),
        forms: Vec::new(),
    })
}

fn observed(app: &AppName, work: f64) -> AppObserved {
    AppObserved {
        app: app.clone(),
        revision: Revision(1),
        phase: AppPhase::Ready,
        invocations: 1_000,
        errors: 0,
        execution_mean: Millis::new(work),
        instances: 0,
        degraded: None,
        versions: Vec::new(),
        stages: Vec::new(),
        figures: None,
        serves: Some(true),
        phases: Some(PhaseTimes {
            execution: Millis::new(work),
            ..PhaseTimes::default()
        }),
        form: None,
    }
}

fn statuses(numbers: &mut Numbers, apps: &[AppObserved]) -> Result<Vec<NodeStatus>> {
    let mut statuses = Vec::with_capacity(CLUSTERS * NODES);
    for cluster in 0..CLUSTERS {
        let (lat, lon) = (numbers.next(-60.0, 70.0), numbers.next(-180.0, 180.0));
        let (speed, slots) = (numbers.next(0.5, 2.0), numbers.next(4.0, 128.0) as u32);
        for node in 0..NODES {
            let room = Resources::new(MilliCpu(u64::from(slots) * 1000), MEMORY);
            let mut apps = apps.to_vec();
            for app in &mut apps {
                app.execution_mean = Millis::new(app.execution_mean.get() / speed);
                // Of each function something else in each cluster.
                let off = numbers.next(0.8, 1.25);
                if let Some(times) = &mut app.phases {
                    times.execution = Millis::new(times.execution.get() / speed * off);
                }
            }
            statuses.push(NodeStatus {
                node: format!("node-{cluster:02}-{node}").parse()?,
                cluster: format!("cluster-{cluster:02}").parse()?,
                region: format!("region-{cluster:02}").parse()?,
                location: GeoPoint::new(lat, lon)?,
                gateway: "127.0.0.1:1".parse()?,
                weight: fdn_core::GatewayWeight::default(),
                admin: "127.0.0.1:2".parse()?,
                boot: MessageId::from_uuid(uuid::Uuid::from_u128(1)),
                sequence: 1,
                version: String::new(),
                speed,
                capacity: room,
                free: room,
                slots,
                busy: 0,
                waiting: 0,
                queued_work: Millis::ZERO,
                draining: false,
                stages: None,
                apps,
                devices: Vec::new(),
                stage_calls: None,
                controller_port: None,
                runtimes: Some([NodeRuntime::Wasm, NodeRuntime::Docker].into()),
            });
        }
    }
    Ok(statuses)
}
