//! What the network does when a cluster changes under load: how long until its clients are sent elsewhere, how many, whether they go to and fro, and whether they
//! would have been better off where they were. The same calls are made twice: where the network sends them, and where it sent them before the change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use tokio::time::sleep;

use super::figures::{Call, Figures, ms};
use super::site::SITES;
use super::steer::{Rule, Steer};
use super::{ResponseOptions, Stage, block_on};
use crate::Options;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Change {
    /// Calls take ten times as long in a cluster.
    Slow,
    /// A cluster loses half of its nodes.
    Half,
}

/// To which cluster: the largest, which most clients are nearest to.
const SITE: usize = 0;
/// The node that it loses.
const NODE: (usize, usize) = (SITE, 1);
/// In hundredths of the capacity; what is left of it must be able to do all.
const LOAD: u32 = 60;
/// How long all is well, how long it is not, and how long it is again.
const BEFORE: Duration = Duration::from_secs(20);
const CHANGED: Duration = Duration::from_secs(90);
const AFTER: Duration = Duration::from_secs(90);
/// In which both ways are compared: as often as plans are made anew at least (`planner.interval`).
const INTERVAL: Duration = Duration::from_secs(5);
/// Of less than this share nobody is worse off: calls of the same kind differ by more from run to run.
const NOISE: f64 = 0.1;

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "reaction: {} at {LOAD} % of all clusters' capacity changes for {CHANGED:?}, and is as before for {AFTER:?}; times from the question to DNS until the last byte",
        SITES[SITE].name
    );
    block_on(measure(options))
}

async fn measure(options: &Options) -> Result<()> {
    let mut stage = Stage::set(options).await?;
    let mut changes = options.response.changes.clone();
    if changes.is_empty() {
        changes = Change::value_variants().to_vec();
    }
    let mut all = Vec::new();
    for change in changes {
        let seen = of_change(&mut stage, &options.response, change).await?;
        seen.print();
        all.push(seen);
    }
    if let Some(file) = &options.json {
        std::fs::write(file, serde_json::to_vec_pretty(&all)?)
            .with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// What came of a change.
#[derive(Debug, Serialize)]
struct Seen {
    change: Change,
    /// When it changed, and when it was as before again.
    moves: [Moves; 2],
    intervals: Vec<Interval>,
    /// Intervals one after another in which users were worse off than if all had stayed where it was.
    worse: usize,
}

/// How clients were sent elsewhere after something had happened. Times in seconds from then on.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Moves {
    /// Until the first were sent elsewhere.
    first: Option<f64>,
    /// Until nine tenths of all were that are elsewhere in the end.
    most: Option<f64>,
    /// Of all calls, the hundredths that are elsewhere in the end.
    moved: f64,
    /// How often clients of an app at a place were sent elsewhere.
    times: usize,
    /// Of these, how often to where they had been since then.
    back: usize,
}

/// Users in one interval.
#[derive(Debug, Serialize)]
struct Interval {
    /// When it began, in seconds.
    from: f64,
    ours: Figures,
    kept: Figures,
    /// What all calls took together, those that failed included, as a share of what they take where they were.
    ratio: f64,
}

async fn of_change(stage: &mut Stage, options: &ResponseOptions, change: Change) -> Result<Seen> {
    let span = BEFORE + CHANGED + AFTER;
    let busy = stage.busy(LOAD);
    let pace = stage.trace.pace(busy, span);
    let arrivals = stage.trace.cut(0.0, span, pace);
    let learn = Duration::from_secs(options.learn);
    let before = stage.trace.cut(ms(span) * pace, learn, pace);
    let rule = || Steer::new(Rule::Answer);
    stage.fleet.all_ready().await?;
    stage.users.play(&before, &rule()?).await?;
    let mut runs = Vec::new();
    for kept in [false, true] {
        let steer = if kept {
            let first: &Vec<Call> = runs.first().context("the network goes first")?;
            Steer::new(Rule::Kept(places(first, BEFORE)))?
        } else {
            rule()?
        };
        let users = Arc::clone(&stage.users);
        let (made, ()) = tokio::try_join!(users.play(&arrivals, &steer), happen(stage, change))?;
        stage.fleet.all_ready().await?;
        runs.push(made);
    }
    let [ours, kept] = &mut runs[..] else {
        anyhow::bail!("two runs");
    };
    ours.sort_by_key(|call| call.at);
    let changed = BEFORE + CHANGED;
    let intervals = intervals(ours, kept, span);
    Ok(Seen {
        change,
        moves: [
            moves(ours, BEFORE, changed),
            moves(ours, changed, BEFORE + CHANGED + AFTER),
        ],
        worse: longest_worse(&intervals),
        intervals,
    })
}

/// Lets it happen and end, each in its time.
async fn happen(stage: &mut Stage, change: Change) -> Result<()> {
    sleep(BEFORE).await;
    match change {
        Change::Slow => stage.users.slow(SITE, 10.0),
        Change::Half => {
            stage.users.gone(NODE, true);
            stage.fleet.kill(NODE);
        }
    }
    sleep(CHANGED).await;
    match change {
        Change::Slow => stage.users.slow(SITE, 1.0),
        Change::Half => {
            stage.fleet.revive(NODE)?;
            let begin = std::time::Instant::now();
            while let Err(error) = stage.fleet.serves(NODE).await {
                ensure!(
                    begin.elapsed() < AFTER,
                    "the node does not return: {error:#}"
                );
                sleep(Duration::from_millis(100)).await;
            }
            stage.users.gone(NODE, false);
        }
    }
    Ok(())
}

/// Where clients of each app and place were sent last before a time. Calls are in any order.
fn places(calls: &[Call], before: Duration) -> BTreeMap<(usize, usize), usize> {
    let mut last: BTreeMap<(usize, usize), (Duration, usize)> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.at < before) {
        let Some(site) = call.site else { continue };
        let known = last
            .entry((call.app, call.place))
            .or_insert((call.at, site));
        if call.at >= known.0 {
            *known = (call.at, site);
        }
    }
    last.into_iter()
        .map(|(who, (_, site))| (who, site))
        .collect()
}

