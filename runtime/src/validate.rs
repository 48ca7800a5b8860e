//! All checks of an upload, in order: size, format, exports, imports, compile, probe.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::api::ValidationStep;
use fdn_core::{ByteSize, Coded, Digest, ErrorCode, Millis};

use crate::artifact::{LEFTOVER_PREFIX, checksum_file, compiled_file_name};
use crate::call::CallContext;
use crate::compile::{CompileCache, CompileError, CompileReport, Compiler};
use crate::engine::Engine;
use crate::error::LoadError;
use crate::function::Function;
use crate::inspect::{self, InspectError, Inspection};
use crate::probe::{ProbeError, ProbeReport, probe};

/// The options for checking an upload.
#[derive(Clone)]
pub struct ValidateOptions {
    /// The largest accepted component.
    pub size_limit: ByteSize,
    /// The folder for compiled files; the compiled form of an accepted upload stays there.
    pub compiled_dir: PathBuf,
    /// The context of the probe call, with the manifest's limits, variables and allowed hosts.
    pub probe: CallContext,
    /// The compile cache: functions in it are not compiled again.
    pub cache: Option<CompileCache>,
}

/// An upload that passed all checks.
pub struct Validated {
    /// The checks and their results, in words.
    pub steps: Vec<ValidationStep>,
    /// The component's digest.
    pub digest: Digest,
    /// The description of the component.
    pub inspection: Inspection,
    /// Its compiled file.
    pub compiled: PathBuf,
    /// The compiler's report on that file.
    pub report: CompileReport,
    /// The answer to the probe.
    pub probe: ProbeReport,
    /// The loaded function.
    pub function: Arc<Function>,
}

/// Why an upload did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValidateError {
    /// The component is too large.
    #[error(
        "the component has {size} bytes, more than the limit of {limit}; make it smaller, for example with `wasm-tools strip` or an optimised build"
    )]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit.
        limit: ByteSize,
    },
    /// A file or folder cannot be used.
    #[error("cannot read or write {path} while validating")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The upload is not a function.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The component cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The compiled component cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The function did not pass the probe.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// An internal error: a bug of this crate.
    #[error("validation broke: {0}")]
    Internal(String),
}

impl Coded for ValidateError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } => ErrorCode::UploadTooLarge,
            Self::Read { .. } | Self::Internal(_) => ErrorCode::Internal,
            Self::Inspect(error) => error.code(),
            Self::Compile(error) => error.code(),
            Self::Load(error) => error.code(),
            Self::Probe(error) => error.code(),
        }
    }
}

/// Checks the component in the file `upload`.
///
/// # Errors
/// The first check that fails; its code and text are meant for the person who uploaded. Nothing is left on disk then.
pub async fn validate(
    engine: &Engine,
    compiler: &Compiler,
    upload: &Path,
    options: &ValidateOptions,
) -> Result<Validated, ValidateError> {
    let mut steps = Steps::default();
    let (inspection, digest) = inspect_file(upload, options.size_limit, &mut steps).await?;

    // Compiled under a temporary name, so that an upload that fails the probe leaves nothing and affects no other file.
    let folder = &options.compiled_dir;
    let workshop = tempfile::Builder::new()
        .prefix(LEFTOVER_PREFIX)
        .tempdir_in(folder)
        .map_err(read_error(folder))?;
    let name = compiled_file_name(&digest, engine.compatibility_key());
    let compiled = workshop.path().join(&name);
    steps.start();
    let report = compiler
        .compile(upload, &compiled, options.cache.as_ref())
        .await?;
    let function = load(engine, &compiled).await?;
    steps.done(
        "compile",
        format!("{} of machine code", format_size(report.compiled_size)),
    );

    steps.start();
    let probe = probe(&function, options.probe.clone()).await?;
    steps.done(
        "probe",
        format!(
            "GET / answered {} with {} in {:.1} ms, at most {} of memory{}",
            probe.status,
            format_size(probe.body_size),
            probe.took.as_secs_f64() * 1e3,
            format_size(probe.memory_peak),
            if probe.asked_network {
                ", without the network that it asked for"
            } else {
                ""
            },
        ),
    );

    let kept = folder.join(&name);
    std::fs::rename(checksum_file(&compiled), checksum_file(&kept)).map_err(read_error(&kept))?;
    std::fs::rename(&compiled, &kept).map_err(read_error(&kept))?;
    Ok(Validated {
        steps: steps.finished,
        digest,
        inspection,
        compiled: kept,
        report,
        probe,
        function,
    })
}

/// The checks that need no engine. They run off the caller's thread: checking 64 MB takes most of a second.
async fn inspect_file(
    upload: &Path,
    limit: ByteSize,
    steps: &mut Steps,
) -> Result<(Inspection, Digest), ValidateError> {
    let upload = upload.to_owned();
    let (result, finished) = tokio::task::spawn_blocking(move || {
        let mut steps = Steps::default();
        let result = inspect_steps(&upload, limit, &mut steps);
        (result, steps.finished)
    })
    .await
    .map_err(|error| ValidateError::Internal(error.to_string()))?;
    steps.finished.extend(finished);
    result
}

fn inspect_steps(
    upload: &Path,
    limit: ByteSize,
    steps: &mut Steps,
) -> Result<(Inspection, Digest), ValidateError> {
    steps.start();
    let size = std::fs::metadata(upload).map_err(read_error(upload))?.len();
    if size > limit.as_bytes() {
        return Err(ValidateError::TooLarge { size, limit });
    }
    steps.done("size", format!("{} of at most {limit}", format_size(size)));

    steps.start();
    let bytes = std::fs::read(upload).map_err(read_error(upload))?;
    let parsed = inspect::parse(&bytes)?;
    let digest = Digest::of(&bytes);
    steps.done("format", format!("a well-formed component, {digest}"));

    steps.start();
    let handler_version = parsed.check_exports()?;
    steps.done(
        "exports",
        format!("wasi:http/incoming-handler@{handler_version}"),
    );

    steps.start();
    parsed.check_imports()?;
    let inspection = parsed.into_inspection(handler_version);
    steps.done(
        "imports",
        format!("{} interfaces, all offered", inspection.imports.len()),
    );
    Ok((inspection, digest))
}

async fn load(engine: &Engine, compiled: &Path) -> Result<Arc<Function>, ValidateError> {
    let (engine, compiled) = (engine.clone(), compiled.to_owned());
    tokio::task::spawn_blocking(move || engine.load(&compiled))
        .await
        .map_err(|error| ValidateError::Internal(error.to_string()))?
        .map_err(ValidateError::Load)
}

fn read_error(path: &Path) -> impl FnOnce(std::io::Error) -> ValidateError {
    let path = path.to_owned();
    move |source| ValidateError::Read { path, source }
}

/// A size in readable units, rounded up, with at most three digits up to 1 GB.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{} MB", bytes.div_ceil(1_000_000)),
    }
}

#[derive(Default)]
struct Steps {
    finished: Vec<ValidationStep>,
    started: Option<Instant>,
}

impl Steps {
    fn start(&mut self) {
        self.started = Some(Instant::now());
    }

    fn done(&mut self, step: &str, result: String) {
        let took = self
            .started
            .take()
            .map_or(Duration::ZERO, |started| started.elapsed());
        self.finished.push(ValidationStep {
            step: step.to_owned(),
            result,
            took: Millis::new(took.as_secs_f64() * 1e3),
        });
    }
}
