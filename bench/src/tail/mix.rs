//! What light functions feel at 70 % of what the core can do: 64 connections, a mix of them alone, and beside one that burns CPU.
//!
//! What the core can do of a mix is measured in the same round before it is offered seven tenths of that.

use anyhow::{Result, ensure};
use fdn_testkit::components;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Bench;
use super::figures::Times;
use super::load::{Function, Made, OPENING, Offer, capacity, offer, plan};
use super::node::host;
use crate::{cold, median};

const CONNECTIONS: usize = 64;
const SHARE: f64 = 0.7;
/// Of 100 calls.
const FRESH: u64 = 40;
const REUSED: u64 = 40;
const JAVASCRIPT: u64 = 10;
const PYTHON: u64 = 8;
const BURNING: u64 = 2;
/// The function that burns CPU, and the millions that it counts to: some ten milliseconds.
const BURNER: &str = "burning";
const MILLIONS: u32 = 20;

/// A mix with what was seen of it.
struct Mix {
    name: &'static str,
    functions: Vec<Function>,
    rounds: Vec<Round>,
}

struct Round {
    capacity: f64,
    /// Of each function.
    each: Vec<Times>,
    light: Times,
    /// How late calls were sent: because all connections were busy, or the load could not keep up.
    late: Times,
}

pub(super) fn run(bench: &mut Bench<'_>) -> Result<Value> {
    println!(
        "mix: {CONNECTIONS} connections, calls at random times at {:.0} % of what the core does of the same mix, timed from when they were to be made",
        SHARE * 100.0
    );
    let light = deploy(bench)?;
    let burning = Function {
        name: BURNER,
        host: host(BURNER),
        share: BURNING,
    };
    let beside: Vec<Function> = light.iter().cloned().chain([burning]).collect();
    let mut mixes =
        [("alone", light), ("beside one that burns CPU", beside)].map(|(name, functions)| Mix {
            name,
            functions,
            rounds: Vec::new(),
        });
    for _ in 0..bench.options.rounds.max(1) {
        for mix in &mut mixes {
            let round = mix.round(bench)?;
            mix.rounds.push(round);
        }
    }
    mixes.iter().for_each(Mix::print);
    Ok(json!({
        "connections": CONNECTIONS,
        "share_of_capacity": SHARE,
        "mixes": mixes.iter().map(Mix::json).collect::<Vec<_>>(),
    }))
}

/// Deploys all of them; the light ones.
fn deploy(bench: &mut Bench<'_>) -> Result<Vec<Function>> {
    let mut light = vec![("fresh", FRESH), ("reused", REUSED)];
    for (name, component, manifest, _) in cold::FUNCTIONS {
        let share = match name {
            "javascript" => JAVASCRIPT,
            "python" => PYTHON,
            _ => continue,
        };
        let component = bench.options.functions.join(component);
        if !component.is_file() {
            println!(
                "({name} left out: {} is not built; make functions)",
                component.display()
            );
            continue;
        }
        let manifest = std::fs::read_to_string(bench.options.functions.join(manifest))?;
        bench.deploy(name, &component, &manifest)?;
        light.push((name, share));
    }
    let burning = components::cpu_bound(MILLIONS);
    bench.deploy_made(BURNER, &burning, "reuse = 1000\nexpected = \"20ms\"\n")?;
    let functions = light.into_iter().map(|(name, share)| Function {
        name,
        host: host(name),
        share,
    });
    Ok(functions.collect())
}

impl Mix {
    fn round(&self, bench: &Bench<'_>) -> Result<Round> {
        let (address, span) = (bench.node.gateway, bench.span());
        let can = capacity(address, &self.functions, CONNECTIONS, span);
        let capacity = bench.load.block_on(can)?;
        ensure!(capacity > 0.0, "nothing is answered");
        let plan = plan(&self.functions, capacity * SHARE, span);
        let hosts: Vec<String> = self.functions.iter().map(|one| one.host.clone()).collect();
        let to = Offer {
            address,
            hosts: &hosts,
            connections: CONNECTIONS,
            begin: Instant::now() + OPENING,
            awake: true,
        };
        let made = bench.load.block_on(offer(&to, plan))?;
        let of = |wanted: &dyn Fn(usize) -> bool| {
            let some = made.iter().filter(|call| wanted(call.function));
            Times::of(some.map(|call: &Made| call.took))
        };
        let each = (0..self.functions.len()).map(|at| of(&|function| function == at));
        Ok(Round {
            capacity,
            each: each.collect(),
            light: of(&|function| self.functions[function].name != BURNER),
            late: Times::of(made.iter().map(|call| Some(call.late))),
        })
    }

    fn capacity(&self) -> f64 {
        median(self.rounds.iter().map(|round| round.capacity).collect())
    }

    fn light(&self) -> Times {
        self.over(|round| round.light)
    }

    fn late(&self) -> Times {
        self.over(|round| round.late)
    }

    fn over(&self, of: impl Fn(&Round) -> Times) -> Times {
        Times::of_rounds(&self.rounds.iter().map(of).collect::<Vec<_>>())
    }

    fn print(&self) {
        println!(
            "{}: the core does {:.0} calls a second, {:.0} are offered; sent late by {:.3} at p99",
            self.name,
            self.capacity(),
            self.capacity() * SHARE,
            self.late().p99
        );
        println!("  {:<26} {}", "function", Times::header());
        for (at, function) in self.functions.iter().enumerate() {
            println!(
                "  {:<26} {}",
                function.name,
                self.over(|round| round.each[at]).row()
            );
        }
        println!("  {:<26} {}", "all light ones", self.light().row());
    }

    fn json(&self) -> Value {
        let each = self.functions.iter().enumerate().map(|(at, function)| {
            json!({
                "function": function.name,
                "share": function.share,
                "times": self.over(|round| round.each[at]),
            })
        });
        json!({
            "name": self.name,
            "capacity": self.rounds.iter().map(|round| round.capacity).collect::<Vec<_>>(),
            "functions": each.collect::<Vec<_>>(),
            "light": self.light(),
            "sent_late": self.late(),
        })
    }
}
