//! A process with a usage spool is killed (`kill -9`) again and again. No record of an answered call may be lost, and none may be counted twice.
//!
//! The process is this same program: it answers every line on a connection with the same line, once the record of that line is in the spool, and
//! hands over sums of its records to a receiver in the test. Every third line is also recorded before that, like a call whose response begins
//! while it runs. The receiver loses some of the confirmations and is never killed. All runs use one folder, so what one run leaves behind is
//! what the next one finds.
//!
//! The short form kills after a number of answers drawn from a fixed seed. The long form, `soak::`, kills at random times and prints its seed;
//! set `SEED` to repeat it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test with a main of its own says how it went"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use fdn_core::usage::{
    CallFacts, CallRecord, InterimUsage, UsageOutcome, UsageRecord, UsageSum, UsageSums,
};
use fdn_core::{ByteSize, DurationMs, InvocationId, MebiBytes, Timestamp, VersionNumber};
use fdn_spool::{
    AnswerAfter, Batch, DeliverError, Shipper, Sink, Spool, SpoolMetrics, SpoolSettings,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The number of kills in the short form.
const FEW: u64 = 15;
/// The number of kills in the long form.
const MANY: u64 = 100;
/// The seed of the short form.
const SEED: u64 = 12;
/// The number of concurrent callers.
const CALLERS: u64 = 4;
/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(60);
const SERVE: &str = "--serve";

/// The tests, by the names that the usual harness would give them.
static TESTS: [(&str, fn()); 4] = [
    ("written", || short("written")),
    ("synced", || short("synced")),
    ("soak::written", || long("written")),
    ("soak::synced", || long("synced")),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(at) = args.iter().position(|arg| arg == SERVE) {
        serve(Path::new(&args[at + 1]), &args[at + 2], &args[at + 3]);
        return ExitCode::SUCCESS;
    }
    let wanted = Wanted::of(&args);
    let chosen = TESTS.iter().filter(|(name, _)| wanted.takes(name));
    if args.iter().any(|arg| arg == "--list") {
        chosen.for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    run_all(&chosen.copied().collect::<Vec<_>>())
}

/// Runs the tests and reports like the usual harness, for tools that count tests.
fn run_all(chosen: &[(&str, fn())]) -> ExitCode {
    let mut failed = Vec::new();
    for (name, test) in chosen {
        // The panic's message has been printed already.
        let is_ok = catch_unwind(AssertUnwindSafe(test)).is_ok();
        println!("test {name} ... {}", if is_ok { "ok" } else { "FAILED" });
        if !is_ok {
            failed.push(*name);
        }
    }
    if !failed.is_empty() {
        println!("\nfailures:\n    {}\n", failed.join("\n    "));
    }
    println!(
        "test result: {}. {} passed; {} failed; 0 ignored; 0 measured; {} filtered out",
        if failed.is_empty() { "ok" } else { "FAILED" },
        chosen.len() - failed.len(),
        failed.len(),
        TESTS.len() - chosen.len(),
    );
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(101)
    }
}

/// The tests that the arguments select, as far as the usual harness's arguments are supported here: `--skip PART`, `--exact`, and parts of names.
#[derive(Default)]
struct Wanted {
    parts: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
}

impl Wanted {
    fn of(args: &[String]) -> Self {
        let mut wanted = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--skip" => wanted.skipped.extend(args.next().cloned()),
                "--exact" => wanted.exact = true,
                // Their values are not names of tests.
                "--test-threads" | "--format" | "--color" | "--logfile" | "-Z" => {
                    args.next();
                }
                option if option.starts_with('-') => {}
                part => wanted.parts.push(part.to_owned()),
            }
        }
        wanted
    }

    fn takes(&self, name: &str) -> bool {
        let is_it = |part: &String| {
            let is_equal = name == part;
            is_equal || !self.exact && name.contains(part.as_str())
        };
        (self.parts.is_empty() || self.parts.iter().any(is_it)) && !self.skipped.iter().any(is_it)
    }
}

