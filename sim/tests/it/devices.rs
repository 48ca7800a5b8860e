//! `fdn sim devices`: arguments, files, figures.

use std::path::{Path, PathBuf};

use clap::Parser;
use fdn_sim::Error;
use fdn_sim::command::{Command, run};
use fdn_sim::progress::Silent;
use serde_json::Value;

use crate::data::traces;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

fn call(args: &[&str]) -> Result<String, Error> {
    let args = ["sim", "devices"].iter().chain(args);
    let cli = Cli::try_parse_from(args).expect("arguments");
    let mut out = Vec::new();
    run(&cli.command, &mut out, &Silent)?;
    Ok(String::from_utf8(out).expect("text"))
}

fn json(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
    serde_json::from_str(&call(&args).expect("a result")).expect("JSON")
}

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nb,8000,8192,2,T4\na,8000,8192,2,P100\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n\
    p,1000,1024,1,1000\n\
    without,1000,1024,0,0\n";

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new(nodes: &str, pods: &str) -> Self {
        let files = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        std::fs::write(files.path("nodes.csv"), nodes).expect("written");
        std::fs::write(files.path("pods.csv"), pods).expect("written");
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn args(&self) -> Vec<String> {
        let text = |path: PathBuf| path.to_str().expect("a plain path").to_owned();
        let (nodes, pods) = (text(self.path("nodes.csv")), text(self.path("pods.csv")));
        vec!["--nodes-file".to_owned(), nodes, "--pods".to_owned(), pods]
    }

    fn json(&self, more: &[&str]) -> Value {
        let args = self.args();
        let args: Vec<&str> = args
            .iter()
            .map(String::as_str)
            .chain(more.iter().copied())
            .collect();
        json(&args)
    }

    fn error(&self) -> String {
        let args = self.args();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let error = call(&args).expect_err("refused");
        error.to_string()
    }
}

#[test]
fn four_devices_take_four_pods_and_the_rest_is_refused() {
    let files = Files::new(NODES, PODS);
    for score in [
        "least-requested",
        "most-balanced",
        "packing",
        "fragmentation",
        "random",
    ] {
        let found = files.json(&["--score", score, "--requested", "1.5", "--detail"]);
        assert_eq!(found["nodes"], 2);
        assert_eq!(found["gpu_capacity_milli"], 4000);
        assert_eq!(
            (found["pods"].as_u64(), found["refused_pods"].as_u64()),
            (Some(6), Some(2))
        );
        assert_eq!(found["first_refusal"]["allocated_gpu_share"], 1.0);
        assert_eq!(found["first_refusal"]["requested_gpu_share"], 1.25);
        assert_eq!(found["end"]["allocated_gpu_share"], 1.0);
        assert_eq!(found["end"]["fragmented_gpu_share"], 0.0);
        let kinds = found["detail"]["pods_by_kind"].as_array().expect("kinds");
        assert_eq!(kinds.len(), 1, "pods without a device are left out");
        assert_eq!(kinds[0]["refused_pods"], 2);
        let models = found["detail"]["gpu_by_model"].as_array().expect("models");
        assert_eq!(models[0]["model"], "P100");
        assert_eq!(models[0]["allocated_gpu_milli"], 2000);
    }
}

#[test]
fn a_pod_that_fits_nowhere_is_refused_at_once() {
    let files = Files::new(
        NODES,
        "cpu_milli,memory_mib,num_gpu,gpu_milli\n9000,1,1,10\n",
    );
    let found = files.json(&["--requested", "0.01"]);
    assert_eq!(found["refused_pods"], found["pods"]);
    assert_eq!(found["first_refusal"]["allocated_gpu_share"], 0.0);
    assert_eq!(
        found["end"]["fragmented_gpu_share"], 1.0,
        "all of it is of no use"
    );
}

