//! What must be the same after an upgrade, and what must add up.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use anyhow::ensure;
use fdn_core::JobId;
use fdn_core::job::{JobInfo, JobState};
use fdn_e2e::{Cli, Fleet, Programs};
use fdn_service::version::RELEASE;
use fdn_testkit::wait;
use serde_json::Value;

use super::load::{Done, all_jobs};

/// A minute, in milliseconds.
const MINUTE: u64 = 60_000;
/// What processes log of messages that they do not understand.
const NOT_UNDERSTOOD: [&str; 8] = [
    "newer schema",
    "unknown field",
    "unknown variant",
    "missing field",
    "dead letters",
    "cannot be read",
    "is not for",
    "moved aside",
];

/// What an upgrade leaves alone.
#[derive(Debug, PartialEq)]
pub(super) struct Before {
    versions: BTreeMap<&'static str, Value>,
    schedules: Vec<Value>,
    texts: Vec<Value>,
    /// Nodes with their certificates.
    nodes: BTreeMap<String, String>,
}

fn field(rows: &Value, name: &str) -> Vec<Value> {
    let rows = rows.as_array().expect("a list");
    rows.iter().map(|row| row[name].clone()).collect()
}

/// How it is now.
pub(super) fn state(fleet: &Fleet, cli: &Cli) -> Before {
    let versions = ["hello", "work", "near", "far", "flow"];
    let versions = versions.map(|app| (app, cli.json(["describe", app])["versions"].clone()));
    let nodes = field(&cli.json(["node", "list"]), "node").into_iter();
    let nodes = nodes.map(|node| {
        let node = node.as_str().expect("a name").to_owned();
        let certificate = fleet.path(&format!("{node}/identity/node.pem"));
        let certificate = std::fs::read_to_string(certificate).expect("it joined");
        (node, certificate)
    });
    Before {
        versions: BTreeMap::from(versions),
        schedules: field(&cli.json(["schedule", "list", "work"]), "schedule"),
        texts: field(&cli.json(["dns", "txt", "list"]), "values"),
        nodes: nodes.collect(),
    }
}

/// Every process runs the new program and tells its release.
pub(super) fn all_new(fleet: &Fleet, new: &Programs, cli: &Cli) {
    let others = fleet.others(new);
    assert!(others.is_empty(), "of the revision before: {others:?}");
    let told = cli.json(["version"]);
    assert_eq!(
        (told["client"].as_str(), told["server"].as_str()),
        (Some(RELEASE), Some(RELEASE)),
        "{told}"
    );
    for version in field(&cli.json(["node", "list"]), "version") {
        assert_eq!(version, RELEASE);
    }
}

/// Every job ended once, and well; so many jobs there were, and so many attempts that took: one whose answer was lost may have run or not. The schedule
/// is taken away before, so that no more come.
pub(super) async fn jobs(
    fleet: &Fleet,
    cli: &Cli,
    done: &Done,
    more: &BTreeSet<String>,
) -> RangeInclusive<u64> {
    cli.ok(["schedule", "remove", "work", "every"]);
    wait::within(4 * wait::PATIENCE, "every job to end", async || {
        for state in ["queued", "running"] {
            let open = cli.json(["job", "list", "work", "--state", state, "--limit", "1"]);
            ensure!(open == Value::Array(Vec::new()), "{state}: {open}");
        }
        Ok(())
    })
    .await;
    let all = all_jobs(fleet).await.expect("a list of jobs");
    for job in &all {
        assert_eq!(job.state, JobState::Succeeded, "{job:?}");
    }
    let is_scheduled = |job: &&JobInfo| job.submitted_by == "schedule every";
    let minutes = all.iter().filter(is_scheduled);
    let mut minutes: Vec<u64> = minutes.map(|job| job.submitted_at.0 / MINUTE).collect();
    minutes.sort_unstable();
    let each = minutes.windows(2).all(|two| two[1] == two[0] + 1);
    assert!(
        each && !minutes.is_empty(),
        "one for each minute: {minutes:?}"
    );
    let submitted = all.iter().filter(|job| !is_scheduled(job));
    let ids: Vec<JobId> = submitted.map(|job| job.id).collect();
    let found: BTreeSet<JobId> = ids.iter().copied().collect();
    let more = more.iter().map(|id| id.parse().expect("an id"));
    let expected: BTreeSet<JobId> = done.jobs.values().copied().chain(more).collect();
    assert_eq!(ids.len(), found.len(), "no job is there twice");
    assert_eq!(
        found, expected,
        "none is lost, and no key made more than one"
    );
    for job in all.iter().filter(|job| job.attempts > 1) {
        eprintln!("a job took more than one attempt: {:?}", job.history);
    }
    let attempts = all.iter().map(|job| u64::from(job.attempts)).sum();
    all.len() as u64..=attempts
}

/// The sums of usage come to say exactly what was called.
pub(super) async fn usage(cli: &Cli, done: &Done, attempts: RangeInclusive<u64>) {
    cli.bills("hello", done.calls).await;
    cli.bills_within("work", attempts).await;
}

/// No process logged an error, or a message that it did not understand, and none lies with the dead letters.
pub(super) async fn logs(fleet: &Fleet) {
    let mut found = Vec::new();
    for name in fleet.all() {
        for line in fleet.log(&name).lines() {
            let level = serde_json::from_str::<Value>(line).map(|line| line["level"].clone());
            let is_bad = match level.as_ref().map(|level| level.as_str()) {
                Ok(Some("ERROR")) => true,
                Ok(Some("WARN")) => NOT_UNDERSTOOD.iter().any(|words| line.contains(words)),
                Ok(_) => false,
                // No line of the log: the last words of a program.
                Err(_) => line.contains("panicked"),
            };
            if is_bad {
                found.push(format!("{name}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "{} lines: {found:#?}", found.len());
    for name in fleet.names("fdn-controller") {
        let letters = fleet.metric(&name, "fdn_controller_dead_letters", "").await;
        let letters = letters.expect("it is shown");
        assert!(letters < 0.5, "{name}: {letters} dead letters");
    }
}
