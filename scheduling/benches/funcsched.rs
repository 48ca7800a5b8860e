//! How long the scheduler of invocations takes for each event: `cargo bench -p fdn-scheduling --bench funcsched`.
//!
//! The queue is compared with the plain way to the same order: one binary heap over all waiting invocations, which must be
//! rebuilt whenever `W(j)` of a function passes between 0 and more, because the ranks of all its invocations change.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark reads the clock and prints what it found"
)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fdn_core::{MebiBytes, Millis};
use fdn_scheduling::invocation::{
    Action, ContainerId, FunctionIndex, Lru, Order, Profile, Queue, QueueLimits, RequestId,
    Scheduler, Settings,
};

const LIMITS: QueueLimits = QueueLimits {
    total: 2_000_000,
    per_function: 2_000_000,
};

/// Profiles that differ, without randomness.
fn profile(number: usize) -> Profile {
    let spread = |factor: usize, range: usize| (number * factor % range) as f64;
    let (execution, cold) = (1.0 + spread(7919, 5000), 300.0 + spread(104_729, 7700));
    let memory = MebiBytes(128 * (1 + (number * 31 % 4) as u64));
    Profile::new(Millis::new(execution), Millis::new(cold), memory).expect("a valid profile")
}

/// Scatters numbers over a range.
const fn scatter(number: u64, range: usize) -> usize {
    (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as usize % range
}

fn filled(functions: usize, waiting: u64) -> Queue {
    let mut queue = Queue::new(Order::FuncSched, LIMITS, false);
    for number in 0..functions {
        queue.add_function(profile(number));
    }
    for number in 0..waiting {
        let function = FunctionIndex::new(scatter(number, functions));
        let arrival = Millis::new(number as f64);
        queue
            .push(function, RequestId(number), arrival)
            .expect("room");
    }
    queue
}

/// One enqueue and one dequeue, with as many waiting as before.
fn enqueue_dequeue(queue: &mut Queue, functions: usize, number: u64) {
    let function = FunctionIndex::new(scatter(number, functions));
    let arrival = Millis::new(number as f64);
    queue
        .push(function, RequestId(number), arrival)
        .expect("room");
    let first = queue.first().expect("many wait");
    black_box(queue.pop(first));
}

type Plain = BinaryHeap<Reverse<(Millis, Millis, usize, u64)>>;

fn plain_entry(
    number: u64,
    functions: usize,
    warm: &[bool],
) -> Reverse<(Millis, Millis, usize, u64)> {
    let function = scatter(number, functions);
    let rank = Millis::new(profile(function).memory_time(!warm[function]));
    Reverse((rank, Millis::new(number as f64), function, number))
}

fn queue(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    group.throughput(Throughput::Elements(1));
    let mut times = Vec::new();
    for (functions, waiting) in [(200, 10_000), (10_000, 1_000_000)] {
        let mut queue = filled(functions, waiting);
        let mut number = waiting;
        let name = format!("enqueue and dequeue, {functions} functions, {waiting} waiting");
        group.bench_function(&name, |b| {
            b.iter(|| {
                enqueue_dequeue(&mut queue, functions, number);
                number += 1;
            });
        });
        times.push((
            functions,
            waiting,
            measure(20_000, |step| {
                enqueue_dequeue(&mut queue, functions, number + step);
            }),
        ));
    }
    group.finish();
    println!(
        "\nfunctions  waiting  queue_us  plain_heap_us  plain_heap_rekeyed_us  bytes_per_waiting"
    );
    for (functions, waiting, ours) in times {
        let warm = vec![false; functions];
        let mut plain: Plain = (0..waiting)
            .map(|n| plain_entry(n, functions, &warm))
            .collect();
        let alone = measure(20_000, |step| {
            plain.push(plain_entry(waiting + step, functions, &warm));
            black_box(plain.pop());
        });
        // One function turns warm: a heap over invocations is rebuilt.
        let rekey = measure(3, |step| {
            let function = scatter(step, functions);
            let entries = std::mem::take(&mut plain).into_vec();
            plain = entries
                .into_iter()
                .map(|Reverse((rank, arrival, of, number))| {
                    let rank = if of == function {
                        Millis::new(rank.get() * 0.5)
                    } else {
                        rank
                    };
                    Reverse((rank, arrival, of, number))
                })
                .collect();
        });
        println!(
            "{functions:9}  {waiting:7}  {:8.3}  {:13.3}  {:21.1}  {:18}",
            micros(ours),
            micros(alone),
            micros(rekey),
            Queue::BYTES_EACH
        );
    }
}

fn measure(steps: u64, mut step: impl FnMut(u64)) -> Duration {
    let start = Instant::now();
    for number in 0..steps {
        step(number);
    }
    start.elapsed() / u32::try_from(steps).expect("few steps")
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A loaded scheduler: each event is an invocation that ends, for which a new one comes.
struct Loaded {
    scheduler: Scheduler,
    functions: usize,
    actions: Vec<Action>,
    /// Busy containers, and whether each still loads.
    busy: std::collections::VecDeque<(ContainerId, bool)>,
    number: u64,
    now: f64,
}

impl Loaded {
    fn new(functions: usize, waiting: usize, queue_or_cold: bool) -> Self {
        let settings = Settings {
            queue_or_cold,
            queue: LIMITS,
            ..Settings::default()
        };
        let mut scheduler = Scheduler::new(settings, Box::new(Lru)).expect("valid");
        let mut actions = Vec::new();
        for _ in 0..8 {
            let added = scheduler.add_worker(Millis::ZERO, MebiBytes(16_384), &mut actions);
            added.expect("room");
        }
        for number in 0..functions {
            scheduler.register(profile(number)).expect("room");
        }
        let mut loaded = Self {
            scheduler,
            functions,
            actions,
            busy: std::collections::VecDeque::new(),
            number: 0,
            now: 0.0,
        };
        while loaded.scheduler.waiting() < waiting {
            loaded.arrive();
        }
        loaded
    }

    fn arrive(&mut self) {
        let function = FunctionIndex::new(scatter(self.number, self.functions));
        let (now, request) = (Millis::new(self.now), RequestId(self.number));
        self.scheduler
            .arrive(now, request, function, &mut self.actions)
            .expect("taken");
        self.number += 1;
        self.act();
    }

    fn act(&mut self) {
        for action in self.actions.drain(..) {
            match action {
                Action::StartCold { container, .. } => self.busy.push_back((container, true)),
                Action::StartWarm { container, .. } => self.busy.push_back((container, false)),
                _ => {}
            }
        }
    }

    /// One event: a container is ready, or an invocation ends; and then an arrival if one has left the queue.
    fn step(&mut self) -> u32 {
        self.now += 0.1;
        let now = Millis::new(self.now);
        let (container, loads) = self.busy.pop_front().expect("all workers are busy");
        if loads {
            self.scheduler
                .ready(now, container, &mut self.actions)
                .expect("it loads");
            self.busy.push_back((container, false));
            self.act();
            return 1;
        }
        self.scheduler
            .finished(now, container, &mut self.actions)
            .expect("it runs");
        self.act();
        self.arrive();
        2
    }
}

fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("events");
    group.throughput(Throughput::Elements(1));
    for (functions, waiting) in [(200, 2_000), (10_000, 100_000)] {
        for queue_or_cold in [false, true] {
            let mut loaded = Loaded::new(functions, waiting, queue_or_cold);
            let kind = if queue_or_cold {
                "queue-or-cold"
            } else {
                "funcsched"
            };
            group.bench_function(
                format!("{kind}, {functions} functions, {waiting} waiting"),
                |b| {
                    b.iter_custom(|wanted| {
                        let start = Instant::now();
                        let mut done = 0;
                        while done < wanted {
                            done += u64::from(loaded.step());
                        }
                        start.elapsed()
                    });
                },
            );
        }
    }
    group.finish();
}

criterion_group!(benches, queue, events);
criterion_main!(benches);
