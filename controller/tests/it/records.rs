//! Planning passes are recorded while demand and nodes change; replayed from the record they give the same result, to the last bit.

use std::io::Read as _;
use std::path::Path;

use fdn_core::message::{DemandReport, Message};
use fdn_scheduling::compete::Verdict;
use fdn_scheduling::place::Availability;
use fdn_scheduling::record::RecordedPass;
use fdn_testkit::{components, wait};
use flate2::bufread::GzDecoder;

use crate::rig::{Backend, Rig, on_both, two_regions};

on_both!(recorded_passes_come_out_the_same);

/// The records in a folder, in order; after a clean stop of the controller they are complete.
fn records(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("a segment").path())
        .collect();
    paths.sort();
    let mut records = Vec::new();
    for path in paths {
        let segment = std::fs::read(path).expect("a segment");
        let mut rest = &segment[..];
        while !rest.is_empty() {
            let mut member = GzDecoder::new(rest);
            let mut record = Vec::new();
            member.read_to_end(&mut record).expect("whole");
            rest = member.into_inner();
            records.push(record);
        }
    }
    records
}

async fn bound(rig: &Rig, prefix: &str, cluster: &str) {
    wait::until(&format!("{prefix} to be sent to {cluster}"), async || {
        let detail: fdn_core::api::AppDetail = rig.get("/v1/apps/hello").await;
        let mut bindings = detail.bindings.iter();
        let found = bindings.find(|binding| binding.prefix.to_string() == prefix);
        match found {
            Some(binding) if binding.cluster.as_str() == cluster => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn recorded_passes_come_out_the_same(backend: Backend) {
    let rig = Rig::start_with(backend, |settings| {
        let folder = settings.uploads.folder.as_ref().expect("set");
        settings.planner.record = Some(folder.with_file_name("plans"));
    })
    .await;
    let folder = rig.folder.path().join("plans");
    rig.two_regions().await;
    rig.deploy("hello", components::hello("x")).await;
    bound(&rig, "192.0.2.0/24", "eu-west").await;
    let entries = ["10.1.2.0/24", "10.1.3.0/24"].map(|prefix| {
        let app = "hello".parse().expect("app");
        (app, prefix.parse().expect("prefix"), 3)
    });
    rig.report(Message::DemandReport(DemandReport {
        server: "dns-1".to_owned(),
        entries: entries.to_vec(),
    }));
    bound(&rig, "10.1.2.0/24", "eu-west").await;
    rig.silence("eu-1");
    bound(&rig, "192.0.2.0/24", "us-east").await;
    let [eu, _] = two_regions();
    rig.node(eu).await;
    bound(&rig, "192.0.2.0/24", "eu-west").await;
    let metrics = rig.controller.state().metrics.plans.records.clone();
    rig.controller.stop().await;

    let records = records(&folder);
    let written = metrics.made.with_label_values(&["written"]).get();
    assert_eq!(records.len() as u64, written);
    for result in ["dropped", "failed"] {
        assert_eq!(
            metrics.made.with_label_values(&[result]).get(),
            0,
            "{result}"
        );
    }
    let (mut down, mut failed, mut first) = (0, 0, 0);
    let mut last = None;
    for bytes in &records {
        let recorded = RecordedPass::decode(bytes).expect("a record");
        let replayed = recorded.replay().expect("consistent");
        assert_eq!(recorded.differences(&replayed), []);
        assert!(last.is_none_or(|last| last < recorded.at()), "in order");
        last = Some(recorded.at());
        let clusters = recorded.clusters();
        down += usize::from(
            clusters
                .iter()
                .any(|c| c.availability == Availability::Down),
        );
        for outcome in &recorded.decisions().outcomes {
            failed += usize::from(matches!(outcome.verdict, Verdict::Failed(_)));
            first += usize::from(outcome.verdict == Verdict::First);
        }
        assert!(recorded.names().all(|(app, _)| app == "hello"));
    }
    assert!(
        down > 0 && failed > 0 && first > 0,
        "{down} {failed} {first}"
    );
    // The last eight bytes are the rest of the allowance for moves: a change of one bit is detected.
    let mut changed = records.last().expect("some").clone();
    let at = changed.len() - 8;
    changed[at] ^= 1;
    let recorded = RecordedPass::decode(&changed).expect("a record still");
    let found = recorded.differences(&recorded.replay().expect("consistent"));
    let found: Vec<&str> = found
        .iter()
        .map(|difference| difference.what.as_str())
        .collect();
    assert_eq!(found, ["the bound on moves"]);
}
