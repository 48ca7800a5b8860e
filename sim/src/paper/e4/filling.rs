//! The nodes are filled from empty: every way of choosing at every number of pre-schedulers.

use super::{ADVISED, base, setup};
use crate::Error;
use crate::optimistic::{Outcome as Run, Setup, Way, means, serial_means};
use crate::paper::{Context, Effort};
use crate::report::{Axis, Bound, Cell, Gate, Plot, Series, Shape, Table};

/// The numbers of pre-schedulers at which conflicts are published.
const PUBLISHED_AT: [u32; 4] = [1, 4, 16, 32];

/// Published: the share of lists whose first entry had changed.
const fn published(way: Way) -> Option<[f64; 4]> {
    match way {
        Way::Best => Some([1.0, 1.0, 1.0, 1.0]),
        Way::BestRandom => Some([0.06, 0.17, 0.49, 0.72]),
        Way::Sample => Some([0.05, 0.20, 0.63, 0.87]),
        Way::SampleRandom => None,
    }
}

/// All runs of the filling.
pub(super) struct Measured {
    pub(super) seeds: u64,
    /// The numbers of pre-schedulers.
    at: Vec<u32>,
    /// By way, by number, without and with back-pressure.
    runs: Vec<Vec<[Run; 2]>>,
    serial: Run,
}

impl Measured {
    pub(super) fn new(context: &Context<'_>) -> Result<Self, Error> {
        let (seeds, at) = match context.effort {
            Effort::Quick => (1, vec![1, 4, 16, 32, 128]),
            Effort::Full => (5, vec![1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128]),
        };
        let setups: Vec<Setup> = Way::ALL
            .into_iter()
            .flat_map(|way| at.iter().map(move |&k| (way, k)))
            .flat_map(|(way, k)| {
                [
                    setup(context.effort, way, k, false),
                    setup(context.effort, way, k, true),
                ]
            })
            .collect();
        let part = context
            .progress
            .begin("e4: filling", (setups.len() as u64 + 1) * seeds);
        let runs = means(&setups, seeds, part.as_ref())?;
        let serial = serial_means(&[base(context.effort)], seeds, part.as_ref())?[0];
        let pairs: Vec<[Run; 2]> = runs.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
        Ok(Self {
            seeds,
            runs: pairs.chunks(at.len()).map(<[_]>::to_vec).collect(),
            at,
            serial,
        })
    }

    fn of(&self, way: Way, k: u32) -> &[Run; 2] {
        let way = Way::ALL.iter().position(|&other| other == way);
        let k = self.at.iter().position(|&other| other == k);
        &self.runs[way.expect("every way is measured")][k.expect("a number that is measured")]
    }

    pub(super) fn conflicts(&self) -> Table {
        let mut table = Table::new(
            "Share of lists whose first entry had changed (no bound on lists in flight)",
            &["way", "", "K=1", "K=4", "K=16", "K=32"],
        );
        for way in Way::ALL {
            let measured = PUBLISHED_AT.map(|k| Cell::Number(self.of(way, k)[0].top_changed, 2));
            table.row(
                [way.name().into(), "measured".into()]
                    .into_iter()
                    .chain(measured),
            );
            if let Some(published) = published(way) {
                let published = published.map(|share| Cell::Number(share, 2));
                table.row(
                    [Cell::Empty, "published".into()]
                        .into_iter()
                        .chain(published),
                );
            }
        }
        table
    }

    pub(super) fn throughput(&self) -> Table {
        let mut columns = vec!["K".to_owned(), "K/t".to_owned()];
        for way in Way::ALL {
            columns.push(way.name().to_owned());
            columns.push("bounded".to_owned());
        }
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut table = Table::new(
            "Containers placed per second, without and with a bound of t/r lists in flight",
            &columns,
        );
        for &k in &self.at {
            let ideal = f64::from(k) / Setup::default().scoring.get() * 1e3;
            let mut row = vec![Cell::from(k as usize), Cell::Number(ideal, 0)];
            for way in Way::ALL {
                row.extend(self.of(way, k).map(|run| Cell::Number(run.placed_per_s, 0)));
            }
            table.row(row);
        }
        table
    }

