//! Uploads, from the connection to a validated component: received into a temporary file, digested meanwhile, then put through every check of
//! `fdn_runtime::validate`, or for images those of [`image`].
//!
//! Nothing is stored here: the file and its machine code are deleted when the values that own them are dropped, whatever happens. What a controller
//! that is killed leaves, a later start removes.

mod cache;
pub mod image;
mod leftovers;
mod places;
pub mod signature;
mod step;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use fdn_core::api::ValidationStep;
use fdn_core::compiled::EngineKey;
use fdn_core::digest::DigestBuilder;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::{ByteSize, Coded, Digest, ErrorCode, SecretName, TenantId};
use fdn_runtime::validate::{ValidateOptions, validate};
use fdn_runtime::{CacheUse, CallContext, CompileWorker, Compiler, Engine, EngineOptions, NoLog};
use fdn_service::secret::Secret;
use tempfile::{TempDir, TempPath};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use crate::Error;
use crate::settings::Settings;
pub use cache::PackFolder;
pub use places::UploadPlace;
use places::UploadPlaces;
pub(crate) use step::refused_at;

/// The most instances that probes may hold at the same time.
const INSTANCES: u32 = 32;
/// The most threads of one compilation: each reserves address space, which is limited for the process.
const COMPILE_THREADS: usize = 16;

/// What the names of files that receive uploads begin with.
const UPLOAD_PREFIX: &str = "fdn-upload-";
/// What the names of folders for machine code begin with.
const COMPILED_PREFIX: &str = "fdn-compiled-";

/// Why an upload did not arrive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UploadError {
    /// The connection ended early.
    #[error("the upload ended before it was complete; nothing was stored, send it again")]
    Incomplete,
    /// The component is too large.
    #[error(
        "the component is larger than the limit of {0}; make it smaller, for example with `wasm-tools strip` or an optimised build"
    )]
    TooLarge(ByteSize),
    /// The image is too large.
    #[error(
        "the image is larger than the limit of {0}; make it smaller, for example with a smaller base image, or have uploads.image_limit raised"
    )]
    ImageTooLarge(ByteSize),
    /// The temporary file failed.
    #[error("the upload cannot be kept in {folder}")]
    Disk {
        /// The folder of the file.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl Coded for UploadError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Incomplete => ErrorCode::UploadIncomplete,
            Self::TooLarge(_) | Self::ImageTooLarge(_) => ErrorCode::UploadTooLarge,
            Self::Disk { .. } => ErrorCode::Internal,
        }
    }
}

/// The result of validating an upload that passed every check.
pub struct ValidatedUpload {
    /// The result of each check.
    pub steps: Vec<ValidationStep>,
    /// The machine code, if it is to be stored for nodes.
    pub compiled: Option<Compiled>,
    /// What the compile cache contributed.
    pub cache: Option<CacheUse>,
}

/// Machine code that was just compiled. Its file is deleted when this is dropped.
#[derive(Debug)]
pub struct Compiled {
    path: PathBuf,
    engine: EngineKey,
    digest: Digest,
    size: u64,
    _folder: TempDir,
}

impl Compiled {
    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The engine that it was compiled for.
    #[must_use]
    pub const fn engine(&self) -> &EngineKey {
        &self.engine
    }

    /// The digest of the machine code.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }
}

/// Receives and validates uploads, a limited number at a time.
pub struct Uploads {
    engine: Engine,
    compiler: Compiler,
    folder: PathBuf,
    limit: ByteSize,
    image_limit: ByteSize,
    image_unfolded: ByteSize,
    keeps_compiled: bool,
    packs: Option<PackFolder>,
    places: UploadPlaces,
}

impl Uploads {
    /// Creates the engine that probes run on. Removes what a killed controller has left in the folder.
    ///
    /// # Errors
    /// When the engine cannot be created or the folder cannot be used.
    pub fn open(settings: &Settings, compiler: Compiler) -> Result<Self, Error> {
        let uploads = &settings.uploads;
        let folder = uploads.folder.clone().unwrap_or_else(std::env::temp_dir);
        std::fs::create_dir_all(&folder).map_err(|e| {
            Error::config(format!(
                "uploads.folder: {} cannot be made: {e}",
                folder.display()
            ))
        })?;
        leftovers::remove_old(&folder, SystemTime::now());
        let options = EngineOptions {
            max_instances: INSTANCES,
            max_memory: settings.bounds.memory,
            heavy_threads: 1,
            heavy_calls: uploads.parallel,
            ..EngineOptions::default()
        };
        Ok(Self {
            engine: Engine::new(options)?,
            compiler,
            packs: PackFolder::open(&folder, settings.artifacts.compile_cache),
            folder,
            limit: uploads.limit,
            image_limit: uploads.image_limit,
            image_unfolded: uploads.image_unfolded,
            keeps_compiled: settings.artifacts.compiled,
            places: UploadPlaces::new(uploads.parallel),
        })
    }

