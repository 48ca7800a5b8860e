//! Functions and their requests, from recorded traces.
//!
//! Columns as in the samples of the Azure Functions trace (Shahrad et al., "Serverless in the Wild", USENIX ATC 2020): of a function
//! its execution time by quantile, profile and cold-start time; requests either one by one with `t_ms`, `fid`, `u`, or as counts
//! per minute.

use std::collections::BTreeMap;
use std::path::Path;

use fdn_core::Millis;
use fdn_scheduling::scale::Profile;
use rand::RngExt;
use serde::Deserialize;

use crate::Error;
use crate::input;
use crate::seed::Seed;

const MINUTE_MS: f64 = 60_000.0;

/// A request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When it comes, in ms.
    pub at: f64,
    /// How long it runs, in ms.
    pub exec: f64,
}

/// A function and all its requests, in the order in which they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name in the trace.
    pub name: String,
    /// What a scheduler may know of it.
    pub profile: Profile,
    /// Its requests.
    pub requests: Vec<Request>,
    /// Execution times in ms, at [`QUANTILES`].
    times: [f64; QUANTILES.len()],
}

/// At which shares the file has execution times.
const QUANTILES: [f64; 7] = [0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0];

#[derive(Debug, Deserialize)]
struct FunctionRow {
    fid: String,
    min_ms: f64,
    p1_ms: f64,
    p25_ms: f64,
    p50_ms: f64,
    p75_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    exec_ms: f64,
    cold_ms: f64,
}

#[derive(Debug, Deserialize)]
struct RequestRow {
    t_ms: f64,
    fid: String,
    u: f64,
}

impl Function {
    /// A function with given requests, in the order in which they come.
    #[must_use]
    pub fn new(name: impl Into<String>, profile: Profile, requests: Vec<Request>) -> Self {
        Self {
            name: name.into(),
            profile,
            requests,
            times: [profile.exec.get(); QUANTILES.len()],
        }
    }

    /// The execution time at a share of all, at least 1 ms: linear between the quantiles.
    fn exec(&self, u: f64) -> f64 {
        let upper = QUANTILES
            .iter()
            .position(|q| *q > u)
            .unwrap_or(QUANTILES.len() - 1);
        let (left, right) = (QUANTILES[upper - 1], QUANTILES[upper]);
        let (low, high) = (self.times[upper - 1], self.times[upper]);
        (low + (high - low) * (u - left) / (right - left)).max(1.0)
    }
}

/// The functions of a file, without requests, in the order of their names.
fn functions(path: &Path) -> Result<BTreeMap<String, Function>, Error> {
    let rows = input::csv(path, |row: FunctionRow| {
        let times = [
            row.min_ms, row.p1_ms, row.p25_ms, row.p50_ms, row.p75_ms, row.p99_ms, row.max_ms,
        ];
        let finite = |ms: &f64| ms.is_finite() && *ms >= 0.0;
        if !times.iter().chain([&row.exec_ms, &row.cold_ms]).all(finite) {
            return Err("a time is not a number of ms from 0 up".to_owned());
        }
        let profile = Profile {
            exec: Millis::new(row.exec_ms),
            cold: Millis::new(row.cold_ms),
        };
        Ok(Function {
            name: row.fid,
            profile,
            requests: Vec::new(),
            times,
        })
    })?;
    let named = |function: Function| (function.name.clone(), function);
    Ok(rows.into_iter().map(named).collect())
}

/// Those that have requests.
fn invoked(functions: BTreeMap<String, Function>) -> Vec<Function> {
    let mut functions: Vec<Function> = functions.into_values().collect();
    functions.retain(|function| !function.requests.is_empty());
    for function in &mut functions {
        function.requests.sort_by(|a, b| a.at.total_cmp(&b.at));
    }
    functions
}

