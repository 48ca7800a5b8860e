//! Calls as they were recorded: arrivals and run times of a few functions of the Azure trace, stretched or squeezed in time until they ask for so much work.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fdn_sim::input::{DATA_DIRECTORY, data_directory};
use fdn_sim::invocations::{Scale, Workload};

use super::site::PLACES;

/// Functions that are called, each an app.
pub(crate) const APPS: usize = 6;
/// The recording.
const TRACE: &str = "representative";
/// Medians of the functions that are taken, in ms: short enough that a run of a minute has many calls, long enough that places to run them differ.
const MEDIANS: std::ops::RangeInclusive<f64> = 50.0..=700.0;
/// What 99 of 100 of their calls do not exceed, in ms: somebody waits for the answer.
const PATIENT: f64 = 1500.0;
/// The longest call, in ms. A few calls of the trace take a minute and more; one of them would decide a run of a minute.
const LONGEST: f64 = 3000.0;

/// A call that is to be made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Arrival {
    /// When, from the beginning.
    pub(crate) at: Duration,
    /// Of which app.
    pub(crate) app: usize,
    /// Where from.
    pub(crate) place: usize,
    /// How long it runs at speed 1, in ms.
    pub(crate) work: f64,
}

/// A recorded call.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    /// In ms.
    at: f64,
    app: usize,
    place: usize,
    work: f64,
}

/// The recording, which begins anew when it is over.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Name and median of each app, in ms.
    pub(crate) apps: Vec<(String, f64)>,
    calls: Vec<Recorded>,
    /// The work of all calls before each, and of all.
    before: Vec<f64>,
    /// In ms.
    length: f64,
}

impl Trace {
    /// Reads the recording where experiments read it.
    pub(crate) fn read() -> Result<Self> {
        let folder = data_directory().with_context(|| {
            format!("there are no recorded traces: name their folder in {DATA_DIRECTORY}")
        })?;
        let folder = folder.join("azure-functions");
        let trace = folder.join(format!("trace_{TRACE}.csv.gz"));
        Self::of(&folder.join("functions.csv.gz"), &trace)
    }

    fn of(functions: &Path, trace: &Path) -> Result<Self> {
        let workload = Workload::read(functions, trace, Scale::new(1.0)?)?;
        let chosen = chosen(&workload);
        ensure!(!chosen.is_empty(), "{}: no such functions", trace.display());
        let apps = chosen.iter().map(|function| {
            let function = &workload.functions[*function];
            (function.name.clone(), function.durations.at(0.5).get())
        });
        let calls = workload.invocations.iter().zip(0..);
        let calls = calls.filter_map(|(call, number)| {
            Some(Recorded {
                at: call.arrival.get(),
                app: chosen.iter().position(|one| *one == call.function)?,
                place: drawn_place(number),
                work: call.execution.get().min(LONGEST),
            })
        });
        let length = workload.invocations.last().map(|last| last.arrival.get());
        Ok(Self::new(
            apps.collect(),
            calls.collect(),
            length.unwrap_or(0.0) + 1.0,
        ))
    }

    fn new(apps: Vec<(String, f64)>, calls: Vec<Recorded>, length: f64) -> Self {
        let mut sum = 0.0;
        let mut before = vec![0.0];
        before.extend(calls.iter().map(|call| {
            sum += call.work;
            sum
        }));
        Self {
            apps,
            calls,
            before,
            length,
        }
    }

    /// The work of all calls before a time, in ms.
    fn work_until(&self, at: f64) -> f64 {
        let (laps, rest) = ((at / self.length).floor(), at.rem_euclid(self.length));
        let count = self.calls.partition_point(|call| call.at < rest);
        laps * self.before[self.calls.len()] + self.before[count]
    }

