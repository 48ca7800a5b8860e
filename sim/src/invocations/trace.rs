//! Recorded functions and their invocations.
//!
//! Two files of CSV, plain or gzip, as in the samples of the Azure Functions trace (Shahrad et al., "Serverless in the Wild",
//! USENIX ATC 2020). Functions: `fid`, the profile `exec_ms`, `cold_ms`, `req_mb`, and the distribution of the execution time as
//! `min_ms`, `p1_ms`, `p25_ms`, `p50_ms`, `p75_ms`, `p99_ms`, `max_ms`. Invocations either one by one in order of time: `t_ms`,
//! `fid`, and `u`, from 0 to 1, which fixes how long the invocation executes: the distribution at `u`, linear between the points
//! that are known, at least 1 ms; or as counts: `fid` and how many come in each minute, `m0`, `m1` and so on. Further columns are
//! passed over; a megabyte counts as a mebibyte.

use std::collections::BTreeMap;
use std::path::Path;

use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::Profile;
use rand::RngExt;
use serde::Deserialize;

use crate::Error;
use crate::input;
use crate::seed::{Rng, Seed};

const MINUTE: Millis = Millis::new(60_000.0);

/// Shares of invocations that take at most the time of the column.
const SHARES: [f64; 7] = [0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0];

/// The distribution of execution times: what 0, 1, 25, 50, 75, 99 and 100 of 100 invocations do not exceed, in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Durations([f64; 7]);

impl Durations {
    /// A distribution through these points.
    ///
    /// # Errors
    /// When they fall, or one is negative or no number.
    pub fn new(points: [f64; 7]) -> Result<Self, String> {
        let is_sorted = points.windows(2).all(|pair| pair[0] <= pair[1]);
        if is_sorted && points[0] >= 0.0 && points[6].is_finite() {
            return Ok(Self(points));
        }
        Err("the times from min_ms to max_ms must not be negative and must not fall".to_owned())
    }

    /// The time at a share from 0 to 1, at least 1 ms.
    #[must_use]
    pub fn at(&self, share: f64) -> Millis {
        let above = SHARES.iter().position(|&known| share < known);
        let above = above.unwrap_or(SHARES.len() - 1).max(1);
        let (from, to) = (self.0[above - 1], self.0[above]);
        let within = (share - SHARES[above - 1]) / (SHARES[above] - SHARES[above - 1]);
        Millis::new((from + (to - from) * within).max(1.0))
    }
}

/// A recorded function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name in the files.
    pub name: String,
    /// What the scheduler knows of it.
    pub profile: Profile,
    /// How long it really executes.
    pub durations: Durations,
}

/// A recorded invocation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Invocation {
    /// When it comes.
    pub arrival: Millis,
    /// Of which function, as an index into [`Workload::functions`].
    pub function: usize,
    /// How long it executes in a warm container.
    pub execution: Millis,
}

/// Which share of the invocations is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

impl Scale {
    /// A share from above 0 to 1.
    ///
    /// # Errors
    /// When it is none.
    pub fn new(share: f64) -> Result<Self, Error> {
        if share > 0.0 && share <= 1.0 {
            return Ok(Self(share));
        }
        Err(Error::Usage(format!(
            "a scale is above 0 and at most 1, not {share}"
        )))
    }

    /// The share.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }

    /// Whether the row of this number is kept: a multiplicative hash (Knuth) below the share of its range.
    #[must_use]
    pub fn keeps(self, row: u64) -> bool {
        const RANGE: u64 = 1 << 32;
        let hash = row.wrapping_mul(2_654_435_761) % RANGE;
        hash < (self.0 * RANGE as f64).floor() as u64
    }
}

/// Functions and invocations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The functions, in the order of the file.
    pub functions: Vec<Function>,
    /// The invocations, by arrival.
    pub invocations: Vec<Invocation>,
}

