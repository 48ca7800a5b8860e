//! What a task costs the head's own thread: choosing by the tree over all nodes, or handing it out to pre-schedulers and committing their
//! list; and what the pre-scheduler pays. So many tasks are handed out before the first list comes back.
//!
//! Pre-schedulers are worth it where handing out and committing together cost less than choosing: else the head's thread, which is the
//! bottleneck, does more with them than without, however many cores there are.

#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "printing measured times is what this program is for"
)]

use std::time::{Duration, Instant};

use fdn_core::{MebiBytes, MilliCpu, Millis, Resources};
use fdn_scheduling::commit::{Choice, List, ListRequest, NodeSelection, PreScheduler, View};
use fdn_scheduling::instance::{
    Action, ByRoom, Global, GlobalSettings, ListSettings, NodeIndex, NodeReport, Task, TaskId,
    Term, ToGlobal, ToNode,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CAPACITY: Resources = Resources::new(MilliCpu(64_000), MebiBytes(256 * 1024));
const DEMAND: Resources = Resources::new(MilliCpu(1000), MebiBytes(1024));
const BATCH: u64 = 64;
const SAMPLE: usize = 50;

/// How full nodes are.
#[derive(Clone, Copy, Debug)]
enum Full {
    /// Every one has room.
    Half,
    /// One in fifty has.
    Nearly,
    /// As before, and the others have enough of one class, but not of the other.
    Stranded,
}

fn free(full: Full, rng: &mut ChaCha8Rng) -> Resources {
    let some = |rng: &mut ChaCha8Rng| {
        Resources::new(
            MilliCpu(rng.random_range(2000..32_000)),
            MebiBytes(rng.random_range(2048..128 * 1024)),
        )
    };
    let has_room = rng.random_range(0..50) == 0;
    match full {
        Full::Half => some(rng),
        Full::Nearly | Full::Stranded if has_room => some(rng),
        Full::Nearly => Resources::new(MilliCpu(500), MebiBytes(512)),
        Full::Stranded if rng.random() => Resources::new(MilliCpu(500), some(rng).memory_mib),
        Full::Stranded => Resources::new(some(rng).cpu_milli, MebiBytes(512)),
    }
}

struct World {
    global: Global<Resources>,
    free: Vec<Resources>,
    versions: Vec<u64>,
    actions: Vec<Action<Resources>>,
    now: Millis,
    next: u64,
}

impl World {
    fn new(nodes: u32, full: Full, with_lists: bool) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(u64::from(nodes));
        let settings = GlobalSettings {
            memory: Millis::new(1.0),
            memory_limit: 1 << 12,
            queue: 1 << 12,
            ..GlobalSettings::for_round_trip(Millis::new(1e6))
        };
        let mut global = Global::new(&vec![CAPACITY; nodes as usize], settings);
        if with_lists {
            global = global.with_lists(ListSettings {
                in_flight: BATCH as usize,
                ..ListSettings::default()
            });
        }
        let mut world = Self {
            global,
            free: (0..nodes).map(|_| free(full, &mut rng)).collect(),
            versions: vec![0; nodes as usize],
            actions: Vec::new(),
            now: Millis::ZERO,
            next: 0,
        };
        for node in 0..nodes {
            world.notice(NodeIndex(node), 0);
        }
        world
    }

    /// A node has what it had, whatever was placed there: it has ended.
    fn notice(&mut self, node: NodeIndex, seen: u64) {
        self.versions[node.get()] += 1;
        let report = NodeReport {
            node,
            version: self.versions[node.get()],
            free: self.free[node.get()],
            term: Term(0),
            seen,
        };
        let message = ToGlobal::Notice(report);
        self.global.receive(self.now, message, &mut self.actions);
    }

    fn forward(&mut self) {
        self.now += Millis::new(10.0);
        for _ in 0..BATCH {
            let task = Task {
                id: TaskId(self.next),
                attempt: 1,
                leg: 1,
                demand: DEMAND,
                remaining: Millis::new(50.0),
                deadline: self.now + Millis::new(20.0),
            };
            self.next += 1;
            let message = ToGlobal::Forward(task, Term(0));
            self.global.receive(self.now, message, &mut self.actions);
        }
    }

    /// Everything that was placed ends; how many that was.
    fn end_all(&mut self) -> u64 {
        let mut placed = 0;
        for action in std::mem::take(&mut self.actions) {
            if let Action::Node(node, ToNode::Place(_, _, serial)) = action {
                placed += 1;
                self.notice(node, serial);
            }
        }
        placed
    }
}