    /// How many milliseconds of the recording pass in one, if its first calls are to ask for `busy` slots of speed 1 in the mean over `span`.
    pub(crate) fn pace(&self, busy: f64, span: Duration) -> f64 {
        let span = span.as_secs_f64() * 1000.0;
        let (mut low, mut high) = (0.0, 1.0);
        while self.work_until(high * span) < busy * span && high < 1e6 {
            high *= 2.0;
        }
        for _ in 0..50 {
            let middle = f64::midpoint(low, high);
            if self.work_until(middle * span) < busy * span {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// The calls of a `span` at a pace, from a time of the recording on, in ms.
    pub(crate) fn cut(&self, from: f64, span: Duration, pace: f64) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let (mut lap, rest) = (0.0, from.rem_euclid(self.length));
        let mut next = self.calls.partition_point(|call| call.at < rest);
        loop {
            if next == self.calls.len() {
                (next, lap) = (0, lap + self.length);
            }
            let Some(call) = self.calls.get(next) else {
                return arrivals;
            };
            let after = (call.at + lap - rest) / pace;
            let at = Duration::try_from_secs_f64(after / 1000.0).unwrap_or(Duration::MAX);
            if at >= span {
                return arrivals;
            }
            arrivals.push(Arrival {
                at,
                app: call.app,
                place: call.place,
                work: call.work,
            });
            next += 1;
        }
    }
}

/// The functions of which there are most calls among those that a person waits for; of equally many the first.
fn chosen(workload: &Workload) -> Vec<usize> {
    let mut calls = vec![0_usize; workload.functions.len()];
    for call in &workload.invocations {
        calls[call.function] += 1;
    }
    let usual = |at: &usize| {
        let durations = &workload.functions[*at].durations;
        calls[*at] > 0
            && MEDIANS.contains(&durations.at(0.5).get())
            && durations.at(0.99).get() <= PATIENT
    };
    let mut all: Vec<usize> = (0..calls.len()).filter(usual).collect();
    all.sort_by_key(|at| std::cmp::Reverse(calls[*at]));
    all.truncate(APPS);
    all
}

/// What chance would say of a number, each time alike (SplitMix64).
pub(crate) fn drawn(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Where the call of a number comes from: the recording does not say, so it is drawn by the shares.
fn drawn_place(number: u64) -> usize {
    let whole: u64 = PLACES.iter().map(|place| u64::from(place.share)).sum();
    let mut drawn = drawn(number) % whole;
    for (at, place) in PLACES.iter().enumerate() {
        match drawn.checked_sub(u64::from(place.share)) {
            Some(rest) => drawn = rest,
            None => return at,
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call of 100 ms every 10 ms for a second, then none for a second.
    fn trace() -> Trace {
        let calls = (0..100).map(|n| Recorded {
            at: f64::from(n) * 10.0,
            app: 0,
            place: 0,
            work: 100.0,
        });
        Trace::new(vec![("f".to_owned(), 100.0)], calls.collect(), 2000.0)
    }

    #[test]
    fn a_pace_gives_the_load_that_is_asked_for() {
        let trace = trace();
        for busy in [0.5, 2.0, 5.0, 9.0, 40.0] {
            let span = Duration::from_secs(10);
            let pace = trace.pace(busy, span);
            let work: f64 = trace.cut(0.0, span, pace).iter().map(|a| a.work).sum();
            // As whole calls have it.
            assert!(
                (work / 10_000.0 - busy).abs() <= 0.1,
                "{busy}: {work} at {pace}"
            );
        }
        // Ten slots are busy in the first second, five in the mean.
        assert!((trace.pace(5.0, Duration::from_secs(20)) - 1.0).abs() < 0.1);
    }

    #[test]
    fn times_are_squeezed_and_the_recording_begins_anew() {
        let trace = trace();
        let cut = trace.cut(0.0, Duration::from_millis(50), 2.0);
        let at: Vec<u128> = cut.iter().map(|a| a.at.as_millis()).collect();
        assert_eq!(at, [0, 5, 10, 15, 20, 25, 30, 35, 40, 45]);
        // From 1,990 ms on nothing comes for 10 ms; then the first again. The same two laps later.
        for from in [1990.0, 5990.0] {
            let cut = trace.cut(from, Duration::from_millis(30), 1.0);
            let at: Vec<u128> = cut.iter().map(|a| a.at.as_millis()).collect();
            assert_eq!(at, [10, 20]);
        }
        let laps = trace.cut(0.0, Duration::from_secs(4), 1.0);
        assert_eq!(laps.len(), 200);
        assert!(laps.is_sorted_by_key(|a| a.at));
        let empty = Trace::new(Vec::new(), Vec::new(), 1.0);
        assert!(empty.cut(0.0, Duration::from_secs(1), 1.0).is_empty());
    }

    #[test]
    fn places_are_drawn_by_their_shares() {
        let mut counts = vec![0_u32; PLACES.len()];
        for number in 0..100_000 {
            counts[drawn_place(number)] += 1;
        }
        for (count, place) in counts.iter().zip(PLACES) {
            let expected = place.share * 1000;
            assert!(count.abs_diff(expected) < 600, "{counts:?}");
        }
    }

    #[test]
    fn functions_that_are_called_most_are_taken_and_long_calls_are_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let (functions, calls) = (folder.path().join("f.csv"), folder.path().join("t.csv"));
        let header = "fid,exec_ms,cold_ms,req_mb,min_ms,p1_ms,p25_ms,p50_ms,p75_ms,p99_ms,max_ms\n";
        let rows = "tiny,1,300,128,1,1,1,1,1,1,1\nseldom,100,300,128,100,100,100,100,100,100,100\n\
                    often,100,300,128,100,100,100,100,100,100,9000\nlong,100,300,128,100,100,100,100,100,2000,9000\n";
        std::fs::write(&functions, format!("{header}{rows}")).expect("written");
        let rows = "t_ms,fid,u\n0,tiny,0.5\n1,often,0.5\n2,seldom,0.5\n3,often,1\n3,long,0.5\n3,long,0.5\n3,long,0.5\n\
                    4,tiny,0.5\n";
        std::fs::write(&calls, rows).expect("written");
        let trace = Trace::of(&functions, &calls).expect("a trace");
        let names: Vec<&str> = trace.apps.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["often", "seldom"]);
        let found: Vec<(f64, usize, f64)> =
            trace.calls.iter().map(|c| (c.at, c.app, c.work)).collect();
        assert_eq!(found, [(1.0, 0, 100.0), (2.0, 1, 100.0), (3.0, 0, LONGEST)]);
        assert_eq!(trace.length, 5.0);
    }
}
