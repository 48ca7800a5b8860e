//! Seeded mutations of valid inputs, passed to the functions of the fuzz targets. Real fuzzing goes further, but needs a nightly compiler and
//! an hour.
//!
//! `SEED=n` selects other mutations; a failure prints its seed and the bytes. `CORPUS=folder` writes the inputs there, for cargo-fuzz.

#[path = "../../fuzz/harness.rs"]
mod harness;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::endpoints::{HELLO_A, OPT, OPT_CO, request};

/// The number of mutations of each input; soak tests make [`MANY`].
const FEW: u64 = 400;
const MANY: u64 = 4000;

/// A random number generator (splitmix64), so that a failure can be reproduced from its seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut n = self.0;
        n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound.max(1)).expect("small")).expect("small")
    }
}

/// Makes one to four changes: sets a byte, flips a bit, or removes, duplicates or copies a piece from another input.
fn mutate(bytes: &mut Vec<u8>, others: &[Vec<u8>], numbers: &mut Numbers) {
    for _ in 0..=numbers.below(4) {
        let at = numbers.below(bytes.len());
        let end = at + numbers.below(bytes.len() - at + 1).min(40);
        match numbers.below(6) {
            0 if !bytes.is_empty() => {
                bytes[at] = [0, 1, 0x3f, 0x40, 0x7f, 0xc0, 0xff][numbers.below(7)]
            }
            1 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
            2 => drop(bytes.drain(at..end)),
            3 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let other = &others[numbers.below(others.len())];
                let from = numbers.below(other.len());
                let piece = other[from..].iter().take(20).copied().collect::<Vec<_>>();
                bytes.splice(at..at, piece);
            }
            _ => bytes.truncate(end.max(1)),
        }
    }
}

fn run(name: &str, inputs: &[Vec<u8>], target: fn(&[u8]), rounds: u64) {
    if let Some(corpus) = std::env::var_os("CORPUS") {
        let folder = std::path::Path::new(&corpus).join(name);
        std::fs::create_dir_all(&folder).expect("the folder of the corpus");
        for (index, input) in inputs.iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{index}")), input).expect("a seed");
        }
    }
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    for (index, input) in inputs.iter().enumerate() {
        target(input);
        let mut numbers = Numbers(seed ^ u64::try_from(index).expect("few") << 32);
        for _ in 0..rounds {
            let mut bytes = input.clone();
            mutate(&mut bytes, inputs, &mut numbers);
            let result = catch_unwind(AssertUnwindSafe(|| target(&bytes)));
            assert!(result.is_ok(), "SEED={seed}: {bytes:02x?}");
        }
    }
}

fn requests(rounds: u64) {
    let with = |options: &[u8]| {
        let len = u8::try_from(options.len()).expect("short");
        request([1, 0, 0, 1], &[HELLO_A, &OPT[..9], &[0, len], options])
    };
    let wild: &[u8] = b"\x01x\x04wild\x02fn\x04test\x00\x00\x10\x00\x01";
    let cookie = b"\x00\x0a\x00\x18\x24\x64\xc4\xab\xcf\x10\xc9\x57\x01\x00\x00\x00\x5c\xf7\x9f\x11\x1f\x81\x30\xc3\xee\xe2\x94\x80";
    run(
        "request",
        &[
            request([1, 0, 0, 0], &[HELLO_A]),
            with(b"\x00\x08\x00\x07\x00\x01\x18\x00\xc0\x00\x02"),
            with(b"\x00\x08\x00\x07\x00\x01\x18\x00\xc0\x00\x02\xfe\x1d\x00\x00"),
            with(&[cookie.as_slice(), b"\x00\x03\x00\x00"].concat()),
            with(b"\x00\x08\x00\x0a\x00\x02\x30\x00\x20\x01\x0d\xb8\x00\x01\x00\x0c\x00\x04abcd"),
            request([0, 0, 0, 1], &[&OPT[..9], &[0, 28], cookie]),
            request([1, 0, 0, 1], &[wild, OPT]),
            request([1, 0, 0, 0], &[b"\x02fn\x04test\x00\x00\xff\x00\x01"]),
            request([2, 0, 0, 0], &[HELLO_A, b"\xc0\x0c\x00\x1c\x00\x01"]),
            request(
                [1, 1, 1, 1],
                &[
                    HELLO_A,
                    b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x01\x02\x03\x04",
                    HELLO_A,
                    OPT,
                ],
            ),
            request([1, 0, 0, 1], &[HELLO_A, OPT_CO]),
            request([1, 0, 0, 1], &[wild, OPT_CO]),
            request(
                [1, 0, 0, 1],
                &[b"\x06nobody\x02fn\x04test\x00\x00\x2f\x00\x01", OPT_CO],
            ),
            request(
                [1, 0, 0, 1],
                &[b"\x02fn\x04test\x00\x00\x30\x00\x01", OPT_CO],
            ),
            with(b"\x00\x0c\x00\x04\x00\x00\x00\x00"),
            harness::signed(request([1, 0, 0, 1], &[HELLO_A, OPT])),
            harness::signed(request(
                [1, 0, 0, 0],
                &[b"\x02fn\x04test\x00\x00\xfb\x00\x01"],
            )),
            request([1, 0, 0, 0], &[b"\x07version\x04bind\x00\x00\x10\x00\x03"]),
        ],
        harness::request,
        rounds,
    );
}

fn snapshots(rounds: u64) {
    let frames = harness::feed_frames();
    let file = harness::snapshot_file(&harness::desired_of(&frames).expect("a feed"));
    run("snapshot", &[frames, file], harness::snapshot, rounds);
}

fn texts(rounds: u64) {
    let texts = [
        harness::ZONE.to_owned(),
        "e5e973e5a6b2a43f48e7dc849e37bfcf\n445536bcd2513298075a5d379663c962\n".to_owned(),
        "*.a_b.fn.test.".to_owned(),
        // A regression: the name was displayed with an escape, which cannot be parsed.
        "-4".to_owned(),
        "2001:db8::/48".to_owned(),
        "[limit]\nexempt = [\"192.0.2.0/24\"]\nburst = \"5s\"\n[tcp]\nrequest = \"4KiB\"\n"
            .to_owned(),
    ];
    run(
        "text",
        &texts.map(String::into_bytes),
        harness::text,
        rounds,
    );
}

fn key_files(rounds: u64) {
    let texts = [
        harness::key_file(),
        format!("{}\n{}\n", "5a".repeat(32), "c3".repeat(32)),
    ];
    run(
        "keys",
        &texts.map(String::into_bytes),
        harness::keys,
        rounds,
    );
}

#[test]
fn mutated_requests() {
    requests(FEW);
}

#[test]
fn mutated_snapshots() {
    snapshots(FEW);
}

#[test]
fn mutated_texts() {
    texts(FEW);
}

#[test]
fn mutated_key_files() {
    key_files(FEW);
}

mod soak {
    use super::*;

    #[test]
    fn mutated_key_files() {
        key_files(MANY);
    }

    #[test]
    fn mutated_requests() {
        requests(MANY);
    }

    #[test]
    fn mutated_snapshots() {
        snapshots(MANY);
    }

    #[test]
    fn mutated_texts() {
        texts(MANY);
    }
}