// --- the process that is killed

fn settings(mode: &str) -> SpoolSettings {
    SpoolSettings {
        size: ByteSize::from_mib(64),
        // Small and short-lived, so that every kind of step happens in every run.
        segment: ByteSize::from_bytes(8 << 10),
        answer_after: match mode {
            "synced" => AnswerAfter::Synced,
            _ => AnswerAfter::Written,
        },
        batch_window: DurationMs::from_millis(1),
        seal_after: DurationMs::from_millis(15),
        retry_first: DurationMs::from_millis(1),
        retry_max: DurationMs::from_millis(5),
        ..SpoolSettings::default()
    }
}

fn serve(folder: &Path, mode: &str, receiver: &str) {
    let receiver: SocketAddr = receiver.parse().expect("an address");
    let node: fdn_core::NodeId = "n-1".parse().expect("node");
    let metrics = SpoolMetrics::new(&prometheus::Registry::new(), &node).expect("metrics");
    let spool = Spool::open(folder, settings(mode), metrics).expect("the spool opens");
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let shipper = Shipper {
        spool: spool.clone(),
        sink: ToReceiver(receiver),
        node,
    };
    runtime.spawn(shipper.run(CancellationToken::new()));
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    println!("{}", listener.local_addr().expect("address"));
    for stream in listener.incoming().flatten() {
        let (spool, handle) = (spool.clone(), runtime.handle().clone());
        thread::spawn(move || {
            let mut answers = stream.try_clone().expect("a second handle");
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if line == "empty?" {
                    let answer = if spool.is_empty() { "yes\n" } else { "no\n" };
                    answers.write_all(answer.as_bytes()).expect("answered");
                    continue;
                }
                let place = spool.reserve().expect("there is room");
                let number = line.parse().expect("a number");
                for record in records(number) {
                    let receipt = place.record(&record).expect("written");
                    handle.block_on(receipt.wait()).expect("safe");
                }
                if answers.write_all(format!("{line}\n").as_bytes()).is_err() {
                    return;
                }
            }
        });
    }
}

/// The records of a call. Its number is used as the version, so that each call has a sum of its own.
fn records(number: u64) -> Vec<CallRecord> {
    let ended = UsageRecord {
        invocation: InvocationId::from_uuid(Uuid::from_u128(u128::from(number))),
        app: "thumbs".parse().expect("app"),
        function: "thumbs".parse().expect("function"),
        version: VersionNumber::try_from(u32::try_from(number).expect("small")).expect("not 0"),
        started_at: Timestamp(number),
        duration_us: 1,
        cpu_us: 1,
        memory_mib: MebiBytes(64),
        gpu_memory_mib: MebiBytes(0),
        egress_bytes: 2 * number,
        outcome: UsageOutcome::Ok,
    };
    let running = UsageRecord {
        egress_bytes: number,
        outcome: UsageOutcome::Running,
        ..ended.clone()
    };
    let of = |used, noted| CallRecord {
        used,
        call: Some(CallFacts::default()),
        noted,
    };
    if number.is_multiple_of(3) {
        let noted = InterimUsage::of(&running);
        vec![of(running, None), of(ended, noted)]
    } else {
        vec![of(ended, None)]
    }
}

struct ToReceiver(SocketAddr);

#[async_trait]
impl Sink for ToReceiver {
    async fn deliver(&self, batch: &Batch) -> Result<(), DeliverError> {
        let Batch::Sums(batch) = batch else {
            return Err(DeliverError::Rejected("records".to_owned()));
        };
        let bytes = serde_json::to_vec(batch).expect("a batch is JSON");
        let address = self.0;
        let sent = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(&(bytes.len() as u64).to_le_bytes())?;
            stream.write_all(&bytes)?;
            stream.read_exact(&mut [0])
        });
        let later = |e: &dyn std::fmt::Display| DeliverError::Retryable(e.to_string());
        sent.await.map_err(|e| later(&e))?.map_err(|e| later(&e))
    }
}