/// The functions of a trace whose requests are there one by one.
///
/// # Errors
/// When a file cannot be read, or a line is not what it should be or names an unknown function.
pub fn trace(functions_file: &Path, requests: &Path) -> Result<Vec<Function>, Error> {
    let mut functions = functions(functions_file)?;
    input::csv(requests, |row: RequestRow| {
        let function = functions
            .get_mut(&row.fid)
            .ok_or_else(|| format!("there is no function {}", row.fid))?;
        if !(row.t_ms >= 0.0 && row.t_ms.is_finite() && (0.0..=1.0).contains(&row.u)) {
            return Err("t_ms from 0 up and u from 0 to 1".to_owned());
        }
        let exec = function.exec(row.u);
        function.requests.push(Request { at: row.t_ms, exec });
        Ok(())
    })?;
    Ok(invoked(functions))
}

/// The functions of a trace of counts per minute, the first `minutes` of it; times inside a minute, and execution times, are
/// drawn.
///
/// # Errors
/// As [`trace`].
pub fn minutes(
    functions_file: &Path,
    counts: &Path,
    minutes: usize,
    seed: Seed,
) -> Result<Vec<Function>, Error> {
    let mut functions = functions(functions_file)?;
    input::csv(counts, |row: BTreeMap<String, String>| {
        let name = row.get("fid").ok_or("a column fid")?;
        let function = functions
            .get_mut(name)
            .ok_or_else(|| format!("there is no function {name}"))?;
        let mut rng = seed.stream(name);
        for minute in 0..minutes {
            let Some(count) = row.get(&format!("m{minute}")) else {
                break;
            };
            let count: u64 = count
                .parse()
                .map_err(|_| format!("column m{minute}: {count} is not a count"))?;
            for _ in 0..count {
                let at = (minute as f64 + rng.random::<f64>()) * MINUTE_MS;
                let exec = function.exec(rng.random());
                function.requests.push(Request { at, exec });
            }
        }
        Ok::<(), String>(())
    })?;
    Ok(invoked(functions))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "fid,min_ms,p1_ms,p25_ms,p50_ms,p75_ms,p99_ms,max_ms,exec_ms,cold_ms\n";

    fn files(requests: &str) -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (functions, other) = (folder.path().join("f.csv"), folder.path().join("r.csv"));
        let rows = format!("{HEADER}b,0,10,25,50,75,99,100,50,300\na,5,5,5,5,5,5,5,5,300\n");
        std::fs::write(&functions, rows).unwrap();
        std::fs::write(&other, requests).unwrap();
        (folder, functions, other)
    }

    #[test]
    fn execution_times_lie_between_the_quantiles() {
        let (_folder, functions, requests) =
            files("t_ms,fid,u\n7,b,0.5\n1,b,0\n2,b,0.375\n3,b,1\n4,b,0.995\n");
        let found = trace(&functions, &requests).unwrap();
        assert_eq!(found.len(), 1, "a has no request");
        let exec: Vec<f64> = found[0].requests.iter().map(|r| r.exec).collect();
        assert_eq!(exec[..3], [1.0, 37.5, 100.0], "in the order of their times");
        assert!((exec[3] - 99.5).abs() < 1e-9 && exec[4] == 50.0);
    }

    #[test]
    fn counts_become_requests_inside_their_minutes() {
        let (_folder, functions, counts) = files("fid,m0,m1,m2\na,2,0,1\nb,0,0,9\n");
        let found = minutes(&functions, &counts, 3, Seed(1)).unwrap();
        let a: Vec<f64> = found[0].requests.iter().map(|r| r.at).collect();
        assert_eq!(a.len(), 3);
        assert!(a[1] < 60_000.0 && (120_000.0..180_000.0).contains(&a[2]));
        assert_eq!(found[1].requests.len(), 9);
        assert_eq!(minutes(&functions, &counts, 3, Seed(1)).unwrap(), found);
        assert_eq!(minutes(&functions, &counts, 2, Seed(1)).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = |requests: &str| {
            let (_folder, functions, requests) = files(requests);
            trace(&functions, &requests).unwrap_err().to_string()
        };
        assert!(error("t_ms,fid,u\n1,b,0\n1,x,0\n").contains("line 3: there is no function x"));
        assert!(error("t_ms,fid,u\n1,b,1.5\n").contains("line 2: t_ms from 0 up"));
        let (_folder, functions, counts) = files("fid,m0\na,many\n");
        let error = minutes(&functions, &counts, 1, Seed(1))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("line 2: column m0: many is not a count"),
            "{error}"
        );
    }
}
