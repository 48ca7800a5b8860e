use std::sync::Arc;

use fdn_core::device::{DeviceKind, DeviceState, DeviceStatus};
use fdn_core::manifest::ManifestBounds;
use fdn_core::message::{AppObserved, AppPhase, NodeStatus};
use fdn_core::phases::PhaseTimes;
use fdn_core::serving::NodeRuntime;
use fdn_core::{MebiBytes, Revision};
use fdn_scheduling::place::{Bandwidth, Exclusion};
use fdn_scheduling::steer::Margin;

use super::*;
use crate::fixture;
use crate::geo::Geo;
use crate::reconcile::actual::PredictionAccuracy;
use crate::reconcile::profile_of;
use crate::reconcile::world::{MeasuredRtts, Terms as WorldTerms};
use crate::settings::GeoSettings;

const NOW: Timestamp = Timestamp(1_000_000);

/// A component that takes 40 ms, and an image for GPUs that takes 10.
const TEXT: &str = r#"
    expected = "40ms"
    [[forms]]
    name = "gpu"
    runtime = "docker"
    expected = "10ms"
    cold_start = "2s"
    [forms.gpu]
    memory = "4GiB"
"#;

fn name() -> AppName {
    "hello".parse().expect("app")
}

fn form(name: &str) -> FormName {
    name.parse().expect("form")
}

fn workflow() -> Workflow {
    Workflow::single("hello".parse().expect("function"), VersionNumber::FIRST)
}

fn manifest() -> (Manifest, Vec<FormManifest>) {
    let manifest = Manifest::from_toml(TEXT, &ManifestBounds::default());
    manifest.expect("valid").split_forms()
}

fn two() -> Variants {
    let (manifest, forms) = manifest();
    [(workflow().entry().name.clone(), variants(&manifest, &forms))].into()
}

fn profiles() -> Profiles {
    let (manifest, forms) = manifest();
    let profile = profile_of(&manifest, &forms);
    [(workflow().entry().name.clone(), profile)].into()
}

/// A node that runs components, and containers and a GPU of 8 GiB if it is to.
fn node(cluster: &str, has_gpu: bool) -> NodeStatus {
    let mut status = fixture::status(cluster, cluster);
    status.runtimes = Some([NodeRuntime::Wasm].into());
    if has_gpu {
        status.runtimes = Some([NodeRuntime::Wasm, NodeRuntime::Docker].into());
        status.capacity.gpu_memory_mib = MebiBytes(8192);
        status.devices = vec![DeviceStatus {
            id: "GPU-1".parse().expect("id"),
            kind: DeviceKind::Gpu,
            model: "NVIDIA H200".to_owned(),
            parent: None,
            memory_mib: MebiBytes(8192),
            bound_mib: MebiBytes(0),
            state: DeviceState::InService,
            slices: Vec::new(),
        }];
    }
    status
}

/// The same after so many calls in a form, each of so many milliseconds.
fn measured(status: NodeStatus, of: &str, calls: u64, took: f64) -> NodeStatus {
    let observed = AppObserved {
        invocations: calls,
        execution_mean: Millis::new(took),
        serves: Some(true),
        phases: Some(PhaseTimes {
            execution: Millis::new(took),
            ..PhaseTimes::default()
        }),
        form: Some(form(of)),
        ..fixture::observed("hello")
    };
    NodeStatus {
        apps: vec![observed],
        ..status
    }
}

fn world(nodes: &[NodeStatus]) -> World {
    let places = nodes
        .iter()
        .map(|node| (node.cluster.clone(), (node.region.clone(), node.location)));
    let alive: Vec<&NodeStatus> = nodes.iter().collect();
    let terms = WorldTerms {
        margin: Margin::default(),
        bandwidth: Bandwidth::UNLIMITED,
        horizon: Millis::new(10_000.0),
    };
    let geo = Arc::new(Geo::open(&GeoSettings::default()).expect("no locations"));
    World::of(
        places.collect(),
        &alive,
        geo,
        MeasuredRtts::default(),
        terms,
    )
}

struct Rig {
    learner: Learner,
    current: FormChoices,
    revision: Revision,
    rate: f64,
    now: Timestamp,
}

impl Rig {
    fn new(rate: f64) -> Self {
        Self {
            learner: Learner::new(100),
            current: FormChoices::new(),
            revision: Revision(1),
            rate,
            now: NOW,
        }
    }

