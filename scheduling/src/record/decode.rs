//! Decodes a pass. The bytes may come from anywhere, so everything is validated.

use std::num::NonZeroU32;

use fdn_core::manifest::RuntimeKind;
use fdn_core::{ByteSize, Timestamp};

use super::bytes::Reader;
use super::{ClusterLoad, Decisions, Entry, MARK, Malformed, RecordedPass, VERSION, View};
use crate::compete::{Moves, Outcome, Rate, Terms, Verdict};
use crate::dag::{Dag, DagBuilder, Holding, TaskIndex, Transfer};
use crate::place::{
    Availability, Cluster, ClusterIndex, Constraints, Exclusion, Hold, Memory, Network, Options,
    Score, Slots, Speed,
};
use crate::steer::Margin;

pub(super) fn decode(bytes: &[u8]) -> Result<RecordedPass, Malformed> {
    let mut from = Reader(bytes);
    if from.take(MARK.len()).map_err(|_| Malformed::Mark)? != MARK {
        return Err(Malformed::Mark);
    }
    let version = from.whole()?;
    if version != VERSION {
        return Err(Malformed::Version(version));
    }
    let at = Timestamp(from.whole()?);
    let moves = moves(&mut from)?;
    let terms = terms(&mut from)?;
    let clusters = from.list(cluster)?;
    let network = network(&mut from, clusters.len())?;
    let apps = from.list(|from| Ok(from.text()?.to_owned()))?;
    let dags = from.list(dag)?;
    let views = from.list(|from| {
        Ok(View {
            name: from.text()?.to_owned(),
            distance: from.list(Reader::millis)?,
        })
    })?;
    let constraints = from.list(|from| constraints(from, clusters.len()))?;
    let factors = from.list(|from| from.list(Reader::number))?;
    let there = There {
        apps: apps.len(),
        parts: [dags.len(), views.len(), constraints.len(), factors.len()],
        clusters: clusters.len(),
    };
    let settled = from.list(|from| entry(from, &there))?;
    let demands = from.list(|from| entry(from, &there))?;
    let decisions = decisions(&mut from, &there)?;
    if !from.0.is_empty() {
        return Err(Malformed::Long);
    }
    if decisions.outcomes.len() != demands.len() {
        return Err(Malformed::Nonsense("a number of decisions"));
    }
    // Tables are sized by the workflow of an app's first demand, so all demands of an app must have the same.
    let mut runs = vec![None; apps.len()];
    for entry in settled.iter().chain(&demands) {
        if *runs[entry.app].get_or_insert(entry.dag) != entry.dag {
            return Err(Malformed::Nonsense("two workflows of one app"));
        }
    }
    Ok(RecordedPass {
        at,
        moves,
        terms,
        clusters,
        network,
        apps,
        dags,
        views,
        constraints,
        factors,
        settled,
        demands,
        decisions,
    })
}

/// The number of entries of each table that demands refer to.
struct There {
    apps: usize,
    parts: [usize; 4],
    clusters: usize,
}

fn moves(from: &mut Reader<'_>) -> Result<Moves, Malformed> {
    Ok(Moves::from_numbers([
        from.number()?,
        from.number()?,
        from.number()?,
    ]))
}

fn terms(from: &mut Reader<'_>) -> Result<Terms, Malformed> {
    Ok(Terms {
        margin: Margin::new(from.number()?).ok_or(Malformed::Nonsense("a margin"))?,
        horizon: from.millis()?,
        options: Options {
            exit_leg: from.flag()?,
            hold: if from.flag()? { Hold::Task } else { Hold::Job },
            score: if from.flag()? {
                Score::Inverse
            } else {
                Score::Normal
            },
        },
    })
}

fn cluster(from: &mut Reader<'_>) -> Result<Cluster, Malformed> {
    let id = from.text()?;
    let id = id
        .parse()
        .map_err(|_| Malformed::Nonsense("a cluster's name"))?;
    Ok(Cluster {
        id,
        speed: Speed::new(from.number()?),
        slots: from.list(Reader::millis)?.into_iter().collect::<Slots>(),
        free: from.resources()?,
        largest: from.resources()?,
        capacity: from.resources()?,
        roomiest: from.resources()?,
        availability: match from.byte()? {
            0 => Availability::Up,
            1 => Availability::Draining,
            2 => Availability::Down,
            _ => return Err(Malformed::Nonsense("an availability")),
        },
    })
}

fn network(from: &mut Reader<'_>, clusters: usize) -> Result<Network, Malformed> {
    let (mut latency, mut ms_per_byte) = (Vec::new(), Vec::new());
    for _ in 0..clusters {
        for row in [&mut latency, &mut ms_per_byte] {
            for _ in 0..clusters {
                let number = from.number()?;
                if number.is_nan() || number < 0.0 {
                    return Err(Malformed::Nonsense("a link"));
                }
                row.push(number);
            }
        }
    }
    Ok(Network::from_numbers(clusters, latency, ms_per_byte))
}