#[test]
fn when_all_pods_fit_there_is_no_first_refusal() {
    let found = Files::new(NODES, PODS).json(&["--requested", "0.5"]);
    assert_eq!(found["first_refusal"], Value::Null);
    assert_eq!(found["end"]["allocated_gpu_share"], 0.5);
    assert!(found.get("detail").is_none());
}

#[test]
fn the_table_says_the_same_in_words() {
    let files = Files::new(NODES, PODS);
    let args = files.args();
    let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
    args.extend([
        "--requested",
        "1.5",
        "--detail",
        "--device-choice",
        "least-used",
    ]);
    let text = call(&args).expect("a result");
    assert!(
        text.contains("2 of 6 pods refused on 2 nodes with 4 devices"),
        "{text}"
    );
    assert!(
        text.contains("first refusal") && text.contains("P100"),
        "{text}"
    );
}

#[test]
fn malformed_files_are_refused_with_the_line_and_what_was_expected() {
    let broken = |nodes: &str, pods: &str| Files::new(nodes, pods).error();
    let error = broken("sn,cpu_milli,memory_mib,gpu\na,8000,many,2\n", PODS);
    assert!(
        error.contains("nodes.csv: line 2, column memory_mib"),
        "{error}"
    );
    let error = broken("sn,cpu_milli,memory_mib,gpu\na,8000,1,13\n", PODS);
    assert!(
        error.contains("line 2: 13 devices; a node has at most 12"),
        "{error}"
    );
    let error = broken("sn,cpu_milli,memory_mib,gpu\na,8000,1,0\n", PODS);
    assert!(error.contains("no node has a device"), "{error}");
    let error = broken("sn,cpu_milli,memory_mib,gpu\na,8,1,1\na,8,1,1\n", PODS);
    assert!(error.contains("more than one node a"), "{error}");
    let pods = "cpu_milli,memory_mib,num_gpu,gpu_milli\n";
    let error = broken(NODES, &format!("{pods}1,1,0,0\n1,1,1,1001\n"));
    assert!(
        error.contains("pods.csv: line 3: gpu_milli 1001, but a share is 1 to 1000"),
        "{error}"
    );
    let error = broken(NODES, &format!("{pods}1,1,0,0\n"));
    assert!(error.contains("no pod wants a device"), "{error}");
    let error = broken(NODES, "cpu_milli,memory_mib,num_gpu\n1,1,1\n");
    assert!(error.contains("missing field `gpu_milli`"), "{error}");
}

#[test]
fn shares_that_mean_nothing_are_refused() {
    for bad in ["0", "-1", "nan", "101", "much"] {
        let args = ["sim", "devices", "--nodes-file", "x", "--pods", "y"];
        let args = args.into_iter().chain(["--requested", bad]);
        assert!(Cli::try_parse_from(args).is_err(), "{bad}");
    }
}

fn recorded(folder: &Path, more: &[&str]) -> Value {
    let file = |name: &str| {
        let path = folder.join("gpu").join(name);
        path.to_str().expect("a plain path").to_owned()
    };
    let (nodes, pods) = (file("nodes.csv.gz"), file("pods.csv.gz"));
    let args = ["--nodes-file", &nodes, "--pods", &pods];
    let args: Vec<&str> = args.into_iter().chain(more.iter().copied()).collect();
    json(&args)
}

#[test]
fn the_recorded_cluster_is_nearly_full_before_packing_refuses_a_pod() {
    let Some(folder) = traces() else { return };
    let first = |score| {
        let found = recorded(&folder, &["--score", score, "--seed", "3"]);
        assert_eq!(found["gpu_capacity_milli"], 3_110_000);
        found["first_refusal"]["allocated_gpu_share"]
            .as_f64()
            .expect("refused")
    };
    let (spread, packed) = (first("least-requested"), first("packing"));
    assert!(spread < 0.3 && packed > 0.88, "{spread} {packed}");
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let Some(folder) = traces() else { return };
    let run = |seed| recorded(&folder, &["--score", "random", "--seed", seed, "--detail"]);
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}