/// Microseconds of each of so many.
fn micros(time: Duration, count: u64) -> f64 {
    time.as_secs_f64() * 1e6 / count as f64
}

fn choosing(nodes: u32, full: Full, rounds: u64) -> f64 {
    let mut world = World::new(nodes, full, false);
    let (mut time, mut placed) = (Duration::ZERO, 0);
    for _ in 0..rounds {
        world.forward();
        let started = Instant::now();
        while world.global.decide(world.now, &mut world.actions) {}
        time += started.elapsed();
        placed += world.end_all();
    }
    micros(time, placed.max(1))
}

/// Per task that was placed: handing out, making lists, committing; and the share of lists whose first node had changed.
fn listing(nodes: u32, full: Full, rounds: u64) -> [f64; 4] {
    let mut world = World::new(nodes, full, true);
    let choice = Choice {
        selection: NodeSelection::Sample(SAMPLE),
        ..Choice::default()
    };
    let mut scheduler = PreScheduler::new(ByRoom, choice);
    let (mut view, mut rng) = (View::default(), ChaCha8Rng::seed_from_u64(7));
    let mut times = [Duration::ZERO; 3];
    let (mut placed, mut lists, mut conflicts) = (0, 0, 0);
    for _ in 0..rounds {
        world.forward();
        loop {
            let started = Instant::now();
            let take = || world.global.take(world.now, &mut world.actions);
            let wanted: Vec<ListRequest> = std::iter::from_fn(take).collect();
            times[0] += started.elapsed();
            if wanted.is_empty() {
                break;
            }
            let started = Instant::now();
            view.read(world.global.records().expect("it keeps them"));
            let mut made = vec![List::default(); wanted.len()];
            for (wanted, list) in wanted.iter().zip(&mut made) {
                scheduler.list_for(wanted, view.records(), &mut rng, list);
            }
            times[1] += started.elapsed();
            let started = Instant::now();
            for list in &made {
                let commit = world.global.commit(world.now, list, &mut world.actions);
                conflicts += u64::from(commit.conflict);
            }
            times[2] += started.elapsed();
            lists += made.len() as u64;
        }
        placed += world.end_all();
    }
    let [take, make, commit] = times.map(|time| micros(time, placed.max(1)));
    [
        take,
        make,
        commit,
        conflicts as f64 / f64::from(u32::try_from(lists.max(1)).unwrap_or(1)),
    ]
}

fn main() {
    println!(
        "the head's thread per task, in microseconds: choosing by the tree, or handing out and committing lists of 8 made elsewhere\n\
         (samples of {SAMPLE} nodes, {BATCH} tasks out at a time); conflicts: lists whose first node had changed\n\
         {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "nodes", "full", "choosing", "lists", "taking", "commit", "(making)", "conflicts"
    );
    for full in [Full::Half, Full::Nearly, Full::Stranded] {
        for nodes in [12, 100, 1000, 10_000] {
            let rounds = 300;
            let chosen = choosing(nodes, full, rounds);
            let [take, make, commit, conflicts] = listing(nodes, full, rounds);
            println!(
                "{nodes:>7} {:>9} {chosen:>9.2} {:>9.2} {take:>9.2} {commit:>9.2} {make:>9.2} {conflicts:>9.2}",
                format!("{full:?}").to_lowercase(),
                take + commit
            );
        }
    }
}