fn dag(from: &mut Reader<'_>) -> Result<Dag, Malformed> {
    let mut builder = DagBuilder::new();
    let tasks = from.count()?;
    for _ in 0..tasks {
        let (name, work, demand) = (from.text()?, from.millis()?, from.resources()?);
        let task = builder.task(name, work, demand);
        let seats = u32::try_from(from.whole()?).map_err(|_| Malformed::Nonsense("seats"))?;
        let holding = NonZeroU32::new(seats).map_or(Holding::Calls, Holding::Instances);
        let ratio = from.number()?;
        builder.holding(task, holding).mean_ratio(task, ratio);
    }
    for _ in 0..from.count()? {
        let (parent, child) = (from.index(tasks)?, from.index(tasks)?);
        let transfer = match from.byte()? {
            0 => Transfer::Data(ByteSize::from_bytes(from.whole()?)),
            1 => Transfer::Fixed(from.millis()?),
            _ => return Err(Malformed::Nonsense("a transfer")),
        };
        builder.edge(TaskIndex::new(parent), TaskIndex::new(child), transfer);
    }
    builder
        .build()
        .map_err(|_| Malformed::Nonsense("a workflow"))
}

fn constraints(from: &mut Reader<'_>, clusters: usize) -> Result<Constraints, Malformed> {
    let tasks = from.count()?;
    let (mut cells, mut shares) = (Vec::new(), Vec::new());
    for _ in 0..tasks {
        for _ in 0..clusters {
            cells.push(if from.flag()? {
                Some(exclusion(from)?)
            } else {
                None
            });
            shares.push(if from.flag()? { from.number()? } else { 1.0 });
        }
    }
    let constraints =
        Constraints::from_fn((tasks, clusters), |task, at| cells[task * clusters + at]);
    Ok(constraints.with_shares(|task, at| shares[task * clusters + at]))
}

fn exclusion(from: &mut Reader<'_>) -> Result<Exclusion, Malformed> {
    Ok(match from.byte()? {
        0 => Exclusion::Down,
        1 => Exclusion::Draining,
        2 => Exclusion::Gone,
        3 => Exclusion::NoRuntime {
            kind: if from.flag()? {
                RuntimeKind::Docker
            } else {
                RuntimeKind::Wasm
            },
        },
        4 => Exclusion::NotReady,
        5 => Exclusion::CannotServe,
        6 => Exclusion::NoSlots,
        7 => Exclusion::OutOfReach,
        8 => Exclusion::TooSlow,
        9 => Exclusion::Shortage {
            wanted: from.resources()?,
            free: from.resources()?,
        },
        10 => Exclusion::Crowded {
            wanted: from.resources()?,
            left: from.resources()?,
        },
        11 => Exclusion::NeverFinishes,
        12 => Exclusion::NotSearched {
            tasks: usize::try_from(from.whole()?).unwrap_or(usize::MAX),
        },
        _ => return Err(Malformed::Nonsense("a reason")),
    })
}

fn entry(from: &mut Reader<'_>, there: &There) -> Result<Entry, Malformed> {
    let app = from.index(there.apps)?;
    let rate = Rate::per_second(from.number()?);
    let dwells = from.flag()?;
    let mut parts = [None; 4];
    for (part, there) in parts.iter_mut().zip(there.parts) {
        *part = from.index(there + 1)?.checked_sub(1);
    }
    let [Some(dag), Some(view), constraints, factors] = parts else {
        return Err(Malformed::Nonsense("an offer"));
    };
    let before = if from.flag()? {
        Some(places(from, there.clusters)?)
    } else {
        None
    };
    Ok(Entry {
        app,
        dag,
        view,
        rate,
        before,
        constraints,
        factors,
        dwells,
    })
}

fn places(from: &mut Reader<'_>, clusters: usize) -> Result<Vec<ClusterIndex>, Malformed> {
    from.list(|from| {
        let index = from.index(clusters + 1)?.checked_sub(1);
        Ok(ClusterIndex::new(index.unwrap_or(usize::MAX)))
    })
}

fn outcome(from: &mut Reader<'_>, clusters: usize) -> Result<Outcome, Malformed> {
    Ok(Outcome {
        verdict: match from.byte()? {
            0 => Verdict::First,
            1 => Verdict::StillBest,
            2 => Verdict::WithinMargin,
            3 => Verdict::Better,
            4 => Verdict::Deferred,
            5 => Verdict::Unplaced,
            6 => Verdict::Failed(exclusion(from)?),
            _ => return Err(Malformed::Nonsense("a verdict")),
        },
        clusters: places(from, clusters)?,
        latency: from.millis()?,
    })
}

fn decisions(from: &mut Reader<'_>, there: &There) -> Result<Decisions, Malformed> {
    Ok(Decisions {
        outcomes: from.list(|from| outcome(from, there.clusters))?,
        loads: from.list(|from| {
            Ok(ClusterLoad {
                erlangs: from.number()?,
                runs: from.number()?,
                memory: Memory {
                    main: from.number()?,
                    gpu: from.number()?,
                },
            })
        })?,
        moves: moves(from)?,
    })
}