// --- the test

#[derive(Default)]
struct Stored {
    batches: BTreeMap<fdn_core::BatchId, Vec<UsageSum>>,
    /// The number of repeated deliveries.
    again: u64,
}

/// Accepts batches as the controller does: a known batch is confirmed and not counted.
fn receiver(stored: Arc<Mutex<Stored>>, seed: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    thread::spawn(move || {
        let mut rng = StdRng::seed_from_u64(seed);
        // The first complete batch is always left unconfirmed, so that something is sent again even in a short run.
        let mut is_first = true;
        for stream in listener.incoming().flatten() {
            // A process that is killed in the middle of a batch sends only part of it.
            let lose = rng.random_bool(0.2) || is_first;
            is_first &= take(stream, &stored, lose).is_err();
        }
    });
    address
}

fn take(mut stream: TcpStream, stored: &Mutex<Stored>, lose: bool) -> std::io::Result<()> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).expect("a length")];
    stream.read_exact(&mut bytes)?;
    let batch: UsageSums = serde_json::from_slice(&bytes).expect("a batch");
    let mut stored = stored.lock().expect("lock");
    match stored.batches.get(&batch.batch) {
        Some(before) => {
            assert_eq!(*before, batch.sums, "a batch is always the same");
            stored.again += 1;
        }
        None => drop(stored.batches.insert(batch.batch, batch.sums)),
    }
    if lose {
        return Ok(());
    }
    stream.write_all(&[1])
}

struct Process(Child);

