//! `fdn sim replay`: recorded passes come out as they were, what was changed or damaged is found, and other rules cost what they cost.

use std::io::Write as _;
use std::path::Path;

use clap::Parser;
use fdn_core::{Millis, Resources, Timestamp};
use fdn_scheduling::compete::{GroupDemand, Moves, Outcome, Pass, Rate, Terms, Verdict};
use fdn_scheduling::dag::Dag;
use fdn_scheduling::place::{
    Availability, Bandwidth, Cluster, ClusterIndex, Link, Network, Options, Speed,
};
use fdn_scheduling::record::{CompletedPass, Decisions};
use fdn_scheduling::steer::Margin;
use fdn_sim::Error;
use fdn_sim::command::{Command, run};
use fdn_sim::progress::Silent;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What is printed, and how it ends.
fn call(folder: &Path, args: &[&str]) -> (String, Result<(), Error>) {
    let folder = folder.to_str().expect("a plain path");
    let head = ["sim", "replay", folder];
    let args = head.iter().chain(args);
    let cli = Cli::try_parse_from(args).expect("arguments");
    let mut out = Vec::new();
    let ended = run(&cli.command, &mut out, &Silent);
    (String::from_utf8(out).expect("text"), ended)
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["-o", "json"]).collect();
    serde_json::from_str(&call(folder, &args).0).expect("JSON")
}

const PASSES: u64 = 12;
/// The pass from which the near cluster is down, and the first with it again.
const DOWN: std::ops::Range<u64> = 5..8;

/// The passes of a minute: two places of clients, whose cluster is nearly full, has more and more calls, and is down for a while. `change` what was
/// decided before it is written.
fn members(mut change: impl FnMut(u64, &mut Decisions)) -> Vec<Vec<u8>> {
    let dag = Dag::single("hello", Millis::new(10.0), Resources::default()).expect("a task");
    let network = Network::from_fn(2, |_, _| Link {
        latency: Millis::new(40.0),
        bandwidth: Bandwidth::UNLIMITED,
    });
    let terms = Terms {
        margin: Margin::default(),
        options: Options {
            exit_leg: true,
            ..Options::default()
        },
        horizon: Millis::new(10_000.0),
    };
    let distances = [[5.0, 45.0], [45.0, 6.0]].map(|row| row.map(Millis::new));
    let mut before: [Option<Vec<ClusterIndex>>; 2] = [None, None];
    let mut moves = Moves::new(0.25, Millis::new(30_000.0)).expect("a bucket");
    (0..PASSES)
        .map(|number| {
            let [eu, us] = ["eu-west", "us-east"].map(|id| id.parse().expect("a name"));
            let (eu_state, slots) = if DOWN.contains(&number) {
                (Availability::Down, 0)
            } else {
                (Availability::Up, 4)
            };
            let clusters = [
                Cluster::new(eu, Speed::new(1.0), slots).with_availability(eu_state),
                Cluster::new(us, Speed::new(1.0), 16),
            ];
            let demand = |at: usize, rate: f64| GroupDemand {
                app: 0,
                dag: &dag,
                distance: &distances[at],
                rate: Rate::per_second(rate),
                before: before[at].as_deref(),
                constraints: None,
                factors: None,
                dwells: false,
            };
            let demands = [demand(0, 200.0 + 25.0 * number as f64), demand(1, 100.0)];
            let pass = Pass {
                clusters: &clusters,
                network: &network,
                terms,
                settled: &[],
                demands: &demands,
            };
            moves.fill(Millis::new(5_000.0));
            let moves_before = moves;
            let mut outcomes: Vec<Option<Outcome>> = vec![None; 2];
            let competition = pass
                .run(&mut moves, |at, _, outcome| {
                    outcomes[at] = Some(outcome.clone())
                })
                .expect("consistent");
            let outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
            let places: Vec<_> = outcomes.iter().map(|o| o.clusters.clone()).collect();
            let mut decisions = Decisions::new(outcomes, &competition, moves);
            change(number, &mut decisions);
            let record = CompletedPass {
                at: Timestamp(1_790_000_000_000 + 5_000 * number),
                apps: &["hello"],
                groups: &["paris", "new-york"],
                pass: &pass,
                moves: moves_before,
                decisions: &decisions,
            }
            .encode();
            for (before, places) in before.iter_mut().zip(places) {
                *before = Some(places);
            }
            let mut to = GzEncoder::new(Vec::new(), Compression::fast());
            to.write_all(&record).expect("memory");
            to.finish().expect("memory")
        })
        .collect()
}

/// A folder with these members in two segments.
fn folder(members: &[Vec<u8>]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (number, members) in members.chunks(7).enumerate() {
        let name = format!("plans-{:012}.gz", number + 1);
        std::fs::write(folder.path().join(name), members.concat()).expect("written");
    }
    folder
}

/// The planner moves nobody back: the near cluster is full by then.
const GOLDEN: &str = "\
12 passes over 55.0 s in 2 segments, 24 decisions: all the same, to the last bit

policy       mean ms   p99 ms  not served  moves  load moved  MiB missing
decided        63.90   100.02       0.000      1       0.765            0
stay           63.90   100.02       0.000      1       0.765            0
nearest       548.66  2451.00       0.000      2       1.565            0
round-robin    63.90   100.02       0.000      1       0.765            0
fcfs           66.88   103.78       0.000      –           –            0
priority       71.70   100.06       0.000      –           –            0
";