    pub(super) fn quality(&self) -> Table {
        let mut columns = vec!["K".to_owned()];
        columns.extend(Way::ALL.map(|way| way.name().to_owned()));
        let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut table = Table::new(
            format!(
                "Spread of used slots over the nodes relative to a serial scheduler's ({:.2} slots), with the bound",
                self.serial.spread
            ),
            &columns,
        );
        for &k in &self.at {
            let row = Way::ALL.map(|way| Cell::Number(self.relative_spread(way, k), 3));
            table.row([Cell::from(k as usize)].into_iter().chain(row));
        }
        table
    }

    fn relative_spread(&self, way: Way, k: u32) -> f64 {
        self.of(way, k)[1].spread / self.serial.spread
    }

    pub(super) fn gates(&self) -> Vec<Gate> {
        let mut gates = Vec::new();
        for way in Way::ALL {
            for (k, published) in PUBLISHED_AT
                .into_iter()
                .zip(published(way).into_iter().flatten())
            {
                let what = format!("conflicts, {}, K = {k}", way.name());
                let bound = Bound::Within {
                    of: published,
                    by: 0.02,
                };
                gates.push(Gate::new(what, self.of(way, k)[0].top_changed, bound));
            }
        }
        let scoring = Setup::default().scoring.get();
        let share = |k: &u32| self.of(ADVISED, *k)[1].placed_per_s * scoring / 1e3 / f64::from(*k);
        let least = self
            .at
            .iter()
            .filter(|&&k| k <= 32)
            .map(share)
            .fold(f64::INFINITY, f64::min);
        gates.push(Gate::new(
            "least throughput / (K/t), K <= 32",
            least,
            Bound::AtLeast(0.9),
        ));
        let placed = |k: &u32| self.of(ADVISED, *k)[1].placed_per_s;
        let peak = self.at.iter().map(placed).fold(0.0, f64::max);
        gates.push(Gate::new(
            "throughput at K = 128 / peak",
            placed(&128) / peak,
            Bound::AtLeast(0.9),
        ));
        for way in [Way::BestRandom, ADVISED] {
            gates.push(Gate::new(
                format!("conflicts at K = 16, {}", way.name()),
                self.of(way, 16)[1].top_changed,
                Bound::AtMost(0.6),
            ));
        }
        let spread = |k: &u32| self.relative_spread(ADVISED, *k);
        gates.push(Gate::new(
            "largest spread / serial, any K",
            self.at.iter().map(spread).fold(0.0, f64::max),
            Bound::AtMost(1.05),
        ));
        gates
    }

    pub(super) fn plots(&self) -> Vec<Plot> {
        let series = |name: String, figure: &dyn Fn(u32) -> f64| Series {
            name,
            points: self.at.iter().map(|&k| (f64::from(k), figure(k))).collect(),
            shape: Shape::Line,
        };
        let mut throughput = vec![series("K/t".to_owned(), &|k| f64::from(k) * 500.0)];
        let mut conflicts = Vec::new();
        for way in Way::ALL {
            for (at, bound) in ["", ", bounded"].into_iter().enumerate() {
                let name = format!("{}{bound}", way.name());
                throughput.push(series(name, &|k| self.of(way, k)[at].placed_per_s));
            }
            conflicts.push(series(way.name().to_owned(), &|k| {
                self.of(way, k)[0].top_changed
            }));
        }
        vec![
            Plot {
                name: "e4-throughput".to_owned(),
                title: "Containers placed, with and without a bound on lists in flight".to_owned(),
                x: Axis::log("pre-schedulers K"),
                y: Axis::log("placed per second"),
                series: throughput,
            },
            Plot {
                name: "e4-conflicts".to_owned(),
                title: "Lists whose first entry had changed".to_owned(),
                x: Axis::log("pre-schedulers K"),
                y: Axis::linear("share"),
                series: conflicts,
            },
        ]
    }
}
