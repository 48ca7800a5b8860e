use std::sync::Arc;

use fdn_core::message::NodeStatus;
use fdn_core::workflow::Workflow;
use fdn_core::{ClientPrefix, GeoPoint, Millis, Revision, Timestamp, VersionNumber};
use fdn_scheduling::compete::{Moves, Rate};
use fdn_scheduling::place::Bandwidth;
use fdn_scheduling::steer::Margin;

use super::*;
use crate::fixture;
use crate::geo::Geo;
use crate::reconcile::actual::Factors;
use crate::reconcile::difference::{Difference, binding_rows, difference};
use crate::reconcile::place::{PlanInput, PreviousPlans, place_all};
use crate::reconcile::prefixes::DemandedPrefixes;
use crate::reconcile::profile;
use crate::reconcile::world::{MeasuredRtts, Terms, World};
use crate::reconcile::write::plan_rows;
use crate::settings::GeoSettings;

/// Two clusters of which these answer, and clients that are moved for nearly everything, or for nothing.
fn world(answering: &[&str], margin: f64) -> World {
    let id = |name: &str| -> ClusterId { name.parse().expect("cluster") };
    let at = |lat, lon| GeoPoint::new(lat, lon).expect("position");
    let places = [
        ("eu-west", at(53.35, -6.26)),
        ("us-east", at(39.04, -77.49)),
    ];
    let places = places.map(|(name, point)| (id(name), (name.parse().expect("region"), point)));
    let nodes: Vec<NodeStatus> = answering
        .iter()
        .map(|cluster| fixture::status(&format!("{cluster}-1"), cluster))
        .collect();
    let alive: Vec<&NodeStatus> = nodes.iter().collect();
    let terms = Terms {
        margin: Margin::new(margin).expect("a share"),
        bandwidth: Bandwidth::UNLIMITED,
        horizon: Millis::new(10_000.0),
    };
    let geo = Arc::new(Geo::open(&GeoSettings::default()).expect("no locations"));
    World::of(places.into(), &alive, geo, MeasuredRtts::default(), terms)
}

fn app() -> AppName {
    "hello".parse().expect("app")
}

/// The network's one app as it is kept from pass to pass: what was planned, what it says, and what is remembered of that.
#[derive(Default)]
struct Kept {
    placed: AppPlacement,
    said: BTreeMap<String, PlanExplanation>,
    failovers: Failovers,
}

impl Kept {
    /// Plans once more; says how many plans were explained, and how what should be differs.
    fn pass(&mut self, world: &World, moves: &mut Moves) -> (usize, Difference) {
        let workflow = Workflow::single("hello".parse().expect("function"), VersionNumber::FIRST);
        let expected =
            |_: &fdn_core::workflow::Stage| profile(&fdn_core::manifest::Manifest::default());
        let profiles = world.profiles(&app(), &workflow, expected);
        let plans = plan_rows(&app(), &self.placed, Revision(1), Timestamp(0)).expect("rows");
        let bindings = binding_rows(&app(), &PreviousPlans::default(), &self.placed, Revision(1));
        let before = PreviousPlans::new(&plans, &bindings);
        let client: ClientPrefix = "192.0.2.0/24".parse().expect("prefix");
        let planning = PlanInput {
            workflow: &workflow,
            profiles: &profiles,
            serving: &world.serving(None, &workflow, &profiles),
            factors: &Factors::default(),
            dwelling: None,
            failovers: self.failovers.of(&app()),
            before: &before,
            demand: DemandedPrefixes::uniform([client], 1.0),
            rate: Rate::per_second(1.0),
            fixed: false,
        };
        let mut all = place_all(world, &[planning], 10, moves, None).expect("consistent");
        let placed = all.apps.pop().flatten().expect("planned");
        let difference = difference(&before, &placed);
        self.failovers.note(&app(), &placed);
        let mut explained = 0;
        for (group, plan) in &placed.plans {
            if let Some(said) = &plan.explanation {
                self.said.insert(group.clone(), said.clone());
                explained += 1;
            }
        }
        self.placed = placed;
        (explained, difference)
    }

    fn reason(&self) -> &str {
        let group = self.placed.plans.keys().next().expect("a plan");
        &self.said[group].reason
    }

    fn cluster(&self) -> &str {
        let bound = self.placed.bindings.values().next().expect("a binding");
        bound.0.as_str()
    }
}

