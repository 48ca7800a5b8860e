//! From a deploy until it is ready, of a function's first version and its next ones; and what the compile cache spares, beside compiling without one.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use fdn_core::ByteSize;
use fdn_runtime::{CompileCache, CompileReport, CompileWorker};

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
        "and of compiling alone, all cores: without the compile cache, with one that is empty, with one that has an earlier version (median of {} each)",
        options.rounds
    );
    println!(
        "{:<12} {:>8} {:>8} {:>8} {:>12} {:>8} {:>8} {:>16}",
        "function", "first", "next", "another", "compile off", "empty", "full", "found"
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
        let deployed = deploy(options, name, &path, &manifest)?;
        let compiled = compile(options, &path)?;
        println!(
            "{name:<12} {:>8.2} {:>8.2} {:>8.2} {:>12.2} {:>8.2} {:>8.2} {:>16}",
            deployed[0],
            deployed[1],
            deployed[2],
            compiled.off,
            compiled.empty,
            compiled.full,
            compiled.found
        );
    }
    Ok(())
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
fn deploy(options: &Options, name: &str, component: &Path, manifest: &str) -> Result<[f64; 3]> {
    let network = Network::six(options)?;
    let at = |file: &str| network.folder().join(file);
    let deploy = |name: &str, component: &Path| {
        let begin = Instant::now();
        network.deploy(name, component, manifest)?;
        anyhow::Ok(begin.elapsed().as_secs_f64())
    };
    let first = deploy(name, component)?;
    let next = (1..=NEXT)
        .map(|number| deploy(name, &version(component, number, at("next.wasm"))?))
        .collect::<Result<Vec<_>>>()?;
    let another = version(component, 0, at("another.wasm"))?;
    let another = deploy(&format!("{name}-{OTHER}"), &another)?;
    Ok([first, median(next), another])
}

struct Compiled {
    off: f64,
    empty: f64,
    full: f64,
    found: String,
}

/// Compiles as the controller does, with the programs' own compiler.
fn compile(options: &Options, component: &Path) -> Result<Compiled> {
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
    let seconds = |report: &CompileReport| report.took.as_secs_f64();
    let (mut off, mut empty, mut full) = (Vec::new(), Vec::new(), Vec::new());
    let mut found = String::new();
    let next = version(component, 1, folder.path().join("next.wasm"))?;
    for round in 0..options.rounds {
        let packs = folder.path().join(format!("packs-{round}"));
        let cache = CompileCache::open(packs, ByteSize::from_mib(1024))?;
        off.push(seconds(&compile(component, None)?));
        empty.push(seconds(&compile(component, Some(&cache))?));
        let report = compile(&next, Some(&cache))?;
        full.push(seconds(&report));
        let cache = report.cache.context("compiled with a cache")?;
        found = format!("{} of {}", cache.hits, cache.hits + cache.misses);
    }
    Ok(Compiled {
        off: median(off),
        empty: median(empty),
        full: median(full),
        found,
    })
}
