//! Autoscaler and keep-alive policy on the same containers: what each does alone, and what they do together.

use fdn_core::Millis;
use rayon::prelude::*;

use super::azure::{SPAN, Setting};
use super::{Context, Effort};
use crate::Error;
use crate::autoscale::TICK;
use crate::invocations::{
    KeepAliveName, Policy, PolicyName, Scaled, Scaling, Workload, simulate_scaled,
};
use crate::report::{Bound, Cell, Gate, Table};

const KEEP_ALIVES: [KeepAliveName; 4] = [
    KeepAliveName::Fixed,
    KeepAliveName::Lru,
    KeepAliveName::Gdsf,
    KeepAliveName::Hist,
];

/// Where memory is full, every start evicts something, and one container more or less changes all that follows: what that may add.
const CHANCE: f64 = 1.03;

/// Who decides on a function's containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Who {
    keep_alive: Option<KeepAliveName>,
    scaler: bool,
}

/// Tables and gates of all traces.
pub(super) fn run(
    context: &Context<'_>,
    settings: fdn_scheduling::scale::Settings,
) -> Result<(Vec<Table>, Vec<Gate>), Error> {
    let traces: &[&'static str] = match context.effort {
        Effort::Quick => &["rare"],
        Effort::Full => &["representative", "random", "rare"],
    };
    let (mut tables, mut gates) = (Vec::new(), Vec::new());
    for &trace in traces {
        let setting = Setting {
            trace,
            memory: 16 * 1024,
            scale: 0.7,
        };
        let workload = setting.read(context)?;
        let all = everyone();
        let part = context.progress.begin(trace, all.len() as u64);
        let play = |who: &Who| {
            let scaled = play(&setting, &workload, *who, settings);
            part.advance(1);
            scaled
        };
        let runs: Vec<Scaled> = all.par_iter().map(play).collect::<Result<_, Error>>()?;
        let runs: Vec<(Who, Scaled)> = all.into_iter().zip(runs).collect();
        tables.push(table(&setting, &workload, &runs));
        gates.extend(together(trace, &runs));
    }
    Ok((tables, gates))
}

fn everyone() -> Vec<Who> {
    let alone = Who {
        keep_alive: None,
        scaler: true,
    };
    let of = |keep_alive| {
        [false, true].map(|scaler| Who {
            keep_alive: Some(keep_alive),
            scaler,
        })
    };
    std::iter::once(alone)
        .chain(KEEP_ALIVES.into_iter().flat_map(of))
        .collect()
}

fn play(
    setting: &Setting,
    workload: &Workload,
    who: Who,
    settings: fdn_scheduling::scale::Settings,
) -> Result<Scaled, Error> {
    let keep_alive = who.keep_alive.unwrap_or(KeepAliveName::Fixed);
    let mut policy = Policy::new(PolicyName::QueueOrCold, keep_alive);
    if who.keep_alive.is_none() {
        // Nothing is kept but what the scaler wants.
        policy.keep = Millis::ZERO;
    }
    let scaling = who.scaler.then_some(Scaling {
        settings,
        tick: TICK,
    });
    simulate_scaled(workload, setting.machines(), SPAN, &policy, scaling)
}

/// From arrival to end but for the execution itself, mean in ms.
fn waiting(scaled: &Scaled) -> f64 {
    scaled.run.queueing_ms.mean + scaled.run.loading_mean_ms
}

fn table(setting: &Setting, workload: &Workload, runs: &[(Who, Scaled)]) -> Table {
    let columns = [
        "keep-alive",
        "autoscaler",
        "cold share",
        "mean wait ms",
        "p99 completion ms",
        "instance-seconds",
        "busy share",
        "loaded ahead",
        "evicted",
        "flaps",
    ];
    let title = format!(
        "keep-alive and autoscaler, {}: {} requests on 8 workers of 16 GiB",
        setting.name(),
        workload.invocations.len(),
    );
    let mut table = Table::new(title, &columns);
    let work = workload.invocations.iter().map(|i| i.execution.get());
    let work: f64 = work.sum();
    for (who, scaled) in runs {
        let run = &scaled.run;
        table.row([
            Cell::from(who.keep_alive.map_or("none", KeepAliveName::as_str)),
            Cell::from(if who.scaler { "on" } else { "off" }),
            Cell::Number(run.cold_share, 4),
            Cell::Number(waiting(scaled), 1),
            Cell::Number(run.completion_ms.p99, 0),
            Cell::Number(scaled.alive_ms / 1e3, 0),
            Cell::Number(work / scaled.alive_ms, 3),
            Cell::Number(run.prewarmed as f64, 0),
            Cell::Number(run.evicted as f64, 0),
            Cell::Number(scaled.flaps as f64, 0),
        ]);
    }
    table
}

fn together(trace: &str, runs: &[(Who, Scaled)]) -> Vec<Gate> {
    let of = |keep_alive, scaler| {
        let who = Who { keep_alive, scaler };
        runs.iter()
            .find(|(other, _)| *other == who)
            .map(|(_, scaled)| scaled)
    };
    let Some(scaler) = of(None, true) else {
        return Vec::new();
    };
    let pair = |name: KeepAliveName| {
        let (policy, both) = (of(Some(name), false)?, of(Some(name), true)?);
        let gate = |what: &str, measured, most| {
            let what = format!("{trace}, {} with the autoscaler: {what}", name.as_str());
            Gate::new(what, measured, Bound::AtMost(most))
        };
        let cold = both.run.cold_share;
        let (policy_cold, scaler_cold) = (policy.run.cold_share, scaler.run.cold_share);
        Some([
            gate("flaps", both.flaps as f64, 0.0),
            gate(
                "cold share, to the policy alone",
                cold / policy_cold,
                CHANCE,
            ),
            gate(
                "cold share, to the autoscaler alone",
                cold / scaler_cold,
                CHANCE,
            ),
        ])
    };
    KEEP_ALIVES.into_iter().filter_map(pair).flatten().collect()
}
