//! Two builds of fdn in one run: which figures moved, by how much, and whether that is more than their noise.
//!
//! Both networks run at once on the first core, the load on the second. A round measures the other build, this one, and the other one again. The ratio of a round
//! is this build's figure by the geometric mean of the other's two; how far these two lie apart is the noise. A figure has moved when every
//! round agrees on the direction and the middle ratio is farther from 1 than the widest noise.

use std::fs::File;
use std::net::TcpStream;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::network::Network;
use crate::{Bench, Options, cold, dns, facts, median, wrk};

/// Connections of the gateway's load.
const CONNECTIONS: [u32; 2] = [1, 16];
/// Starts of the agent whose median is one figure of a cold start.
const STARTS: usize = 5;

/// Which direction of a figure is the good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Higher,
    Lower,
}

/// A figure of the other build, of this one, and of the other one again.
#[derive(Clone, Copy, Debug)]
struct Round {
    before: f64,
    this: f64,
    after: f64,
}

impl Round {
    fn other(self) -> f64 {
        (self.before * self.after).sqrt()
    }

    fn ratio(self) -> f64 {
        self.this / self.other()
    }

    /// How far the other build's two figures lie apart, as a factor of at least 1.
    fn noise(self) -> f64 {
        let apart = self.after / self.before;
        apart.max(apart.recip())
    }
}

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
    WithinNoise,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::WithinNoise => "",
        }
    }
}

/// One line of the table.
#[derive(Debug)]
struct Figure {
    name: String,
    unit: &'static str,
    better: Better,
    rounds: Vec<Round>,
}

impl Figure {
    fn new(name: String, unit: &'static str, better: Better) -> Self {
        Self {
            name,
            unit,
            better,
            rounds: Vec::new(),
        }
    }

    fn ratios(&self) -> impl Iterator<Item = f64> {
        self.rounds.iter().map(|round| round.ratio())
    }

    fn lowest(&self) -> f64 {
        self.ratios().fold(f64::INFINITY, f64::min)
    }

    fn highest(&self) -> f64 {
        self.ratios().fold(0.0, f64::max)
    }

    fn noise(&self) -> f64 {
        self.rounds.iter().map(|r| r.noise()).fold(1.0, f64::max)
    }

    fn verdict(&self) -> Verdict {
        let (ratio, noise) = (median(self.ratios().collect()), self.noise());
        let more = self.lowest() > 1.0 && ratio > noise;
        let less = self.highest() < 1.0 && ratio.recip() > noise;
        match (more, less, self.better) {
            (true, _, Better::Higher) | (_, true, Better::Lower) => Verdict::Better,
            (true, _, Better::Lower) | (_, true, Better::Higher) => Verdict::Worse,
            (false, false, _) => Verdict::WithinNoise,
        }
    }

    fn print(&self) {
        println!(
            "{:<40} {:<11} {:>11.3} {:>11.3} {:>7.3} {:>6.3}-{:<6.3} {:>6.3} {}",
            self.name,
            self.unit,
            median(self.rounds.iter().map(|r| r.other()).collect()),
            median(self.rounds.iter().map(|r| r.this).collect()),
            median(self.ratios().collect()),
            self.lowest(),
            self.highest(),
            self.noise(),
            self.verdict().name()
        );
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "unit": self.unit,
            "better": match self.better { Better::Higher => "higher", Better::Lower => "lower" },
            "ratio": median(self.ratios().collect()),
            "ratio_lowest": self.lowest(),
            "ratio_highest": self.highest(),
            "noise": self.noise(),
            "moved": match self.verdict() {
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::WithinNoise => "no",
            },
            "rounds": self.rounds.iter().map(|r| json!({"other": [r.before, r.after], "this": r.this})).collect::<Vec<_>>(),
        })
    }
}

/// The two networks, and what of them has been printed.
struct Pair {
    other: Network,
    this: Network,
}

impl Pair {
    fn start(options: &Options, other: &Path) -> Result<Self> {
        Ok(Self {
            other: Network::of(other).context("the other build's fdn up")?,
            this: Network::of(&options.binaries)?,
        })
    }