impl Process {
    fn start(folder: &Path, mode: &str, receiver: SocketAddr) -> (Self, SocketAddr) {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .arg(SERVE)
            .arg(folder)
            .args([mode, &receiver.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        let address = line.trim().parse().expect("an address");
        (Self(child), address)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL: the process executes nothing after this.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// When a process is killed.
#[derive(Clone, Copy)]
enum Kill {
    /// After it has run for this long.
    After(Duration),
    /// After this many of its answers were received, however long that takes.
    Answered(u64),
}

/// State shared by the callers of one process.
#[derive(Default)]
struct Calls {
    heard: AtomicU64,
    stop: AtomicBool,
}

impl Calls {
    /// Waits until it is time to kill; `false` after the timeout.
    fn until(&self, kill: Kill) -> bool {
        let wanted = match kill {
            Kill::After(life) => {
                thread::sleep(life);
                return true;
            }
            Kill::Answered(wanted) => wanted,
        };
        let deadline = Instant::now() + PATIENCE;
        while self.heard.load(Ordering::Relaxed) < wanted {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }
}

/// Makes calls until the process is gone; returns the answered ones.
fn caller(address: SocketAddr, next: &AtomicU64, calls: &Calls) -> Vec<u64> {
    let mut answered = Vec::new();
    let Ok(mut stream) = TcpStream::connect(address) else {
        return answered;
    };
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    while !calls.stop.load(Ordering::Relaxed) {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let mut line = String::new();
        let asked = stream.write_all(format!("{number}\n").as_bytes());
        if asked.is_err() || !matches!(answers.read_line(&mut line), Ok(read) if read > 0) {
            return answered;
        }
        // A partial line is not an answer.
        if line.ends_with('\n') {
            assert_eq!(line.trim(), number.to_string());
            answered.push(number);
            calls.heard.fetch_add(1, Ordering::Relaxed);
        }
    }
    answered
}

fn run(folder: &Path, mode: &str, receiver: SocketAddr, next: &AtomicU64, kill: Kill) -> Vec<u64> {
    let (process, address) = Process::start(folder, mode, receiver);
    let calls = Calls::default();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| scope.spawn(|| caller(address, next, &calls)))
            .collect();
        let is_time = calls.until(kill);
        // Killed first, so that the callers end.
        drop(process);
        calls.stop.store(true, Ordering::Relaxed);
        assert!(is_time, "the process does not answer");
        callers
            .into_iter()
            .flat_map(|c| c.join().expect("a caller"))
            .collect()
    })
}

/// Runs the process until it has handed everything over.
fn drain(folder: &Path, mode: &str, receiver: SocketAddr) {
    let (_process, address) = Process::start(folder, mode, receiver);
    let mut stream = TcpStream::connect(address).expect("connected");
    let mut answers = BufReader::new(stream.try_clone().expect("a second handle"));
    let deadline = Instant::now() + PATIENCE;
    loop {
        stream.write_all(b"empty?\n").expect("asked");
        let mut line = String::new();
        answers.read_line(&mut line).expect("answered");
        if line.trim() == "yes" {
            return;
        }
        assert!(Instant::now() < deadline, "the spool does not get empty");
        thread::sleep(Duration::from_millis(5));
    }
}

fn short(mode: &str) {
    let answered = test(mode, SEED, FEW, |rng| {
        Kill::Answered(rng.random_range(0..40))
    });
    assert!(answered > 0, "some kills come after answers");
}

fn long(mode: &str) {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| rand::rng().random::<u32>().into());
    let answered = test(mode, seed, MANY, |rng| {
        Kill::After(Duration::from_micros(rng.random_range(0..60_000)))
    });
    assert!(answered > MANY, "most runs answered something: {answered}");
}

/// Kills the process `kills` times; returns the number of answered calls.
fn test(mode: &str, seed: u64, kills: u64, kill: impl Fn(&mut StdRng) -> Kill) -> u64 {
    println!("power_loss: answers after records are {mode}, SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let folder = tempfile::tempdir().expect("folder");
    let path: PathBuf = folder.path().join("usage");
    let stored = Arc::new(Mutex::new(Stored::default()));
    let receiver = receiver(Arc::clone(&stored), seed);
    let next = AtomicU64::new(1);
    let mut answered = BTreeSet::new();
    for _ in 0..kills {
        let kill = kill(&mut rng);
        answered.extend(run(&path, mode, receiver, &next, kill));
    }
    drain(&path, mode, receiver);
    let stored = stored.lock().expect("lock");
    // For each call, how often it was counted and with how many bytes: those of its last record.
    let mut counted = BTreeMap::<u64, (i64, i64)>::new();
    for sum in stored.batches.values().flatten() {
        let (calls, egress) = counted.entry(sum.version.get().into()).or_default();
        *calls += sum.calls;
        *egress += sum.egress;
    }
    let whole = |n: u64| Some((1, 2 * i64::try_from(n).expect("small")));
    let lost: Vec<_> = answered
        .iter()
        .filter(|n| counted.get(n).copied() != whole(**n))
        .collect();
    assert!(
        lost.is_empty(),
        "answered and lost, or not as they ended: {lost:?}"
    );
    let noted = |n: u64| {
        n.is_multiple_of(3)
            .then_some((1, i64::try_from(n).expect("small")))
    };
    let twice: Vec<_> = counted
        .iter()
        .filter(|(n, times)| Some(**times) != whole(**n) && Some(**times) != noted(**n))
        .collect();
    assert!(
        twice.is_empty(),
        "counted twice, or as nobody wrote: {twice:?}"
    );
    let strange: Vec<_> = counted
        .keys()
        .filter(|n| **n >= next.load(Ordering::Relaxed))
        .collect();
    assert!(strange.is_empty(), "never asked for: {strange:?}");
    assert!(stored.again > 0, "confirmations were lost");
    println!(
        "power_loss: {kills} kills, {} calls answered, {} counted in {} batches, {} batches sent again: none lost, none twice",
        answered.len(),
        counted.len(),
        stored.batches.len(),
        stored.again,
    );
    answered.len() as u64
}