#[derive(Debug, Deserialize)]
struct FunctionRow {
    fid: String,
    exec_ms: f64,
    cold_ms: f64,
    req_mb: u64,
    min_ms: f64,
    p1_ms: f64,
    p25_ms: f64,
    p50_ms: f64,
    p75_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl FunctionRow {
    fn parse(self) -> Result<Function, String> {
        let durations = Durations::new([
            self.min_ms,
            self.p1_ms,
            self.p25_ms,
            self.p50_ms,
            self.p75_ms,
            self.p99_ms,
            self.max_ms,
        ])?;
        let (execution, cold) = (Millis::new(self.exec_ms), Millis::new(self.cold_ms));
        let profile = Profile::new(execution, cold, MebiBytes(self.req_mb))
            .map_err(|error| format!("exec_ms, cold_ms and req_mb: {error}"))?;
        Ok(Function {
            name: self.fid,
            profile,
            durations,
        })
    }
}

#[derive(Debug, Deserialize)]
struct InvocationRow {
    t_ms: f64,
    fid: String,
    u: f64,
}

/// The functions of a file, and the place of each by its name.
fn read_functions(from: &Path) -> Result<(Vec<Function>, BTreeMap<String, usize>), Error> {
    let mut known = BTreeMap::new();
    let functions = input::csv(from, |row: FunctionRow| {
        let function = row.parse()?;
        if known.insert(function.name.clone(), known.len()).is_some() {
            return Err(format!("function {} is there already", function.name));
        }
        Ok(function)
    })?;
    if functions.is_empty() {
        return Err(Error::input(from, "the whole file", "has no function"));
    }
    Ok((functions, known))
}

impl Workload {
    /// Reads functions and invocations, and keeps a share of the latter.
    ///
    /// # Errors
    /// When a file cannot be read or has a fault, with its line.
    pub fn read(functions: &Path, trace: &Path, scale: Scale) -> Result<Self, Error> {
        let (functions, known) = read_functions(functions)?;
        let mut row = 0;
        let mut last = 0.0;
        let kept = input::csv(trace, |invocation: InvocationRow| {
            let InvocationRow { t_ms, fid, u } = invocation;
            if !(t_ms >= last && t_ms.is_finite()) {
                return Err(format!(
                    "t_ms is {t_ms}, but must be a time of at least {last} as in the line before"
                ));
            }
            if !(0.0..=1.0).contains(&u) {
                return Err(format!("u is {u}, but must be from 0 to 1"));
            }
            let Some(&function) = known.get(&fid) else {
                return Err(format!("fid {fid} is not in the file of functions"));
            };
            last = t_ms;
            row += 1;
            Ok(scale.keeps(row - 1).then(|| Invocation {
                arrival: Millis::new(t_ms),
                function,
                execution: functions[function].durations.at(u),
            }))
        })?;
        let invocations: Vec<Invocation> = kept.into_iter().flatten().collect();
        Ok(Self {
            functions,
            invocations,
        })
    }

    /// Reads functions and counts per minute, the first `minutes` of them; times inside a minute, and execution times, are drawn.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_counts(
        functions: &Path,
        counts: &Path,
        minutes: usize,
        seed: Seed,
    ) -> Result<Self, Error> {
        let (functions, known) = read_functions(functions)?;
        let mut invocations = Vec::new();
        input::csv(counts, |row: BTreeMap<String, String>| {
            let name = row.get("fid").ok_or("a column fid")?;
            let Some(&function) = known.get(name) else {
                return Err(format!("fid {name} is not in the file of functions"));
            };
            let mut rng = seed.stream(name);
            for minute in 0..minutes {
                let Some(count) = row.get(&format!("m{minute}")) else {
                    break;
                };
                let count: u64 = count
                    .parse()
                    .map_err(|_| format!("column m{minute}: {count} is not a count"))?;
                for _ in 0..count {
                    invocations.push(Invocation {
                        arrival: MINUTE * (minute as f64 + rng.random::<f64>()),
                        function,
                        execution: functions[function].durations.at(rng.random()),
                    });
                }
            }
            Ok(())
        })?;
        invocations.sort_by_key(|invocation| invocation.arrival);
        Ok(Self {
            functions,
            invocations,
        })
    }

