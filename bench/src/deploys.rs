//! From a deploy until it is ready, of a function's first version, its next ones and another function of the language; and what the compile cache spares,
//! beside compiling without one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use fdn_core::ByteSize;
use fdn_runtime::{CacheUse, CompileCache, CompileReport, CompileWorker};

use crate::cold::FUNCTIONS;
use crate::network::Network;
use crate::{Options, median};

/// Versions after the first one.
const NEXT: u32 = 3;
/// Names by which the functions are deployed a second time.
const OTHER: &str = "other";

pub(crate) fn run(options: &Options) -> Result<()> {
    println!(
        "deploys: seconds of `fdn deploy` until it is ready on six nodes of `fdn up`, all on this machine: first version, next one (median of {NEXT}), another function of the language"
    );
    println!(
        "and of compiling alone, all cores: without the compile cache, with one that is empty, the next version and the other function with one that has the first version (median of {} each)",
        options.rounds
    );
    println!(
        "{:<12} {:>8} {:>8} {:>8} {:>12} {:>8} {:>8} {:>8} {:>16} {:>16}",
        "function",
        "first",
        "next",
        "another",
        "compile off",
        "empty",
        "next",
        "another",
        "found of next",
        "of another"
    );
    for (name, component, manifest, _) in FUNCTIONS {
        let path = options.functions.join(component);
        if !path.is_file() {
            println!(
                "({name} left out: {} is not built; make functions)",
                path.display()
            );
            continue;
        }
        let manifest = std::fs::read_to_string(options.functions.join(manifest))?;
        let folder = tempfile::tempdir()?;
        let of = |kind: &str, number: u32| {
            let built = options.versions.as_ref();
            let built = built.map(|folder| folder.join(format!("{name}-{kind}.wasm")));
            let built = built.filter(|built| built.is_file());
            version(
                built.as_deref().unwrap_or(&path),
                number,
                folder.path().join(format!("{kind}-{number}.wasm")),
            )
        };
        let versions = Versions {
            next: (1..=NEXT)
                .map(|number| of("next", number))
                .collect::<Result<_>>()?,
            other: of(OTHER, 0)?,
            first: path,
        };
        let deployed = deploy(options, name, &versions, &manifest)?;
        let compiled = compile(options, &versions)?;
        println!(
            "{name:<12} {:>8.2} {:>8.2} {:>8.2} {:>12.2} {:>8.2} {:>8.2} {:>8.2} {:>16} {:>16}",
            deployed[0],
            deployed[1],
            deployed[2],
            compiled.off,
            compiled.empty,
            compiled.next,
            compiled.other,
            compiled.found_next,
            compiled.found_other
        );
    }
    Ok(())
}

/// The components of a function.
struct Versions {
    first: PathBuf,
    next: Vec<PathBuf>,
    other: PathBuf,
}

/// Another version of a component: the same but for a custom section, as one whose source is data of the language's engine differs in data.
fn version(component: &Path, number: u32, to: PathBuf) -> Result<PathBuf> {
    let mut bytes = std::fs::read(component)?;
    let (name, content) = (b"version", number.to_le_bytes());
    let size = u8::try_from(1 + name.len() + content.len())?;
    bytes.extend([0, size, u8::try_from(name.len())?]);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(&content);
    std::fs::write(&to, bytes)?;
    Ok(to)
}

/// Seconds of the first version, of the next ones, and of another function.
fn deploy(options: &Options, name: &str, versions: &Versions, manifest: &str) -> Result<[f64; 3]> {
    let network = Network::six(options)?;
    let deploy = |name: &str, component: &Path| {
        let begin = Instant::now();
        network.deploy(name, component, manifest)?;
        anyhow::Ok(begin.elapsed().as_secs_f64())
    };
    let first = deploy(name, &versions.first)?;
    let next = versions.next.iter().map(|version| deploy(name, version));
    let next = next.collect::<Result<Vec<_>>>()?;
    let another = deploy(&format!("{name}-{OTHER}"), &versions.other)?;
    Ok([first, median(next), another])
}

struct Compiled {
    off: f64,
    empty: f64,
    next: f64,
    other: f64,
    found_next: String,
    found_other: String,
}

/// Compiles as the controller does, with the programs' own compiler.
fn compile(options: &Options, versions: &Versions) -> Result<Compiled> {
    let folder = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let worker = CompileWorker {
        exe: options.binaries.join("fdn"),
        threads: std::thread::available_parallelism()?.get(),
        ..CompileWorker::default()
    };
    let output = folder.path().join("out.cwasm");
    let compile = |component: &Path, cache: Option<&CompileCache>| -> Result<CompileReport> {
        Ok(runtime.block_on(worker.compile(component, &output, cache))?)
    };
    // What comes out must not depend on the cache.
    let alone = |component: &Path| anyhow::Ok(compile(component, None)?.compiled_digest);
    let (next, other) = (&versions.next[0], &versions.other);
    let expected = [alone(&versions.first)?, alone(next)?, alone(other)?];
    let mut seconds: [Vec<f64>; 4] = Default::default();
    let mut found = [String::new(), String::new()];
    for round in 0..options.rounds {
        let packs = |kind: &str| {
            let packs = folder.path().join(format!("packs-{kind}-{round}"));
            CompileCache::open(packs, ByteSize::from_mib(1024))
        };
        let (cache, second) = (packs("next")?, packs(OTHER)?);
        let runs = [
            (&versions.first, None),
            (&versions.first, Some(&cache)),
            (next, Some(&cache)),
            // Without what the next version has added.
            (&versions.first, Some(&second)),
            (other, Some(&second)),
        ];
        let reports = runs.map(|(component, cache)| compile(component, cache));
        let [off, empty, next, _, other] = reports;
        let reports = [off?, empty?, next?, other?];
        for (report, at) in reports.iter().zip([0, 0, 1, 2]) {
            ensure!(
                report.compiled_digest == expected[at],
                "with the cache the machine code is another one"
            );
        }
        for (seconds, report) in seconds.iter_mut().zip(&reports) {
            seconds.push(report.took.as_secs_f64());
        }
        found = [&reports[2], &reports[3]].map(|report| shown(report.cache.as_ref()));
    }
    let [found_next, found_other] = found;
    let [off, empty, next, other] = seconds.map(median);
    Ok(Compiled {
        off,
        empty,
        next,
        other,
        found_next,
        found_other,
    })
}

fn shown(found: Option<&CacheUse>) -> String {
    found.map_or_else(String::new, |cache| {
        format!("{} of {}", cache.hits, cache.hits + cache.misses)
    })
}
