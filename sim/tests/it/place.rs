//! Recorded workflows, and `fdn sim place` as its users see it.

use std::io::Write as _;

use clap::Parser;
use fdn_core::{Coded, ErrorCode};
use fdn_scheduling::policy::{Budget, Policy};
use fdn_sim::Error;
use fdn_sim::command::{Command, run as command};
use fdn_sim::place::{NetworkModel, REFERENCE, Workflow, run};
use fdn_sim::progress::Silent;
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::data::traces;

/// The published figures have two digits.
const ROUNDING_S: f64 = 0.005 + 1e-9;

#[test]
fn heft_reaches_the_published_makespans_to_the_last_digit() {
    let Some(data) = traces() else { return };
    for reference in REFERENCE {
        let path = data.join(format!("workflows/{}.json.gz", reference.name));
        let workflow = Workflow::read(&path).expect("a workflow");
        for (network, published) in [
            (NetworkModel::edge5(), reference.edge5_s),
            (NetworkModel::edge3u(), reference.edge3u_s),
        ] {
            let found = run(&workflow, &network, None, Policy::Heft, Budget::default());
            let found = found.expect("resources are unlimited");
            let makespan = found.plan.latency().get() / 1e3;
            let name = reference.name;
            assert!(
                (makespan - published).abs() <= ROUNDING_S,
                "{name}: {makespan} {published}"
            );
            assert!(found.lower_bound <= found.plan.latency(), "{name}");
        }
    }
}

/// Every policy places these workflows soundly, and again the same.
fn placed_twice(names: &[&str]) {
    let Some(data) = traces() else { return };
    for name in names {
        let path = data.join(format!("workflows/{name}.json.gz"));
        let workflow = Workflow::read(&path).expect("a workflow");
        let place = |policy| {
            let found = run(
                &workflow,
                &NetworkModel::edge5(),
                None,
                policy,
                Budget::default(),
            );
            found
                .expect("resources are unlimited; the checker accepts the plan")
                .plan
        };
        // All but the search that is for small jobs only.
        for policy in Policy::ALL
            .into_iter()
            .filter(|policy| *policy != Policy::Exact)
        {
            assert_eq!(place(policy), place(policy), "{policy} {name}");
        }
    }
}

#[test]
fn every_policy_places_a_recorded_workflow_soundly_and_again_the_same() {
    placed_twice(&["blast-small-001"]);
}

const NETWORK: &str = r#"{
    "clusters": [
        {"id": "c0", "speed": 1.0, "slots": 1, "idle": {"memory_mib": 300}},
        {"id": "c1", "speed": 2.0, "slots": 1}
    ],
    "links": [{"a": "c0", "b": "c1", "mb_per_s": 100.0, "latency_ms": 250.0}],
    "clients": [{"id": "u0", "latency_ms": {"c0": 500, "c1": 2000}}]
}"#;

/// Two entries, whose outputs a third task joins.
const WORKFLOW: &str = r#"{
    "name": "join", "schemaVersion": "1.5",
    "workflow": {
        "specification": {
            "tasks": [
                {"name": "z", "id": "join", "parents": ["left", "right"], "children": [], "inputFiles": ["l", "r"]},
                {"name": "x", "id": "left", "parents": [], "children": ["join"], "outputFiles": ["l"]},
                {"name": "y", "id": "right", "parents": [], "children": ["join"], "outputFiles": ["r", "unread"]}
            ],
            "files": [{"id": "l", "sizeInBytes": 100000000}, {"id": "r", "sizeInBytes": 50000000}, {"id": "unread", "sizeInBytes": 7}]
        },
        "execution": {
            "makespanInSeconds": 12, "executedAt": "2020-03-20T15:19:28-08:00",
            "tasks": [
                {"id": "left", "runtimeInSeconds": 4, "memoryInBytes": 209715200},
                {"id": "right", "runtimeInSeconds": 8, "memoryInBytes": 104857601},
                {"id": "join", "runtimeInSeconds": 2}
            ]
        }
    }
}"#;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn file(content: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(content.as_bytes()).expect("written");
    file
}