    /// The same with every arrival later by a random span up to `most`: what a figure owes to chance.
    #[must_use]
    pub fn shifted(&self, most: Millis, rng: &mut Rng) -> Self {
        let mut shifted = self.clone();
        for invocation in &mut shifted.invocations {
            invocation.arrival += most * rng.random::<f64>();
        }
        shifted
            .invocations
            .sort_by_key(|invocation| invocation.arrival);
        shifted
    }

    /// Memory times execution time of all invocations, in MiB ms.
    #[must_use]
    pub fn work(&self) -> f64 {
        let each = |invocation: &Invocation| {
            let memory = self.functions[invocation.function].profile.memory();
            memory.get() as f64 * invocation.execution.get()
        };
        self.invocations.iter().map(each).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lie_on_the_lines_between_the_known_points_and_are_at_least_1_ms() {
        let durations = Durations::new([0.0, 10.0, 34.0, 59.0, 84.0, 108.0, 208.0]).expect("valid");
        for (share, time) in [
            (0.0, 1.0),
            (0.005, 5.0),
            (0.01, 10.0),
            (0.13, 22.0),
            (0.25, 34.0),
            (0.5, 59.0),
            (0.75, 84.0),
            (0.99, 108.0),
            (0.995, 158.0),
            (1.0, 208.0),
        ] {
            let found = durations.at(share).get();
            assert!((found - time).abs() < 1e-9, "{share}: {found}");
        }
        for bad in [
            [0.0, 1.0, 2.0, 3.0, 2.0, 5.0, 6.0],
            [-1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            [0.0, 1.0, 2.0, f64::NAN, 4.0, 5.0, 6.0],
            [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, f64::INFINITY],
        ] {
            assert!(Durations::new(bad).is_err());
        }
    }

    const HEADER: &str =
        "fid,exec_ms,cold_ms,req_mb,min_ms,p1_ms,p25_ms,p50_ms,p75_ms,p99_ms,max_ms\n";

    fn files(invocations: &str) -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let (functions, other) = (folder.path().join("f.csv"), folder.path().join("i.csv"));
        let rows = "b,50,300,128,0,10,25,50,75,99,100\na,5,300,64,5,5,5,5,5,5,5\n";
        std::fs::write(&functions, format!("{HEADER}{rows}")).expect("written");
        std::fs::write(&other, invocations).expect("written");
        (folder, functions, other)
    }

    #[test]
    fn counts_become_invocations_inside_their_minutes() {
        let (_folder, functions, counts) = files("fid,m0,m1,m2\na,2,0,1\nb,0,0,9\n");
        let read = |minutes, seed| {
            Workload::read_counts(&functions, &counts, minutes, Seed(seed)).expect("valid")
        };
        let all = read(3, 1);
        let minutes_of = |function| {
            let of = all.invocations.iter().filter(|i| i.function == function);
            of.map(|i| (i.arrival.get() / 60_000.0) as u32)
                .collect::<Vec<_>>()
        };
        assert_eq!(minutes_of(1), [0, 0, 2], "a is second in its file");
        assert_eq!(minutes_of(0), [2; 9]);
        assert!(all.invocations.is_sorted_by_key(|i| i.arrival));
        let taken = |i: &Invocation| (1.0..=100.0).contains(&i.execution.get());
        assert!(all.invocations.iter().all(taken));
        assert_eq!(read(3, 1), all);
        assert_ne!(read(3, 2), all);
        assert_eq!(
            read(2, 1).invocations,
            all.invocations[..2],
            "the first two minutes"
        );
    }

    #[test]
    fn what_is_wrong_with_counts_is_named_with_its_line() {
        let error = |counts: &str| {
            let (_folder, functions, counts) = files(counts);
            let read = Workload::read_counts(&functions, &counts, 1, Seed(1));
            read.expect_err("refused").to_string()
        };
        let found = error("fid,m0\na,many\n");
        assert!(
            found.contains("line 2: column m0: many is not a count"),
            "{found}"
        );
        let found = error("fid,m0\na,1\nx,1\n");
        assert!(
            found.contains("line 3: fid x is not in the file"),
            "{found}"
        );
    }
}
