//! `fdn sim paper` as a whole.

use std::collections::BTreeSet;

use clap::Parser;
use fdn_sim::command::Command;
use fdn_sim::paper::ALL;
use fdn_sim::progress::Silent;

#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[test]
fn every_experiment_has_a_name_of_its_own_that_can_be_a_file() {
    let names: BTreeSet<&str> = ALL.iter().map(|experiment| experiment.name()).collect();
    assert_eq!(names.len(), ALL.len());
    let plain = |name: &&str| {
        name.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    assert!(names.iter().all(plain), "{names:?}");
}

#[test]
fn an_experiment_is_told_in_words_and_files() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let out = folder.path().display().to_string();
    let line = ["fdn", "paper", "--quick", "--only", "e1", "--out", &out];
    let cli = Cli::try_parse_from(line).expect("known arguments");
    let mut text = Vec::new();
    fdn_sim::command::run(&cli.command, &mut text, &Silent).expect("it runs");
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.starts_with("== e1: ") && text.contains("Gates"),
        "{text}"
    );
    for file in ["e1.json", "e1.md"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}

mod soak {
    use fdn_sim::paper::{Context, Effort, Experiment};

    use super::*;
    use crate::data::traces;

    /// All experiments in their small form, as one text.
    fn quick(threads: usize) -> String {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .expect("a pool");
        let data = traces();
        let context = Context {
            data: data.as_deref(),
            effort: Effort::Quick,
            progress: &Silent,
        };
        let run = |experiment: &&dyn Experiment| {
            let outcome = pool.install(|| experiment.run(&context)).expect("runs");
            assert!(
                !outcome.tables.is_empty(),
                "{} says nothing",
                experiment.name()
            );
            for plot in &outcome.plots {
                assert!(
                    plot.svg().expect("drawn").ends_with("</svg>\n"),
                    "{}",
                    plot.name
                );
            }
            format!(
                "{} {}\n",
                experiment.name(),
                serde_json::to_string(&outcome).expect("JSON")
            )
        };
        ALL.iter()
            .filter(|experiment| data.is_some() || !experiment.needs_data())
            .map(run)
            .collect()
    }

    #[test]
    fn every_experiment_gives_the_same_bytes_whatever_the_number_of_threads() {
        let (one, three) = (quick(1), quick(3));
        for (one, three) in one.lines().zip(three.lines()) {
            assert_eq!(one, three);
        }
        assert_eq!(one.len(), three.len());
    }
}