    fn deploy(&self, name: &str, component: &Path, manifest: &str) -> Result<()> {
        self.other.deploy(name, component, manifest)?;
        self.this.deploy(name, component, manifest)
    }

    /// Takes the rounds of figures that one measurement gives together.
    fn rounds(
        &mut self,
        options: &Options,
        figures: &mut [Figure],
        mut measure: impl FnMut(&mut Network) -> Result<Vec<f64>>,
    ) -> Result<()> {
        for _ in 0..options.rounds {
            let before = measure(&mut self.other)?;
            let this = measure(&mut self.this)?;
            let after = measure(&mut self.other)?;
            for (at, figure) in figures.iter_mut().enumerate() {
                figure.rounds.push(Round {
                    before: before[at],
                    this: this[at],
                    after: after[at],
                });
            }
        }
        figures.iter().for_each(Figure::print);
        Ok(())
    }
}

/// Measures `other`, a folder of fdn's binaries, beside those of the options; prints a table, and writes it as JSON where the options ask for it.
pub(crate) fn run(options: &Options, other: &Path) -> Result<()> {
    let benches = if options.benches.is_empty() {
        vec![Bench::Gateway, Bench::Cold, Bench::Dns]
    } else {
        options.benches.clone()
    };
    println!(
        "compare: {} rounds of other, this, other; {} s each; servers on core 0, load on core 1; medians, ratio this / other with its range",
        options.rounds, options.seconds
    );
    println!(
        "{:<40} {:<11} {:>11} {:>11} {:>7} {:>13} {:>6}",
        "figure", "unit", "other", "this", "ratio", "range", "noise"
    );
    let mut all = Vec::new();
    for bench in benches {
        all.extend(match bench {
            Bench::Gateway => gateway(options, other)?,
            Bench::Cold => cold_starts(options, other)?,
            Bench::Dns => questions(options, other)?,
            _ => bail!("only gateway, cold and dns compare two builds"),
        });
    }
    let Some(path) = &options.json else {
        return Ok(());
    };
    let table = json!({
        "machine": facts::all().into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect::<serde_json::Map<_, Value>>(),
        "rounds": options.rounds,
        "seconds": options.seconds,
        "other": other,
        "this": options.binaries,
        "figures": all.iter().map(Figure::json).collect::<Vec<_>>(),
    });
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    serde_json::to_writer_pretty(file, &table)?;
    Ok(())
}

fn gateway(options: &Options, other: &Path) -> Result<Vec<Figure>> {
    let mut pair = Pair::start(options, other)?;
    let hello = options.functions.join("hello/hello.wasm");
    pair.deploy("fresh", &hello, "reuse = 1\n")?;
    pair.deploy("reused", &hello, "reuse = 1000\n")?;
    let mut all = Vec::new();
    for app in ["fresh", "reused"] {
        for connections in CONNECTIONS {
            let name = |what| format!("gateway, {app}, {connections} connections, {what}");
            let mut figures = [
                Figure::new(name("rate"), "requests/s", Better::Higher),
                Figure::new(name("p50"), "ms", Better::Lower),
                Figure::new(name("p99"), "ms", Better::Lower),
            ];
            pair.rounds(options, &mut figures, |network| {
                let host = format!("{app}.fn.test");
                let seen = wrk::load(network.gateway, &host, connections, options.seconds)?;
                if seen.errors > 0 {
                    bail!("{} calls of {host} failed", seen.errors);
                }
                Ok(vec![seen.requests_per_second, seen.p50_ms, seen.p99_ms])
            })?;
            all.extend(figures);
        }
    }
    Ok(all)
}