    fn decide(&self, world: &World) -> FormDecisions {
        let (app, workflow, variants) = (name(), workflow(), two());
        let input = FormInput {
            app: Some(&app),
            workflow: &workflow,
            variants: &variants,
            current: &self.current,
            revision: self.revision,
            rate: self.rate,
        };
        decide(world, &self.learner, &input, self.now)
    }

    /// A pass: learns, decides and keeps that.
    fn pass(&mut self, nodes: &[NodeStatus]) -> Vec<(String, String)> {
        let (world, workflow) = (world(nodes), workflow());
        let (profiles, variants) = (profiles(), two());
        let of = (&workflow, &profiles, &variants);
        let mut learnt = PredictionAccuracy::default();
        self.learner
            .learn(&world, &name(), of, self.now, &mut learnt);
        let decided = self.decide(&world);
        self.current = decided.choices(&world, &workflow, &self.current);
        self.served()
    }

    fn served(&self) -> Vec<(String, String)> {
        let all = self.current.iter().flat_map(|(cluster, stages)| {
            let forms = stages.values();
            forms.map(move |form| (cluster.to_string(), form.to_string()))
        });
        all.collect()
    }
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    let all = of.iter();
    all.map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

#[test]
fn a_cluster_serves_the_fastest_form_that_a_node_of_it_holds() {
    let mut rig = Rig::new(10.0);
    let nodes = [node("a", false), node("b", true)];
    assert_eq!(rig.pass(&nodes), pairs(&[("a", "main"), ("b", "gpu")]));
    // A device that is too small, out of service, or of a node that runs no containers is none.
    let mut small = node("b", true);
    small.devices[0].memory_mib = MebiBytes(2048);
    let mut out = node("b", true);
    out.devices[0].state = DeviceState::OutOfService {
        reason: "Xid 79".to_owned(),
        since: NOW,
    };
    let mut wasm = node("b", true);
    wasm.runtimes = Some([NodeRuntime::Wasm].into());
    for node in [small, out, wasm] {
        assert_eq!(Rig::new(10.0).pass(&[node]), pairs(&[("b", "main")]));
    }
}

#[test]
fn what_calls_take_counts_more_than_what_manifests_say() {
    let mut rig = Rig::new(10.0);
    assert_eq!(rig.pass(&[node("b", true)]), pairs(&[("b", "gpu")]));
    // The GPU form turns out slow: 90 ms where the component is expected to take 40.
    for calls in [1_000, 2_000, 3_000] {
        rig.pass(&[measured(node("b", true), "gpu", calls, 90.0)]);
    }
    assert_eq!(rig.served(), pairs(&[("b", "main")]));
    // As the component is as slow as that, or a little slower, nothing changes any more.
    for calls in [4_000, 5_000, 6_000, 7_000] {
        let served = rig.pass(&[measured(node("b", true), "main", calls, 95.0)]);
        assert_eq!(served, pairs(&[("b", "main")]));
    }
    // What is known of the other form fades only over days: it is not tried again hour by hour.
    rig.now = Timestamp(NOW.get() + 2 * 3_600_000);
    let served = rig.pass(&[measured(node("b", true), "main", 8_000, 60.0)]);
    assert_eq!(served, pairs(&[("b", "main")]));
}

#[test]
fn what_was_measured_elsewhere_counts_at_the_clusters_own_speed() {
    let mut rig = Rig::new(10.0);
    let slow = |name: &str| NodeStatus {
        speed: 0.5,
        ..node(name, true)
    };
    for calls in [1_000, 2_000, 3_000, 4_000] {
        rig.pass(&[measured(node("a", true), "gpu", calls, 30.0)]);
    }
    let known = world(&[measured(node("a", true), "gpu", 4_000, 30.0), slow("b")]);
    let decided = rig.decide(&known);
    let rows = decided.terms(&known, &workflow());
    let row = |cluster: &str, form: &str| {
        let mut all = rows.iter();
        all.find(|row| row.cluster.as_str() == cluster && row.form.as_str() == form)
            .expect("a row")
    };
    let (here, there) = (row("a", "gpu"), row("b", "gpu"));
    assert!(here.measured && here.chosen, "{here:?}");
    assert!((here.run.get() - 30.0).abs() < 1.0, "{here:?}");
    assert!(
        !there.measured && (there.run.get() - 60.0).abs() < 2.0,
        "{there:?}"
    );
    assert_eq!(row("b", "main").run, Millis::new(80.0));
    assert_eq!(here.price, None, "there is no price list");
}

#[test]
fn a_form_that_most_calls_would_wait_for_is_not_chosen() {
    // One call in an hour finds no instance: 2 s for the container.
    let mut rig = Rig::new(1.0 / 3600.0);
    assert_eq!(rig.pass(&[node("b", true)]), pairs(&[("b", "main")]));
    rig.rate = 1.0;
    assert_eq!(rig.pass(&[node("b", true)]), pairs(&[("b", "gpu")]));
}

#[test]
fn a_cluster_that_is_away_keeps_its_form() {
    let mut rig = Rig::new(10.0);
    rig.pass(&[node("b", true)]);
    let draining = NodeStatus {
        draining: true,
        ..node("b", true)
    };
    assert_eq!(rig.pass(&[draining]), pairs(&[("b", "gpu")]));
    // A form that the function has no more is no choice.
    let stage = workflow().entry().name.clone();
    rig.current = [("b".parse().expect("cluster"), [(stage, form("old"))].into())].into();
    assert_eq!(rig.pass(&[node("b", true)]), pairs(&[("b", "gpu")]));
}

#[test]
fn a_form_that_cannot_be_made_ready_gives_way_to_another() {
    let mut rig = Rig::new(10.0);
    let gpu = || node("b", true);
    assert_eq!(rig.pass(&[gpu()]), pairs(&[("b", "gpu")]));
    let told = |phase: AppPhase, serves: bool| {
        let mut status = measured(gpu(), "main", 0, 0.0);
        (status.apps[0].phase, status.apps[0].serves) = (phase, Some(serves));
        status
    };
    let failed = || AppPhase::Failed {
        reason: "no such image".to_owned(),
    };
    assert_eq!(rig.pass(&[told(failed(), false)]), pairs(&[("b", "main")]));
    // Until the node has heard of that, and while it makes the other form ready, nothing changes.
    rig.revision = Revision(2);
    for phase in [failed(), AppPhase::Fetching, AppPhase::Compiling] {
        let served = rig.pass(&[told(phase, false)]);
        assert_eq!(served, pairs(&[("b", "main")]));
    }
    // Once calls are answered it is tried again, and they go on being answered while it fails.
    let served = rig.pass(&[told(AppPhase::Ready, true)]);
    assert_eq!(served, pairs(&[("b", "gpu")]));
    let served = rig.pass(&[told(failed(), true)]);
    assert_eq!(served, pairs(&[("b", "gpu")]));
    // With nothing else to serve it stays what it is, and the cluster is barred.
    let mut only = Rig::new(10.0);
    let one = |status: NodeStatus| NodeStatus {
        runtimes: Some([NodeRuntime::Docker].into()),
        ..status
    };
    only.pass(&[one(gpu())]);
    assert_eq!(
        only.pass(&[one(told(failed(), false))]),
        pairs(&[("b", "gpu")])
    );
}

#[test]
fn plans_count_with_the_form_that_is_served() {
    let nodes = [node("a", false), node("b", true), {
        let mut none = node("c", false);
        none.runtimes = Some([].into());
        none
    }];
    let (world, rig) = (world(&nodes), Rig::new(10.0));
    let decided = rig.decide(&world);
    let (workflow, profiles) = (workflow(), profiles());
    let of = (&workflow, &profiles);
    let factors = decided.factors(&world, of, &Factors::default());
    let factors = factors.as_slice().expect("they differ");
    assert!(
        (factors[0] - 1.0).abs() < 1e-9 && (factors[1] - 0.25).abs() < 1e-9,
        "{factors:?}"
    );
    let serving = world.serving_in(None, of, &decided);
    let constraints = serving.constraints(None).expect("one cluster is barred");
    let barred: Vec<_> = (0..3).map(|at| constraints.get(0, at)).collect();
    assert_eq!(barred, [None, None, Some(Exclusion::CannotServe)]);
    assert_eq!(
        (decided.form(0, 0), decided.form(0, 1)),
        (None, Some(form("gpu")))
    );
    // Without forms nothing is said at all.
    let none = Variants::new();
    let input = FormInput {
        app: None,
        workflow: &workflow,
        variants: &none,
        current: &FormChoices::new(),
        revision: Revision::NONE,
        rate: 0.0,
    };
    let plain = decide(&world, &rig.learner, &input, NOW);
    assert_eq!(
        plain.factors(&world, of, &Factors::default()),
        Factors::default()
    );
    assert!(plain.terms(&world, &workflow).is_empty());
}

#[test]
fn plans_count_with_what_nodes_say_they_serve() {
    let mut rig = Rig::new(10.0);
    rig.pass(&[node("b", true)]);
    assert_eq!(rig.served(), pairs(&[("b", "gpu")]));
    let factor_of = |nodes: &[NodeStatus]| {
        let (world, workflow, profiles) = (world(nodes), workflow(), profiles());
        let decided = rig.decide(&world);
        let factors = decided.factors(&world, (&workflow, &profiles), &Factors::default());
        let rows = decided.terms(&world, &workflow);
        let chosen = rows.into_iter().find(|row| row.chosen).expect("one is");
        let factor = factors.as_slice().expect("factors")[0];
        (factor, decided.form(0, 0), chosen.verdict)
    };
    // While its image is fetched, or cannot be had, the component answers: 40 ms and not 10.
    let before = measured(node("b", true), "main", 0, 0.0);
    let (factor, served, verdict) = factor_of(std::slice::from_ref(&before));
    assert!((factor - 1.0).abs() < 1e-9, "{factor}");
    assert_eq!(served, None);
    assert_eq!(verdict, "the fastest; until it is ready, main");
    // As most nodes say; one that says nothing of it is told the same.
    let after = measured(node("b", true), "gpu", 0, 0.0);
    let all = [before, after.clone(), after, node("b", true)];
    let (factor, served, verdict) = factor_of(&all);
    assert!((factor - 0.25).abs() < 1e-9, "{factor}");
    assert_eq!(
        (served, verdict.as_str()),
        (Some(form("gpu")), "the fastest")
    );
}

#[test]
fn of_forms_that_are_as_fast_the_cheaper_one_is_served() {
    let list = r#"
        name = "list"
        currency = "EUR"
        from = "1970-01-01"
        [prices]
        gpu_gib_seconds = { price = "0.01" }
        vcpu_seconds = { price = "0.00001" }
    "#;
    let list: PriceList = toml::from_str(list).expect("a price list");
    let mut rig = Rig::new(10.0);
    // As fast as the component is expected to be.
    for calls in [1_000, 2_000, 3_000, 4_000] {
        rig.pass(&[measured(node("b", true), "gpu", calls, 39.0)]);
    }
    assert_eq!(rig.served(), pairs(&[("b", "gpu")]));
    let nodes = [measured(node("b", true), "gpu", 4_000, 39.0)];
    let world = world(&nodes).with_prices(Some(list));
    let decided = rig.decide(&world);
    let rows = decided.terms(&world, &workflow());
    let chosen = rows.iter().find(|row| row.chosen).expect("one is served");
    assert_eq!(
        (chosen.form.as_str(), chosen.verdict.as_str()),
        (
            "main",
            "as fast as any, and cheaper; until it is ready, gpu"
        )
    );
    let dear = rows
        .iter()
        .find(|row| row.form != chosen.form)
        .expect("the other");
    assert!(dear.price.expect("a price").micros > chosen.price.expect("a price").micros);
}

#[test]
fn explanations_say_what_nodes_were_told() {
    let nodes = [node("b", true)];
    let (world, workflow) = (world(&nodes), workflow());
    let rows = Rig::new(10.0).decide(&world).terms(&world, &workflow);
    let said = |told: &FormChoices| {
        let mut rows = rows.clone();
        mark_announced(&mut rows, told);
        let said = rows.into_iter().map(|row| (row.chosen, row.verdict));
        said.collect::<Vec<_>>()
    };
    let fastest = |more: &str| format!("{more}the fastest");
    let slower = |more: &str| format!("{more}30.00 ms slower");
    let before = [(false, slower("")), (true, fastest(""))];
    assert_eq!(said(&FormChoices::new()), before, "nothing was told");
    let told = |name: &str| {
        let stage = workflow.entry().name.clone();
        let stages = [(stage, form(name))].into();
        FormChoices::from([("b".parse().expect("cluster"), stages)])
    };
    assert_eq!(said(&told("gpu")), before);
    assert_eq!(
        said(&told("main")),
        [
            (true, slower("served now: ")),
            (false, fastest("not served yet: "))
        ]
    );
}