/// How clients were sent elsewhere between two times; calls are in the order of their times.
fn moves(calls: &[Call], from: Duration, until: Duration) -> Moves {
    let begin = places(calls, from);
    let mut now = begin.clone();
    let mut been: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    let mut count: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    let mut last: BTreeMap<(usize, usize), Duration> = BTreeMap::new();
    let mut moves = Moves::default();
    let window = calls.iter().filter(|c| (from..until).contains(&c.at));
    for call in window {
        let who = (call.app, call.place);
        *count.entry(who).or_default() += 1;
        let (Some(site), Some(known)) = (call.site, now.get_mut(&who)) else {
            continue;
        };
        if *known == site {
            continue;
        }
        let been = been.entry(who).or_default();
        been.push(*known);
        moves.times += 1;
        moves.back += usize::from(been.contains(&site));
        moves.first.get_or_insert((call.at - from).as_secs_f64());
        last.insert(who, call.at - from);
        *known = site;
    }
    let elsewhere = now
        .iter()
        .filter(|(who, site)| begin.get(*who) != Some(*site));
    let mut elsewhere: Vec<(Duration, usize)> = elsewhere
        .map(|(who, _)| {
            let calls = count.get(who).copied().unwrap_or(0);
            (last.get(who).copied().unwrap_or_default(), calls)
        })
        .collect();
    elsewhere.sort_unstable();
    let (moved, all) = (
        elsewhere.iter().map(|(_, calls)| calls).sum::<usize>(),
        count.values().sum::<usize>(),
    );
    moves.moved = 100.0 * moved as f64 / all.max(1) as f64;
    let mut so_far = 0;
    moves.most = elsewhere.iter().find_map(|(at, calls)| {
        so_far += calls;
        (so_far * 10 >= moved * 9).then_some(at.as_secs_f64())
    });
    moves
}

/// Both runs, interval by interval.
fn intervals(ours: &[Call], kept: &[Call], span: Duration) -> Vec<Interval> {
    let mut all = Vec::new();
    let mut from = Duration::ZERO;
    while from < span {
        let of = |calls: &[Call]| -> Vec<Call> {
            let within = |call: &&Call| (from..from + INTERVAL).contains(&call.at);
            calls.iter().filter(within).copied().collect()
        };
        let (ours, kept) = (of(ours), of(kept));
        let whole = |calls: &[Call]| calls.iter().map(|call| ms(call.took)).sum::<f64>();
        all.push(Interval {
            from: from.as_secs_f64(),
            ratio: whole(&ours) / whole(&kept).max(f64::MIN_POSITIVE),
            ours: Figures::of(&ours),
            kept: Figures::of(&kept),
        });
        from += INTERVAL;
    }
    all
}

