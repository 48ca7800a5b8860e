//! How long a filter over packed devices takes, beside a loop that takes every word apart: `cargo bench -p fdn-scheduling
//! --bench resource`.
//!
//! All read the same words of the same nodes and give the same set. Decode-and-loop takes the quantities of a node out of its word
//! ([`Layout::unpack`], the naive decode that the tests hold the packed queries against) and counts those that are enough; beside it
//! stand loops that decode as they go: until enough devices are found, and two written for just 8 devices. The ratios are printed.
//! Further: the whole filter of a cluster, and the choice of a node.

use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fdn_core::{MebiBytes, MilliCpu};
use fdn_scheduling::resource::{
    DeviceChoice, DeviceRequest, Fleet, GpuMilli, Layout, NodeIndex, NodeSet, NodeSpec, Packed,
    Request, Score, Selector, Typical, Units, Vector,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DEVICES: u32 = 8;

/// Nodes of 8 devices with 127 units each, of which most are in use.
fn busy(nodes: usize) -> Fleet<u64> {
    let capacity = Vector::new(MilliCpu(64_000), MebiBytes(262_144));
    let spec = NodeSpec::new(capacity, DEVICES, Units(127));
    let mut fleet = Fleet::new(&vec![spec; nodes]).expect("8 devices of 7 bits");
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for node in (0..nodes).map(NodeIndex::new) {
        for device in 0..DEVICES {
            let request = Request {
                classes: Vector::new(MilliCpu(1000), MebiBytes(1024)),
                devices: DeviceRequest::share(Units(rng.random_range(60..=127))),
            };
            let devices = [device].into_iter().collect();
            fleet.take(node, &request, devices).expect("there is room");
        }
    }
    fleet
}

fn free(fleet: &Fleet<u64>) -> Vec<Packed<u64>> {
    let nodes = (0..fleet.len()).map(NodeIndex::new);
    nodes.map(|node| fleet.device_free(node)).collect()
}

/// Decode-and-loop: all quantities of a node, then how many of them are enough.
#[inline(never)]
fn decode(free: &[Packed<u64>], layout: &Layout<u64>, wanted: u64, count: u32, set: &mut Vec<u64>) {
    let mut quantities = [Units(0); DEVICES as usize];
    set.clear();
    for chunk in free.chunks(64) {
        let mut passed = 0;
        for (at, &packed) in chunk.iter().enumerate() {
            for (to, quantity) in quantities.iter_mut().zip(layout.unpack(packed)) {
                *to = quantity;
            }
            let enough = quantities.iter().filter(|&&free| free >= Units(wanted));
            passed |= u64::from(enough.count() as u64 >= u64::from(count)) << at;
        }
        set.push(passed);
    }
}

/// The loop over what the layout says, as the packed filter has to take it too: takes out one device after the other, until
/// `count` of them are enough.
#[inline(never)]
fn take_apart(words: &[u64], layout: &Layout<u64>, wanted: u64, count: u32, set: &mut Vec<u64>) {
    let (devices, bits) = (layout.devices(), layout.bits());
    let mask = (1u64 << bits) - 1;
    set.clear();
    for chunk in words.chunks(64) {
        let mut passed = 0;
        for (at, &word) in chunk.iter().enumerate() {
            let mut found = 0;
            for device in 0..devices {
                found += u32::from((word >> (device * bits)) & mask >= wanted);
                if found == count {
                    break;
                }
            }
            passed |= u64::from(found == count) << at;
        }
        set.push(passed);
    }
}

/// The same loop unrolled for 8 devices, known beforehand, and without leaving early: the best that taking apart can be.
#[inline(never)]
fn take_eight_apart(words: &[u64], bits: u32, wanted: u64, count: u32, set: &mut Vec<u64>) {
    let mask = (1u64 << bits) - 1;
    set.clear();
    for chunk in words.chunks(64) {
        let mut passed = 0;
        for (at, &word) in chunk.iter().enumerate() {
            let found: u32 = (0..DEVICES)
                .map(|device| u32::from((word >> (device * bits)) & mask >= wanted))
                .sum();
            passed |= u64::from(found >= count) << at;
        }
        set.push(passed);
    }
}

/// For 8 devices, known beforehand, leaving early, the word shifted on by one device at a time.
#[inline(never)]
fn take_eight_apart_early(words: &[u64], bits: u32, wanted: u64, count: u32, set: &mut Vec<u64>) {
    let mask = (1u64 << bits) - 1;
    set.clear();
    for chunk in words.chunks(64) {
        let mut passed = 0;
        for (at, &word) in chunk.iter().enumerate() {
            let mut rest = word;
            let mut found = 0;
            for _ in 0..DEVICES {
                found += u32::from(rest & mask >= wanted);
                if found == count {
                    break;
                }
                rest >>= bits;
            }
            passed |= u64::from(found == count) << at;
        }
        set.push(passed);
    }
}

/// The median time of one run, in ns.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn median(mut run: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..501)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e9
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn request(count: u32, each: u64) -> Request {
    Request {
        devices: DeviceRequest::Slices {
            count,
            each: Units(each),
        },
        ..Request::default()
    }
}

#[expect(clippy::print_stdout, reason = "the ratio is what is asked for")]
fn packed_against_loop(c: &mut Criterion) {
    let fleet = busy(10_000);
    let free = free(&fleet);
    let words: Vec<u64> = free.iter().map(|packed| packed.word()).collect();
    let layout = fleet.layout();
    let mut group = c.benchmark_group("10000 nodes, 8 devices");
    group.sample_size(20);
    // From what most nodes have to what few have.
    for (count, wanted) in [(1, 40), (1, 60), (1, 66), (2, 48), (2, 60)] {
        let mut set = NodeSet::with_room(words.len());
        let mut plain = Vec::with_capacity(words.len().div_ceil(64));
        let request = request(count, wanted);
        let name = |what| BenchmarkId::new(what, format!("{count} of at least {wanted}"));
        group.bench_function(name("packed"), |b| {
            b.iter(|| fleet.filter(black_box(&request), &mut set));
        });
        group.bench_function(name("decode-and-loop"), |b| {
            b.iter(|| decode(&free, layout, black_box(wanted), count, &mut plain));
        });
        group.bench_function(name("loop"), |b| {
            b.iter(|| take_apart(&words, layout, black_box(wanted), count, &mut plain));
        });
        let packed = median(|| fleet.filter(black_box(&request), &mut set));
        let decoded = median(|| decode(&free, layout, black_box(wanted), count, &mut plain));
        let looped = median(|| take_apart(&words, layout, black_box(wanted), count, &mut plain));
        let found: usize = plain.iter().map(|word| word.count_ones() as usize).sum();
        assert_eq!(set.count(), found, "both find the same nodes");
        let bits = layout.bits();
        let eight = median(|| take_eight_apart(&words, bits, black_box(wanted), count, &mut plain));
        let early =
            median(|| take_eight_apart_early(&words, bits, black_box(wanted), count, &mut plain));
        println!(
            "{count} device(s) with at least {wanted}, {found} nodes: packed {:.1} us, decode-and-loop {:.1} us ({:.1} x); \
             loops that decode as they go: leaving early {:.1} us ({:.1} x), for just 8 devices all {:.1} us ({:.1} x), leaving \
             early {:.1} us ({:.1} x)",
            packed / 1e3,
            decoded / 1e3,
            decoded / packed,
            looped / 1e3,
            looped / packed,
            eight / 1e3,
            eight / packed,
            early / 1e3,
            early / packed
        );
    }
    group.finish();
}

fn whole_filter(c: &mut Criterion) {
    let fleet = busy(1200);
    let mut set = NodeSet::with_room(fleet.len());
    let wanted = Request {
        classes: Vector::new(MilliCpu(4000), MebiBytes(16_384)),
        ..request(1, 60)
    };
    c.bench_function("filter of 1200 nodes, CPU, memory, 8 devices", |b| {
        b.iter(|| fleet.filter(black_box(&wanted), &mut set));
    });
    let layout = Layout::<u128>::new(8, 10).expect("80 bits");
    let free = layout
        .pack(&[0, 470, 1000, 530, 1000, 0, 250, 680].map(Units))
        .expect("below 1024");
    c.bench_function("device choice, 8 devices of 10 bits", |b| {
        b.iter(|| {
            let free: Packed<u128> = black_box(free);
            let among = layout.at_least(Units(320))?.matches(free);
            layout.choose(free, among, DeviceChoice::MostUsed)
        });
    });
}

fn choice(c: &mut Criterion) {
    let capacity = Vector::new(MilliCpu(96_000), MebiBytes(393_216));
    let spec = NodeSpec::new(capacity, 8, GpuMilli::WHOLE.units());
    let fleet = Fleet::<u128>::new(&vec![spec; 1200]).expect("80 bits");
    let share = |milli| Request {
        classes: Vector::new(MilliCpu(4000), MebiBytes(16_384)),
        devices: DeviceRequest::share(GpuMilli(milli).units()),
    };
    let usual = Typical::observed((1..=40).map(|n| share(n * 25)), 1.0);
    let mut group = c.benchmark_group("choice of 1200 nodes");
    group.sample_size(20).throughput(Throughput::Elements(1));
    for (name, score) in [
        ("least-requested", Score::LeastRequested),
        ("packing", Score::Packing),
        ("fragmentation", Score::Fragmentation(usual)),
    ] {
        let mut selector = Selector::new(score, DeviceChoice::MostUsed, fleet.len());
        group.bench_function(name, |b| {
            b.iter(|| selector.choose(&fleet, black_box(&share(470))));
        });
    }
    group.finish();
}

criterion_group!(benches, packed_against_loop, whole_filter, choice);
criterion_main!(benches);