#[test]
fn a_plan_says_that_a_cluster_does_not_answer_until_it_does() {
    let (both, us) = (["eu-west", "us-east"], ["us-east"]);
    let mut kept = Kept::default();
    kept.pass(&world(&["eu-west"], 0.1), &mut Moves::unlimited());
    assert_eq!(kept.cluster(), "eu-west");
    let (explained, _) = kept.pass(&world(&us, 0.1), &mut Moves::unlimited());
    let gone = "the cluster before, eu-west, does not answer";
    assert_eq!(
        (explained, kept.cluster(), kept.reason()),
        (1, "us-east", gone)
    );
    // As long as it does not, that is why clients are there.
    let (explained, _) = kept.pass(&world(&us, 0.1), &mut Moves::unlimited());
    assert_eq!((explained, kept.reason()), (0, gone));
    // It answers, and nothing moves back: the reason is that of now, written once, and nothing else is.
    let (explained, same) = kept.pass(&world(&both, 0.99), &mut Moves::unlimited());
    assert_eq!((explained, same), (1, Difference::default()));
    assert_eq!(kept.cluster(), "us-east");
    assert!(
        !kept.reason().contains("does not answer"),
        "{}",
        kept.reason()
    );
    assert!(
        kept.reason().starts_with("still the best") || kept.reason().contains("are needed to move"),
        "{}",
        kept.reason()
    );
    let (explained, _) = kept.pass(&world(&both, 0.99), &mut Moves::unlimited());
    assert_eq!(explained, 0);
    assert!(kept.failovers.of(&app()).is_none());
}

#[test]
fn whoever_begins_to_plan_knows_from_the_explanations() {
    let mut kept = Kept::default();
    kept.pass(&world(&["eu-west"], 0.1), &mut Moves::unlimited());
    kept.pass(&world(&["us-east"], 0.1), &mut Moves::unlimited());
    let rows: Vec<(AppName, String, String)> = kept
        .said
        .iter()
        .map(|(group, said)| {
            let text = serde_json::to_string(said).expect("JSON");
            assert!(
                text.contains(r#""failover":{"#),
                "what is looked for: {text}"
            );
            (app(), group.clone(), text)
        })
        .collect();
    kept.failovers = Failovers::from_rows(rows);
    let (explained, _) = kept.pass(
        &world(&["eu-west", "us-east"], 0.99),
        &mut Moves::unlimited(),
    );
    assert_eq!(explained, 1);
    assert!(
        !kept.reason().contains("does not answer"),
        "{}",
        kept.reason()
    );
    // Of before there is none, and what is no explanation is passed over.
    for text in [r#"{"reason":"r","candidates":[]}"#, "{}", ""] {
        let row = [(app(), "g".to_owned(), text.to_owned())];
        let read = Failovers::from_rows(row);
        assert!(read.of(&app()).is_none(), "{text}");
    }
}

#[test]
fn plans_and_apps_that_are_gone_are_forgotten() {
    let mut kept = Kept::default();
    kept.pass(&world(&["eu-west"], 0.1), &mut Moves::unlimited());
    kept.pass(&world(&["us-east"], 0.1), &mut Moves::unlimited());
    assert_eq!(kept.failovers.of(&app()).map(BTreeMap::len), Some(1));
    kept.failovers.note(&app(), &AppPlacement::default());
    assert!(kept.failovers.of(&app()).is_none());
    kept.failovers.note(&app(), &kept.placed);
    let none = kept.failovers.of(&app()).is_none();
    assert!(!none, "it says so still");
    kept.failovers.retain(|_| false);
    assert!(kept.failovers.of(&app()).is_none());
}

#[test]
fn a_failover_is_over_once_something_else_or_nothing_keeps_the_work_out() {
    let row = |excluded: Option<&str>| Candidate {
        cluster: "eu-west".parse().expect("cluster"),
        latency: fdn_core::latency::LatencyEstimate {
            rtt: Millis::ZERO,
            source: fdn_core::latency::LatencySource::Unknown,
        },
        distance: Millis::ZERO,
        available: Millis::ZERO,
        start: Millis::ZERO,
        toll: Millis::ZERO,
        work: Millis::ZERO,
        finish: Millis::ZERO,
        total: Millis::ZERO,
        excluded: excluded.map(str::to_owned),
        verdict: String::new(),
    };
    let failover = Failover {
        from: "eu-west".parse().expect("cluster"),
        why: "has no node that could make it ready".to_owned(),
    };
    assert!(failover.lasts(&[]), "it is gone");
    let same = "has no node that could make it ready: no image";
    assert!(failover.lasts(&[row(Some(same))]));
    assert!(!failover.lasts(&[row(Some("is not ready yet to serve it"))]));
    assert!(!failover.lasts(&[row(None)]));
}