/// The most intervals one after another in which users are worse off by more than noise.
fn longest_worse(intervals: &[Interval]) -> usize {
    let worse = |one: &Interval| one.ratio > 1.0 + NOISE;
    let runs = intervals.chunk_by(|a, b| worse(a) == worse(b));
    let runs = runs.filter(|run| run.first().is_some_and(worse));
    runs.map(<[Interval]>::len).max().unwrap_or(0)
}

impl Seen {
    fn print(&self) {
        println!();
        println!("{:?}:", self.change);
        let seconds = |time: Option<f64>| time.map_or("never".to_owned(), |s| format!("{s:.1} s"));
        for (what, moves) in ["changed", "as before"].into_iter().zip(&self.moves) {
            println!(
                "  {what:<9} first clients elsewhere after {}, nine tenths of those that move after {}; {:.1} % of all calls move, {} moves of clients of an app at a place, {} of them back",
                seconds(moves.first),
                seconds(moves.most),
                moves.moved,
                moves.times,
                moves.back
            );
        }
        println!(
            "  intervals of {INTERVAL:?} in a row in which calls took more than {:.0} % longer than where they were: {}",
            NOISE * 100.0,
            self.worse
        );
        println!(
            "  {:>7} {:>11} {:>9} {:>7} {:>11} {:>9} {:>7} {:>7}",
            "from s", "ours ms", "p99 ms", "failed", "kept ms", "p99 ms", "failed", "ratio"
        );
        for one in &self.intervals {
            println!(
                "  {:>7.0} {:>11.1} {:>9.1} {:>7} {:>11.1} {:>9.1} {:>7} {:>7.2}",
                one.from,
                one.ours.mean,
                one.ours.p99,
                one.ours.failed,
                one.kept.mean,
                one.kept.p99,
                one.kept.failed,
                one.ratio
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::figures::Ended;

    fn call(at: u64, place: usize, site: usize, took: u64) -> Call {
        Call {
            at: Duration::from_secs(at),
            app: 0,
            place,
            site: Some(site),
            asked: Duration::ZERO,
            took: Duration::from_millis(took),
            ended: Ended::Answered,
        }
    }

    #[test]
    fn moves_are_seen_with_their_times_and_weights() {
        let mut calls = Vec::new();
        for at in 0..40 {
            // The first place moves at 14 for good, the second at 12 and back at 20, the third stays.
            calls.push(call(at, 0, usize::from(at >= 14), 1));
            calls.push(call(at, 0, usize::from(at >= 14), 1));
            calls.push(call(at, 1, usize::from((12..20).contains(&at)), 1));
            calls.push(call(at, 2, 2, 1));
        }
        let second = Duration::from_secs;
        let seen = moves(&calls, second(10), second(40));
        let expected = Moves {
            first: Some(2.0),
            most: Some(4.0),
            moved: 50.0,
            times: 3,
            back: 1,
        };
        assert_eq!(seen, expected);
        let none = moves(&calls, second(21), second(40));
        assert_eq!(none, Moves::default());
        assert_eq!(
            places(&calls, second(15)),
            BTreeMap::from([((0, 0), 1), ((0, 1), 1), ((0, 2), 2)])
        );
    }

    #[test]
    fn being_worse_off_for_a_time_is_counted_in_intervals() {
        let kept: Vec<Call> = (0..40).map(|at| call(at, 0, 0, 100)).collect();
        let slow = |at: u64| (5..10).contains(&at) || (20..30).contains(&at);
        let ours: Vec<Call> = (0..40)
            .map(|at| call(at, 0, 0, if slow(at) { 120 } else { 105 }))
            .collect();
        let seen = intervals(&ours, &kept, Duration::from_secs(40));
        let ratios: Vec<u32> = seen
            .iter()
            .map(|i| (i.ratio * 100.0).round() as u32)
            .collect();
        assert_eq!(ratios, [105, 120, 105, 105, 120, 120, 105, 105]);
        assert_eq!(longest_worse(&seen), 2);
        assert_eq!(longest_worse(&[]), 0);
    }
}