    /// The compiler according to the settings: this program again, in a process with limits.
    #[must_use]
    pub fn compiler(settings: &Settings) -> Compiler {
        Compiler::Worker(CompileWorker {
            memory_limit: settings.uploads.compile_memory,
            time_limit: settings.uploads.compile_time.as_duration(),
            // A caller waits for it; other work on this machine takes precedence, by the priority of the process.
            threads: std::thread::available_parallelism()
                .map_or(1, usize::from)
                .min(COMPILE_THREADS),
            ..CompileWorker::default()
        })
    }

    /// The packs of the compile cache, if there is one.
    #[must_use]
    pub const fn packs(&self) -> Option<&PackFolder> {
        self.packs.as_ref()
    }

    /// Takes a place among the uploads that are handled at the same time.
    ///
    /// # Errors
    /// When all places are taken, or the tenant has its share of them.
    pub fn acquire_place(&self, tenant: TenantId) -> Result<UploadPlace, Error> {
        self.places.acquire(tenant)
    }

    /// Creates a temporary file for an upload. `runtime`, as far as it is known already, decides the size limit.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn spool(&self, runtime: RuntimeKind) -> Result<Spool, UploadError> {
        let disk = |source| UploadError::Disk {
            folder: self.folder.clone(),
            source,
        };
        let file = tempfile::Builder::new()
            .prefix(UPLOAD_PREFIX)
            .tempfile_in(&self.folder)
            .map_err(disk)?;
        let (file, path) = file.into_parts();
        Ok(Spool {
            file: File::from_std(file),
            path,
            digest: DigestBuilder::default(),
            size: 0,
            runtime,
            limit: match runtime {
                RuntimeKind::Wasm => self.limit,
                RuntimeKind::Docker => self.image_limit,
            },
        })
    }

    /// Runs every check. The machine code is returned for the nodes.
    ///
    /// # Errors
    /// With the first check that fails.
    pub async fn validate(
        &self,
        component: &Component,
        manifest: &Manifest,
        secrets: impl IntoIterator<Item = (&SecretName, &Secret)>,
    ) -> Result<ValidatedUpload, Error> {
        if manifest.runtime == RuntimeKind::Docker {
            let path = component.path().to_owned();
            let most = self.image_unfolded;
            let validated = tokio::task::spawn_blocking(move || image::validate(&path, most)).await;
            let validated =
                validated.map_err(|e| Error::Internal(format!("judging broke: {e}")))?;
            return Ok(ValidatedUpload {
                steps: validated?,
                compiled: None,
                cache: None,
            });
        }
        let disk = |source| UploadError::Disk {
            folder: self.folder.clone(),
            source,
        };
        let compiled = tempfile::Builder::new()
            .prefix(COMPILED_PREFIX)
            .tempdir_in(&self.folder)
            .map_err(disk)?;
        let secrets = secrets
            .into_iter()
            .map(|(name, value)| (name.to_string(), value.expose().to_owned()));
        let options = ValidateOptions {
            size_limit: self.limit,
            compiled_dir: compiled.path().to_owned(),
            probe: CallContext::from_manifest(manifest, secrets, Arc::new(NoLog)),
            cache: self.packs.as_ref().map(|packs| packs.cache.clone()),
        };
        let validated = validate(&self.engine, &self.compiler, component.path(), &options).await?;
        // If the engine's key is not valid, no machine code is stored, and nodes compile for themselves.
        let engine = self.engine.compatibility_key().parse().ok();
        Ok(ValidatedUpload {
            cache: validated.report.cache,
            compiled: engine
                .filter(|_| self.keeps_compiled)
                .map(|engine| Compiled {
                    path: validated.compiled,
                    engine,
                    digest: validated.report.compiled_digest,
                    size: validated.report.compiled_size,
                    _folder: compiled,
                }),
            steps: validated.steps,
        })
    }
}

/// An upload that is being received.
pub struct Spool {
    file: File,
    path: TempPath,
    digest: DigestBuilder,
    size: u64,
    runtime: RuntimeKind,
    limit: ByteSize,
}

impl Spool {
    /// Writes the next chunk.
    ///
    /// # Errors
    /// When the upload becomes too large or the disk fails.
    pub async fn write(&mut self, piece: &[u8]) -> Result<(), UploadError> {
        self.size += piece.len() as u64;
        if self.size > self.limit.as_bytes() {
            return Err(match self.runtime {
                RuntimeKind::Wasm => UploadError::TooLarge(self.limit),
                RuntimeKind::Docker => UploadError::ImageTooLarge(self.limit),
            });
        }
        self.digest.update(piece);
        let written = self.file.write_all(piece).await;
        written.map_err(|source| UploadError::Disk {
            folder: self.path.to_path_buf(),
            source,
        })
    }

    /// Completes the upload.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn finish(mut self) -> Result<Component, UploadError> {
        self.file
            .flush()
            .await
            .map_err(|source| UploadError::Disk {
                folder: self.path.to_path_buf(),
                source,
            })?;
        Ok(Component {
            path: self.path,
            digest: self.digest.finish(),
            size: self.size,
        })
    }
}

/// A component that has been received. Its file is deleted when this is dropped.
#[derive(Debug)]
pub struct Component {
    path: TempPath,
    digest: Digest,
    size: u64,
}

impl Component {
    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the component.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }
}