#[test]
fn what_was_recorded_comes_out_to_the_last_bit_and_other_rules_beside_it() {
    let folder = folder(&members(|_, _| {}));
    let rules = ["stay", "nearest", "round-robin", "fcfs", "priority"];
    let args: Vec<&str> = rules.iter().flat_map(|rule| ["--policy", rule]).collect();
    let (text, ended) = call(folder.path(), &args);
    ended.expect("the same");
    assert_eq!(text, GOLDEN);
    let got = json(folder.path(), &args);
    assert_eq!(
        (
            &got["passes"],
            &got["decisions"],
            &got["passes_differing"],
            &got["damages"]
        ),
        (&12.into(), &24.into(), &0.into(), &0.into())
    );
    let costs = got["costs"].as_array().expect("costs");
    let names: Vec<&str> = costs
        .iter()
        .filter_map(|cost| cost["policy"].as_str())
        .collect();
    assert_eq!(names[0], "decided");
    assert_eq!(names[1..], rules);
    let mean = |at: usize| costs[at]["mean_ms"].as_f64().expect("calls");
    // Nobody beats what was decided in the mean; who goes to the nearest cluster waits in it.
    for (at, name) in names.iter().enumerate().skip(1) {
        assert!(
            mean(0) <= mean(at) + 1e-9,
            "{name}: {} {}",
            mean(0),
            mean(at)
        );
        assert_eq!(costs[at]["unserved_share"], 0.0, "{name}");
    }
    assert!(mean(2) > mean(0), "the nearest cluster is full");
    // Nearest: away from the one that is down and back. Call by call nobody has a place.
    let moves: Vec<Option<u64>> = costs.iter().map(|cost| cost["moves"].as_u64()).collect();
    assert_eq!(moves[2], Some(2));
    assert_eq!(moves[4..], [None, None]);
    assert_eq!(
        moves[0],
        Some(changed(&members_decided())),
        "as was decided"
    );
}

/// Where each group was, pass by pass.
fn members_decided() -> Vec<Vec<usize>> {
    let mut decided = Vec::new();
    members(|_, decisions| {
        let outcomes = decisions.outcomes.iter();
        decided.push(outcomes.map(|outcome| outcome.clusters[0].get()).collect());
    });
    decided
}

fn changed(decided: &[Vec<usize>]) -> u64 {
    let pairs = decided.windows(2);
    let moved = pairs.map(|pair| pair[0].iter().zip(&pair[1]).filter(|(a, b)| a != b).count());
    moved.sum::<usize>() as u64
}

#[test]
fn one_bit_that_was_changed_is_found_and_the_command_fails() {
    let folder = folder(&members(|number, decisions| {
        if number == 6 {
            let latency = &mut decisions.outcomes[1].latency;
            *latency = Millis::new(f64::from_bits(latency.get().to_bits() ^ 1));
        }
        if number == 9 {
            decisions.outcomes[0].clusters = vec![ClusterIndex::new(1)];
            decisions.outcomes[0].verdict = Verdict::Deferred;
        }
    }));
    let (text, ended) = call(folder.path(), &[]);
    let error = ended.expect_err("it differs");
    assert_eq!(
        error.to_string(),
        "2 of 12 recorded passes come out otherwise"
    );
    let first = "\npass 7, at 1790000030000 ms, app hello, group new-york:\n  recorded us-east (";
    assert!(
        text.contains("24 decisions: 2 passes decided otherwise\n"),
        "{text}"
    );
    assert!(text.contains(first), "{text}");
    assert!(text.contains("pass 10, at"), "{text}");
    assert!(text.contains("  recorded us-east (put off, "), "{text}");
    let got = json(folder.path(), &[]);
    assert_eq!(got["differences"][0]["pass"], 7);
    assert_eq!(got["differences"].as_array().map(Vec::len), Some(2));
}

#[test]
fn damaged_and_torn_records_are_named_and_the_others_replayed() {
    let mut members = members(|_, _| {});
    let (before, length) = (members[0].len() + members[1].len(), members[2].len());
    // Data of the third, and the end of the last.
    members[2][length / 2] ^= 0xff;
    let torn = members[11].len() - 3;
    members[11].truncate(torn);
    let folder = folder(&members);
    let (text, ended) = call(folder.path(), &["--policy", "nearest"]);
    ended.expect("the others are the same");
    assert!(
        text.starts_with("10 passes over 50.0 s in 2 segments, 20 decisions: all the same"),
        "{text}"
    );
    assert!(text.contains("\n2 places were skipped:\n"), "{text}");
    let third = format!(
        "  plans-000000000001.gz, bytes {before} to {}: ",
        before + length
    );
    assert!(text.contains(&third), "{text}");
    assert!(text.contains(": is torn off\n"), "{text}");
    let got = json(folder.path(), &[]);
    assert_eq!(got["damaged"][0]["from"], before as u64);
}

#[test]
fn a_folder_without_records_is_said_to_be_one() {
    let empty = tempfile::tempdir().expect("a folder");
    let error = call(empty.path(), &[]).1.expect_err("nothing there");
    assert!(error.to_string().contains("no file ends in .gz"), "{error}");
    std::fs::write(empty.path().join("plans-1.gz"), b"nothing of ours").expect("written");
    let error = call(empty.path(), &[]).1.expect_err("nothing there");
    assert!(
        error.to_string().contains("no record can be read"),
        "{error}"
    );
    let missing = empty.path().join("missing");
    assert!(matches!(call(&missing, &[]).1, Err(Error::Read { .. })));
}
