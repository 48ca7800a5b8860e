//! What is told at the end, for people and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use super::Asked;
use super::growth::{Allowed, Growth};
use super::judge::Violation;

/// How one life of a process held memory or descriptors.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The process, and the number of its life.
    pub who: String,
    /// Bytes, or how many.
    pub what: &'static str,
    /// How it grew.
    pub growth: Growth,
    /// What was allowed.
    pub allowed: Allowed,
}

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What was asked for.
    pub asked: Asked,
    /// How often each kind of event happened.
    pub events: BTreeMap<&'static str, u64>,
    /// Calls, jobs, questions, failures.
    pub counts: BTreeMap<&'static str, u64>,
    /// Memory and descriptors.
    pub held: Vec<Held>,
    /// What must never be, and was.
    pub violations: Vec<Violation>,
    /// How many more of it there were.
    pub left_out: u64,
}

impl Report {
    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        let held = self.held.iter().map(|held| {
            let [peak, first, last, slope] = held.growth.numbers();
            json!({
                "process": held.who, "what": held.what, "peak": peak, "first_third": first, "last_third": last, "slope_per_hour": slope,
                "flat": held.growth.is_flat(held.allowed),
            })
        });
        let violations = self.violations.iter().map(|v| {
            json!({ "at_s": v.at.as_secs_f64(), "rule": v.rule.as_str(), "what": v.what, "after": v.after })
        });
        json!({
            "seed": self.asked.seed, "minutes": self.asked.minutes, "events": self.events, "counts": self.counts,
            "held": held.collect::<Vec<_>>(), "violations": violations.collect::<Vec<_>>(), "violations_left_out": self.left_out,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Asked { minutes, seed } = self.asked;
        writeln!(f, "endurance: {minutes} minutes, FDN_ENDURANCE_SEED={seed}")?;
        for (title, numbers) in [("events", &self.events), ("counts", &self.counts)] {
            writeln!(f, "{title}")?;
            for (what, count) in numbers {
                writeln!(f, "  {count:>8}  {what}")?;
            }
        }
        writeln!(
            f,
            "held          peak    first third     last third    slope in an hour"
        )?;
        for held in &self.held {
            let (size, unit) = match held.what {
                "memory" => (f64::from(1 << 20), "MiB"),
                _ => (1.0, "descriptors"),
            };
            let numbers = held.growth.numbers();
            let numbers = numbers.map(|number| format!("{:>14.1}", number / size));
            writeln!(f, "{}  {} {unit}", numbers.join(" "), held.who)?;
        }
        writeln!(
            f,
            "violations: {}",
            self.violations.len() as u64 + self.left_out
        )?;
        for violation in &self.violations {
            writeln!(f, "  {violation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::growth::MEMORY;
    use super::super::judge::Rule;
    use super::*;

    #[test]
    fn the_report_has_the_seed_the_figures_and_what_was_wrong() {
        let growth = Growth {
            peak: f64::from(3 << 20),
            first: f64::from(1 << 20),
            last: f64::from(2 << 20),
            slope: 0.0,
        };
        let report = Report {
            asked: Asked {
                minutes: 3,
                seed: 11,
            },
            events: [("kill agent", 2)].into(),
            counts: [("calls answered", 70)].into(),
            held: vec![Held {
                who: "dns-1".to_owned(),
                what: "memory",
                growth,
                allowed: MEMORY,
            }],
            violations: vec![Violation {
                at: Duration::from_secs(9),
                rule: Rule::Usage,
                what: "hello: 1 recorded".to_owned(),
                after: "deploy at 8.000 s".to_owned(),
            }],
            left_out: 1,
        };
        let text = report.to_string();
        for expected in [
            "FDN_ENDURANCE_SEED=11",
            "2  kill agent",
            "70  calls answered",
            "3.0",
            "violations: 2",
            "deploy at 8",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let json = report.json();
        assert_eq!(json["held"][0]["flat"], true);
        assert_eq!(json["violations"][0]["after"], "deploy at 8.000 s");
        assert_eq!(
            (&json["seed"], &json["counts"]["calls answered"]),
            (&json!(11), &json!(70))
        );
    }
}
