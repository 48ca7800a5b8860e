//! Beyond the filling: nodes in use all the time, and what scales further.

use fdn_scheduling::commit::{Choice, NodeSelection, Ties};

use super::{ADVISED, setup};
use crate::Error;
use crate::optimistic::{Load, Setup, Way, means, serial_means};
use crate::paper::{Context, Effort};
use crate::report::{Cell, Table};

/// Nodes in use all the time, containers coming and going.
pub(super) fn steady(context: &Context<'_>) -> Result<Table, Error> {
    let (seeds, lists, at): (u64, u32, &[u32]) = match context.effort {
        Effort::Quick => (1, 2000, &[16]),
        Effort::Full => (3, 20_000, &[1, 16, 32, 128]),
    };
    let mut table = Table::new(
        "Under a steady load (80 % in use, containers end), with the bound",
        &[
            "way",
            "K",
            "placed_per_s",
            "first changed",
            "failed",
            "spread / serial",
        ],
    );
    let loaded = |setup: Setup| Setup {
        load: Load::Steady,
        utilization: 0.8,
        lists,
        ..setup
    };
    let setups: Vec<(Way, Setup)> = [Way::BestRandom, Way::SampleRandom]
        .into_iter()
        .flat_map(|way| {
            at.iter()
                .map(move |&k| (way, loaded(setup(context.effort, way, k, true))))
        })
        .collect();
    let only: Vec<Setup> = setups.iter().map(|(_, setup)| *setup).collect();
    let part = context
        .progress
        .begin("e4: steady", (only.len() as u64 + 1) * seeds);
    let runs = means(&only, seeds, part.as_ref())?;
    let serial = serial_means(
        &[loaded(setup(context.effort, Way::Best, 1, false))],
        seeds,
        part.as_ref(),
    )?[0];
    for ((way, setup), run) in setups.iter().zip(&runs) {
        table.row([
            way.name().into(),
            Cell::from(setup.pre_schedulers as usize),
            Cell::Number(run.placed_per_s, 0),
            Cell::Number(run.top_changed, 2),
            Cell::Number(run.failed, 4),
            Cell::Number(run.spread / serial.spread, 3),
        ]);
    }
    Ok(table)
}

/// What else could be done at many pre-schedulers: other samples, lists, windows, and parts of the nodes.
pub(super) fn further(context: &Context<'_>) -> Result<Table, Error> {
    const K: u32 = 128;
    let (seeds, rows) = match context.effort {
        Effort::Quick => (1, 2),
        Effort::Full => (5, usize::MAX),
    };
    let base = setup(context.effort, ADVISED, K, true);
    let with = |selection, length, in_flight_max| Setup {
        choice: Choice {
            selection,
            length,
            ties: Ties::Random,
        },
        in_flight_max: Some(in_flight_max),
        ..base
    };
    let part = NodeSelection::Part { index: 0, of: K };
    let variants = [
        ("sample of 50, lists of 5, 44 in flight", base),
        ("own part of the nodes", with(part, 5, 44)),
        (
            "dealt to 44",
            with(NodeSelection::Dealt { hands: 44 }, 5, 44),
        ),
        (
            "dealt to 66, 60 in flight",
            with(NodeSelection::Dealt { hands: 66 }, 5, 60),
        ),
        (
            "dealt to 88, 80 in flight",
            with(NodeSelection::Dealt { hands: 88 }, 5, 80),
        ),
        (
            "dealt to 88, lists of 2, 80 in flight",
            with(NodeSelection::Dealt { hands: 88 }, 2, 80),
        ),
        (
            "dealt to 110, 100 in flight",
            with(NodeSelection::Dealt { hands: 110 }, 5, 100),
        ),
        (
            "sample of 10, 100 in flight",
            with(NodeSelection::Sample(10), 5, 100),
        ),
        ("own part, 100 in flight", with(part, 5, 100)),
        (
            "sample of 10, 80 in flight",
            with(NodeSelection::Sample(10), 5, 80),
        ),
        ("sample of 2", with(NodeSelection::Sample(2), 2, 44)),
        ("sample of 10", with(NodeSelection::Sample(10), 5, 44)),
        ("sample of 25", with(NodeSelection::Sample(25), 5, 44)),
        ("sample of 100", with(NodeSelection::Sample(100), 5, 44)),
        ("lists of 1", with(NodeSelection::Sample(50), 1, 44)),
        ("lists of 2", with(NodeSelection::Sample(50), 2, 44)),
        ("lists of 8", with(NodeSelection::Sample(50), 8, 44)),
        ("60 in flight", with(NodeSelection::Sample(50), 5, 60)),
        ("80 in flight", with(NodeSelection::Sample(50), 5, 80)),
        (
            "lists of 2, 60 in flight",
            with(NodeSelection::Sample(50), 2, 60),
        ),
        (
            "sample of 10, lists of 2, 80 in flight",
            with(NodeSelection::Sample(10), 2, 80),
        ),
    ];
    let variants = &variants[..rows.min(variants.len())];
    let setups: Vec<Setup> = variants.iter().map(|(_, setup)| *setup).collect();
    let part = context
        .progress
        .begin("e4: further", (setups.len() as u64 + 1) * seeds);
    let runs = means(&setups, seeds, part.as_ref())?;
    let serial = serial_means(&[super::base(context.effort)], seeds, part.as_ref())?[0];
    let mut table = Table::new(
        format!("What scales further: K = {K}, random ties"),
        &[
            "what",
            "placed_per_s",
            "first changed",
            "changed per list",
            "failed",
            "spread / serial",
        ],
    );
    for ((what, _), run) in variants.iter().zip(&runs) {
        table.row([
            Cell::from(*what),
            Cell::Number(run.placed_per_s, 0),
            Cell::Number(run.top_changed, 2),
            Cell::Number(run.changed_entries, 2),
            Cell::Number(run.failed, 4),
            Cell::Number(run.spread / serial.spread, 3),
        ]);
    }
    Ok(table)
}