/// What `fdn sim place` prints.
fn place(workflow: &str, network: &str, options: &[&str]) -> Result<String, Error> {
    let (workflow, network) = (file(workflow), file(network));
    let mut line = vec!["fdn", "place", "--workflow"];
    line.push(workflow.path().to_str().expect("a path"));
    if !options.contains(&"--network") {
        line.extend(["--network", network.path().to_str().expect("a path")]);
    }
    line.extend(options);
    let cli = Cli::try_parse_from(line).expect("the command line is sound");
    let mut out = Vec::new();
    command(&cli.command, &mut out, &Silent)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn json(options: &[&str]) -> Value {
    let options = [&["-o", "json"], options].concat();
    let text = place(WORKFLOW, NETWORK, &options).expect("it fits");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn the_plan_is_printed_as_json_with_units_in_the_names() {
    let found = json(&["--policy", "heft"]);
    assert_eq!(found["policy"], "heft");
    // The request comes to c0, the first of equals, and crosses to c1 in 0.25: right runs there from 0.25 to 4.25, left on c0 from
    // 0 to 4. Join gets the larger file on c1 0.25 + 1 later and works for 1; on c0 it would begin at 5 and work for 2.
    assert_eq!(found["makespan_s"], 6.25);
    let tasks: Vec<_> = found["tasks"].as_array().expect("a list").iter().collect();
    let row = |task: &Value| {
        let text = |key: &str| task[key].as_str().expect("text").to_owned();
        let number = |key: &str| task[key].as_f64().expect("a number");
        (
            text("id"),
            text("cluster"),
            number("start_s"),
            number("finish_s"),
        )
    };
    let expected = [
        ("left", "c0", 0.0, 4.0),
        ("right", "c1", 0.25, 4.25),
        ("join", "c1", 5.25, 6.25),
    ];
    let expected = expected.map(|(id, p, s, f)| (id.to_owned(), p.to_owned(), s, f));
    assert_eq!(tasks.into_iter().map(row).collect::<Vec<_>>(), expected);
    // The longest path at speed 2 takes 5, all work at speed 3 takes 14 / 3.
    assert_eq!(found["lower_bound_s"], 5.0);
    assert!(found["algorithm_us"].as_f64().expect("a number") > 0.0);
    let keys: Vec<&String> = found.as_object().expect("an object").keys().collect();
    assert_eq!(keys.len(), 5, "{keys:?}");
}

#[test]
fn a_client_is_waited_for_and_an_unknown_one_is_told_who_there_is() {
    let found = json(&["--policy", "heft", "--client", "u0"]);
    // Everything on c1 would take 2 + 7 + 2; c0 alone 0.5 + 14 + 0.5.
    let makespan = found["makespan_s"].as_f64().expect("a number");
    assert!(makespan > 8.0 && makespan <= 11.0, "{makespan}");
    assert!(found["tasks"][0]["start_s"].as_f64().expect("a number") >= 0.5);
    let error = place(WORKFLOW, NETWORK, &["--policy", "heft", "--client", "u1"]);
    let error = error.expect_err("no such client");
    assert_eq!(error.to_string(), "no client is called u1; there are u0");
    assert_eq!(error.code(), ErrorCode::BadRequest);
}

#[test]
fn memory_counts_where_the_network_has_a_bound() {
    // 200 and 101 MiB do not go together into 300, so at most one of the two runs on c0; with c1 bound too, nothing fits.
    for policy in Policy::ALL {
        let found = json(&["--policy", policy.name()]);
        let on_c0 = found["tasks"].as_array().expect("a list").iter();
        let on_c0 = on_c0.filter(|task| task["cluster"] == "c0" && task["id"] != "join");
        assert!(on_c0.count() < 2, "{policy}");
    }
    let tight = NETWORK.replace(
        r#""slots": 1}"#,
        r#""slots": 1, "idle": {"memory_mib": 50}}"#,
    );
    let error = place(WORKFLOW, &tight, &["--policy", "mct"]).expect_err("no room");
    assert_eq!(error.code(), ErrorCode::NoClusterFits);
    assert_eq!(
        error.to_string(),
        "no cluster can take right: c0 (wants 101 MiB memory, 100 MiB free), c1 (wants 101 MiB memory, 50 MiB free)"
    );
}

#[test]
fn a_network_is_named_or_a_file_and_the_table_is_for_people() {
    let options = ["--policy", "heu-orche", "--network", "edge3u"];
    let text = place(WORKFLOW, NETWORK, &options).expect("it fits");
    assert!(text.starts_with("heu-orche: "), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines[1].starts_with("task   cluster  start_s  finish_s"),
        "{text}"
    );
    let error = place(
        WORKFLOW,
        NETWORK,
        &["--policy", "heft", "--network", "edge4"],
    );
    assert_eq!(
        error.expect_err("neither a name nor a file").to_string(),
        "edge4: cannot be read"
    );
}

#[test]
fn an_unknown_policy_is_told_which_there_are() {
    let line = [
        "fdn",
        "place",
        "--workflow",
        "w",
        "--network",
        "n",
        "--policy",
        "best-effort",
    ];
    let error = Cli::try_parse_from(line)
        .expect_err("no such policy")
        .to_string();
    for policy in Policy::ALL {
        assert!(error.contains(policy.name()), "{error}");
    }
}

#[test]
fn a_malformed_file_is_named_with_the_path_in_it() {
    let broken = WORKFLOW.replace(
        r#""id": "right", "runtimeInSeconds": 8"#,
        r#""id": "right", "runtimeInSeconds": -8"#,
    );
    let error = place(&broken, NETWORK, &["--policy", "heft"]).expect_err("a negative time");
    let text = error.to_string();
    assert!(
        text.ends_with(
            ": workflow.execution.tasks[1].runtimeInSeconds: -8; expected seconds, 0 or more"
        ),
        "{text}"
    );
    assert_eq!(error.code(), ErrorCode::InputInvalid);
}

mod soak {
    use super::*;

    #[test]
    fn every_policy_places_recorded_workflows_soundly_and_again_the_same() {
        // With virtual entry and exits of no work; with much data.
        placed_twice(&["methylseq-dirt02-001", "montage-dss-05d-001"]);
    }

    #[test]
    fn the_experiment_on_workflows_holds_its_gates() {
        let Some(data) = traces() else { return };
        let data = data.to_str().expect("a path");
        let line = [
            "fdn",
            "paper",
            "--only",
            "workflows",
            "--quick",
            "--data",
            data,
        ];
        let cli = Cli::try_parse_from(line).expect("the command line is sound");
        let mut out = Vec::new();
        command(&cli.command, &mut out, &Silent).expect("it runs");
        let text = String::from_utf8(out).expect("text");
        let gates = text.split("Gates").nth(1).expect("gates");
        assert!(gates.contains("yes") && !gates.contains("NO"), "{gates}");
    }
}
