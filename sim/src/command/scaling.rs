//! `fdn sim scaling`: a cluster of nodes on which instances are started.

use std::io::Write;

use clap::ValueEnum;
use fdn_core::Millis;
use fdn_scheduling::instance::Spread;

use super::{Format, print, print_json};
use crate::Error;
use crate::progress::Progress;
use crate::report::{Cell, Table};
use crate::scaling::{Outcome, Scheduler, Setup, simulate};
use crate::seed::Seed;

/// Which node a hint names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HintSpread {
    /// The one with the most room of a random sample
    Best,
    /// One of a random sample, so that all are filled to one level
    Even,
    /// That of a free slot dealt to the sender alone
    Dealt,
}

impl From<HintSpread> for Spread {
    fn from(spread: HintSpread) -> Self {
        match spread {
            HintSpread::Best => Self::Best,
            HintSpread::Even => Self::Even,
            HintSpread::Dealt => Self::Dealt,
        }
    }
}

/// Arguments of `fdn sim scaling`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 500)]
    nodes: u32,
    /// Share of all slots that is busy in the mean; the running time of instances follows from it
    #[arg(long, value_name = "U", default_value_t = 0.95)]
    utilization: f64,
    /// Tasks per second
    #[arg(long, value_name = "R", default_value_t = 100_000.0)]
    rate: f64,
    /// Number of tasks; the first fifth is warm-up and not counted
    #[arg(long, value_name = "T", default_value_t = 300_000)]
    tasks: u64,
    /// Who decides where instances start
    #[arg(
        long,
        value_name = "S",
        value_enum,
        default_value = "local-probe-global"
    )]
    scheduler: Scheduler,
    /// How long a message is under way, one way, in microseconds
    #[arg(long, value_name = "D", default_value_t = 250.0)]
    delay_us: f64,
    /// Slots per node
    #[arg(long, value_name = "N", default_value_t = 20)]
    slots: u32,
    /// Number of pre-schedulers, each on a copy of the nodes (optimistic)
    #[arg(long, value_name = "K", default_value_t = 64)]
    pre_schedulers: u32,
    /// How long a pre-scheduler works on a task, in microseconds (optimistic)
    #[arg(long, value_name = "US", default_value_t = 2000.0)]
    scoring_us: f64,
    /// How long the committer works on a list, in microseconds; a quarter more for each changed entry (optimistic)
    #[arg(long, value_name = "US", default_value_t = 20.0)]
    list_us: f64,
    /// Largest age of the snapshots that hints go by, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5.0)]
    snapshot_ms: f64,
    /// Of how many random nodes a hint names one
    #[arg(long, value_name = "N", default_value_t = 8)]
    hint_sample: u32,
    /// Which node a hint names
    #[arg(long, value_name = "H", value_enum, default_value = "dealt")]
    hint_spread: HintSpread,
    /// How long a node gathers changes before it tells the global scheduler, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1.0)]
    notice_ms: f64,
    /// Probability that a message is lost
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    loss: f64,
    /// Probability that a message arrives twice
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    duplicate: f64,
    /// Number of nodes that are lost during the run
    #[arg(long, value_name = "N", default_value_t = 0)]
    lost_nodes: u32,
    /// How often the global scheduler is lost and another one takes over
    #[arg(long, value_name = "N", default_value_t = 0)]
    lost_heads: u32,
    /// Largest p99 at which the rate counts as sustained, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5.0)]
    limit_ms: f64,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

impl Args {
    fn setup(&self) -> Setup {
        Setup {
            scheduler: self.scheduler,
            nodes: self.nodes,
            slots: self.slots,
            utilization: self.utilization,
            rate_per_s: self.rate,
            tasks: self.tasks,
            delay: Millis::new(self.delay_us / 1e3),
            pre_schedulers: self.pre_schedulers,
            scoring: Millis::new(self.scoring_us / 1e3),
            list_cost: Millis::new(self.list_us / 1e3),
            changed_cost: Millis::new(self.list_us / 4e3),
            snapshot_age: Millis::new(self.snapshot_ms),
            hint_sample: self.hint_sample,
            hint_spread: self.hint_spread.into(),
            notice_every: Millis::new(self.notice_ms),
            loss: self.loss,
            duplicate: self.duplicate,
            lost_nodes: self.lost_nodes,
            lost_heads: self.lost_heads,
            limit: Millis::new(self.limit_ms),
            seed: Seed(self.seed),
            ..Setup::default()
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write, _: &dyn Progress) -> Result<(), Error> {
    let outcome = simulate(&args.setup())?;
    match args.output {
        Format::Json => print_json(out, &outcome),
        Format::Table => print(out, &table(&outcome).text()),
    }
}

fn table(outcome: &Outcome) -> Table {
    let mut table = Table::new(
        format!(
            "{} nodes of {} slots, {} tasks/s at utilization {}",
            outcome.nodes, outcome.slots, outcome.rate_per_s, outcome.utilization
        ),
        &["figure", "value"],
    );
    let mut row = |name: &str, value: f64, digits| {
        table.row([Cell::from(name), Cell::Number(value, digits)]);
    };
    let count = |value: u64| value as f64;
    row("latency mean ms", outcome.latency.mean_ms, 3);
    row("latency p50 ms", outcome.latency.p50_ms, 3);
    row("latency p99 ms", outcome.latency.p99_ms, 3);
    row("latency max ms", outcome.latency.max_ms, 3);
    row("found no room on arrival", outcome.local_failed, 4);
    row("reached the global scheduler", outcome.reached_global, 4);
    row("messages per task", outcome.messages_per_task, 3);
    row("started where it arrived", count(outcome.stages.local), 0);
    row("started by probe", count(outcome.stages.probe), 0);
    row("started by hint", count(outcome.stages.hint), 0);
    row(
        "started by the global scheduler",
        count(outcome.stages.global),
        0,
    );
    row("started by the committer", count(outcome.stages.commit), 0);
    row("utilization measured", outcome.utilization_measured, 4);
    row("placed", count(outcome.placed), 0);
    row("refused", count(outcome.refused), 0);
    row("waiting", count(outcome.waiting), 0);
    let sustained = if outcome.sustained { "yes" } else { "no" };
    table.row([Cell::from("sustained"), Cell::from(sustained)]);
    table
}