fn cold_starts(options: &Options, other: &Path) -> Result<Vec<Figure>> {
    let mut all = Vec::new();
    for (name, component, manifest, _) in cold::FUNCTIONS {
        let path = options.functions.join(component);
        if !path.is_file() {
            println!("({name} left out: it is not built; make functions)");
            continue;
        }
        let manifest = std::fs::read_to_string(options.functions.join(manifest))?;
        let mut pair = Pair::start(options, other)?;
        pair.deploy(name, &path, &manifest)?;
        let host = format!("{name}.fn.test");
        let mut figures = [
            Figure::new(format!("cold, {name}, first call"), "ms", Better::Lower),
            Figure::new(format!("cold, {name}, second call"), "ms", Better::Lower),
        ];
        pair.rounds(options, &mut figures, |network| {
            let (mut first, mut second) = (Vec::new(), Vec::new());
            for _ in 0..STARTS {
                let mut stream: TcpStream = cold::start(network)?;
                first.push(cold::call(&mut stream, &host)?);
                second.push(cold::call(&mut stream, &host)?);
            }
            Ok(vec![median(first), median(second)])
        })?;
        all.extend(figures);
    }
    Ok(all)
}

fn questions(options: &Options, other: &Path) -> Result<Vec<Figure>> {
    let mut pair = Pair::start(options, other)?;
    pair.deploy("hello", &options.functions.join("hello/hello.wasm"), "")?;
    let mut all = Vec::new();
    for questions in dns::questions(pair.this.folder())? {
        let mut figures = [
            Figure::new(
                format!("dns, {}, rate", questions.name),
                "queries/s",
                Better::Higher,
            ),
            Figure::new(
                format!("dns, {}, mean", questions.name),
                "ms",
                Better::Lower,
            ),
        ];
        pair.rounds(options, &mut figures, |network| {
            let seen = dns::once(options, network, &questions)?;
            Ok(vec![seen.per_second, seen.mean_ms])
        })?;
        all.extend(figures);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(better: Better, rounds: &[(f64, f64, f64)]) -> Figure {
        let mut figure = Figure::new("a figure".to_owned(), "ms", better);
        figure
            .rounds
            .extend(rounds.iter().map(|&(before, this, after)| Round {
                before,
                this,
                after,
            }));
        figure
    }

    #[test]
    fn what_moves_by_more_than_the_noise_is_named_by_its_direction() {
        let rounds = [(100.0, 120.0, 101.0), (99.0, 118.0, 100.0)];
        assert_eq!(figure(Better::Higher, &rounds).verdict(), Verdict::Better);
        assert_eq!(figure(Better::Lower, &rounds).verdict(), Verdict::Worse);
        let rounds = [(100.0, 80.0, 101.0), (99.0, 82.0, 100.0)];
        assert_eq!(figure(Better::Higher, &rounds).verdict(), Verdict::Worse);
        assert_eq!(figure(Better::Lower, &rounds).verdict(), Verdict::Better);
    }

    #[test]
    fn what_the_same_build_does_by_itself_is_noise() {
        // 8 % more, but the other build differs from itself by 10 %.
        let rounds = [(100.0, 113.0, 110.0), (100.0, 108.0, 100.0)];
        let figure = figure(Better::Higher, &rounds);
        assert_eq!(figure.verdict(), Verdict::WithinNoise);
        assert!((figure.noise() - 1.1).abs() < 1e-9);
    }

    #[test]
    fn rounds_that_disagree_move_nothing() {
        let rounds = [
            (100.0, 130.0, 100.0),
            (100.0, 130.0, 100.0),
            (100.0, 99.0, 100.0),
        ];
        assert_eq!(
            figure(Better::Higher, &rounds).verdict(),
            Verdict::WithinNoise
        );
    }

    #[test]
    fn a_ratio_stands_between_the_rounds_beside_it() {
        // The machine got slower by four meanwhile: the two in the middle of it are alike.
        let drift = Round {
            before: 400.0,
            this: 200.0,
            after: 100.0,
        };
        assert!((drift.ratio() - 1.0).abs() < 1e-9);
        assert!((drift.noise() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn the_json_holds_each_round() {
        let value = figure(Better::Lower, &[(2.0, 1.0, 2.0)]).json();
        assert_eq!(value["moved"], "better");
        assert_eq!(value["ratio"], 0.5);
        assert_eq!(value["rounds"][0]["other"], json!([2.0, 2.0]));
    }
}
