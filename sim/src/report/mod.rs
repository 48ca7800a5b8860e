//! Results: figures with units, tables, plots, and whether what was aimed at was reached.

mod plot;
mod summary;
mod table;

use serde::Serialize;

pub use plot::{Axis, Plot, Series, Shape};
pub use summary::{Summary, mean};
pub use table::{Cell, Table, short};

/// What an experiment found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// What was run: sizes, seeds, settings.
    pub conditions: String,
    /// The figures.
    pub tables: Vec<Table>,
    /// What was aimed at.
    pub gates: Vec<Gate>,
    /// What a reader must know beside.
    pub notes: Vec<String>,
    /// The figures as pictures.
    #[serde(skip)]
    pub plots: Vec<Plot>,
}

/// A figure that was aimed at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// What is compared.
    pub what: String,
    /// What was found.
    pub measured: f64,
    /// The bound.
    pub bound: Bound,
    /// Whether it holds.
    pub holds: bool,
}

/// On which side of a bound a figure must lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
    /// This far from a figure at most.
    Within {
        /// The figure.
        of: f64,
        /// How far.
        by: f64,
    },
}

impl Gate {
    /// Compares.
    pub fn new(what: impl Into<String>, measured: f64, bound: Bound) -> Self {
        let holds = match bound {
            Bound::AtLeast(least) => measured >= least,
            Bound::AtMost(most) => measured <= most,
            Bound::Within { of, by } => (measured - of).abs() <= by,
        };
        Self {
            what: what.into(),
            measured,
            bound,
            holds,
        }
    }
}

/// The gates as a table.
#[must_use]
pub fn gates(gates: &[Gate]) -> Table {
    let mut table = Table::new("Gates", &["what", "measured", "aim", "holds"]);
    for gate in gates {
        let aim = match gate.bound {
            Bound::AtLeast(least) => format!(">= {}", table::short(least)),
            Bound::AtMost(most) => format!("<= {}", table::short(most)),
            Bound::Within { of, by } => format!("{} ± {}", table::short(of), table::short(by)),
        };
        table.row([
            Cell::from(gate.what.as_str()),
            Cell::from(table::short(gate.measured)),
            Cell::from(aim),
            Cell::from(if gate.holds { "yes" } else { "NO" }),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_holds_on_its_side_of_the_bound_and_never_for_what_is_no_number() {
        let holds = |measured, bound| Gate::new("x", measured, bound).holds;
        assert!(holds(2.0, Bound::AtLeast(2.0)) && !holds(1.9, Bound::AtLeast(2.0)));
        assert!(holds(2.0, Bound::AtMost(2.0)) && !holds(2.1, Bound::AtMost(2.0)));
        let near = Bound::Within { of: 1.0, by: 0.5 };
        assert!(holds(0.5, near) && !holds(1.6, near));
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(0.0), near] {
            assert!(!holds(f64::NAN, bound));
        }
    }
}
