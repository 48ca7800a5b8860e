//! `fdn deploy`: checks what is cheap to check, uploads with a progress bar, shows what the controller found, waits for the nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fdn_core::api::DeployResponse;
use fdn_core::device::GpuBounds;
use fdn_core::manifest::{Manifest, ManifestBounds};
use fdn_core::{ByteSize, DurationMs, ErrorCode, SecretName};
use futures::StreamExt as _;
use indicatif::ProgressBar;
use reqwest::Body;
use reqwest::multipart::{Form, Part};
use serde::Serialize;
use tokio_util::io::ReaderStream;

use super::{target, wait};
use crate::args::{DeployArgs, SecretArg};
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Report, indented, size, table};
use crate::{input, progress};

/// The manifest's name.
pub const MANIFEST: &str = "fdn.toml";
/// The largest manifest that is read.
const MANIFEST_MAX: u64 = 1 << 20;
/// How the component is read from disk.
const CHUNK: usize = 64 << 10;

/// Runs the command.
///
/// # Errors
/// When a file is not usable, the controller refuses the upload or cannot be reached, or the nodes are not ready in time.
pub async fn run(
    args: &DeployArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let (file, octets) = input::upload(&args.file)?;
    let manifest = manifest(args.manifest.as_deref(), &args.file)?;
    let secrets = secrets(&args.secrets)?;
    let target = target(&args.connect, env)?;
    let client = Client::new(&target)?;
    let bar = progress::upload(console, octets);
    let form = form(
        manifest,
        secrets,
        tokio::fs::File::from_std(file),
        octets,
        &args.file,
        &bar,
    )?;
    let answer = client.deploy(&args.name, form).await;
    bar.finish_and_clear();
    let answer = answer?;
    let port = target.context.as_ref().and_then(|c| c.gateway_port);
    let deployed = Deployed::new(&answer, port);
    let people = matches!(args.output.output, Format::Table | Format::Wide);
    // People see what was checked before they wait; a script gets one value at the end.
    if people {
        console.report(args.output.output, &deployed)?;
    }
    if args.wait.waits() {
        let detail = wait::until_ready(
            &client,
            &args.name,
            answer.revision,
            args.wait.timeout,
            console,
        )
        .await?;
        if people {
            let count = detail.summary.nodes_ready;
            console.line(&format!(
                "ready on {count} node{}",
                if count == 1 { "" } else { "s" }
            ))?;
        }
    }
    if people {
        Ok(())
    } else {
        console.report(args.output.output, &deployed)
    }
}

/// The text of the manifest: the file named, else `fdn.toml` beside the component if it is there.
fn manifest(named: Option<&Path>, component: &Path) -> Result<Option<String>, CliError> {
    let beside = component
        .parent()
        .unwrap_or_else(|| Path::new(""))
        .join(MANIFEST);
    let path: PathBuf = match named {
        Some(path) => path.to_owned(),
        None if beside.is_file() => beside,
        None => return Ok(None),
    };
    let failed = |reason: String| CliError::File {
        path: path.clone(),
        reason,
        code: ErrorCode::BadRequest,
    };
    let length = std::fs::metadata(&path)
        .map_err(|e| failed(e.to_string()))?
        .len();
    if length > MANIFEST_MAX {
        return Err(failed(format!(
            "a manifest may have {MANIFEST_MAX} octets at most"
        )));
    }
    let text = std::fs::read_to_string(&path).map_err(|e| failed(e.to_string()))?;
    // Keys and forms are checked here, before a large component is sent; the bounds are the controller's to know.
    Manifest::from_toml(&text, &unbounded()).map_err(|error| CliError::Manifest {
        path: path.clone(),
        error,
    })?;
    Ok(Some(text))
}

const fn unbounded() -> ManifestBounds {
    ManifestBounds {
        memory: ByteSize::from_bytes(u64::MAX),
        timeout: DurationMs::from_millis(u64::MAX),
        body: ByteSize::from_bytes(u64::MAX),
        reuse: u32::MAX,
        concurrency: u32::MAX,
        env_entries: usize::MAX,
        env_size: ByteSize::from_bytes(u64::MAX),
        allowed_hosts: usize::MAX,
        gpu: GpuBounds {
            memory: ByteSize::from_bytes(u64::MAX),
            count: u32::MAX,
        },
    }
}

fn secrets(args: &[SecretArg]) -> Result<BTreeMap<SecretName, String>, CliError> {
    let mut values = BTreeMap::new();
    for arg in args {
        if values
            .insert(arg.name.clone(), input::secret_value(&arg.file)?)
            .is_some()
        {
            return Err(CliError::Usage(format!(
                "secret {} is given twice",
                arg.name
            )));
        }
    }
    Ok(values)
}

/// The upload: manifest and secrets first, so that the controller knows them when the component arrives.
fn form(
    manifest: Option<String>,
    secrets: BTreeMap<SecretName, String>,
    file: tokio::fs::File,
    octets: u64,
    path: &Path,
    bar: &ProgressBar,
) -> Result<Form, CliError> {
    let mut form = Form::new();
    if let Some(text) = manifest {
        form = form.part("manifest", typed(Part::text(text), "application/toml")?);
    }
    if !secrets.is_empty() {
        let json = serde_json::to_string(&secrets).map_err(|e| CliError::Usage(e.to_string()))?;
        form = form.part("secrets", typed(Part::text(json), "application/json")?);
    }
    let bar = bar.clone();
    // Exactly the length announced, even if the file grows meanwhile; if it shrinks, the controller notices.
    let reader = tokio::io::AsyncReadExt::take(file, octets);
    let stream = ReaderStream::with_capacity(reader, CHUNK).inspect(move |chunk| {
        if let Ok(chunk) = chunk {
            bar.inc(chunk.len() as u64);
            if bar.position() >= octets {
                progress::validating(&bar);
            }
        }
    });
    let name = path.file_name().map_or_else(
        || "component.wasm".into(),
        |n| n.to_string_lossy().into_owned(),
    );
    let part = Part::stream_with_length(Body::wrap_stream(stream), octets).file_name(name);
    Ok(form.part("component", typed(part, "application/wasm")?))
}

fn typed(part: Part, media_type: &str) -> Result<Part, CliError> {
    part.mime_str(media_type)
        .map_err(|e| CliError::Usage(e.to_string()))
}

/// The controller's answer as a page.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Deployed<'a> {
    /// The answer.
    #[serde(flatten)]
    pub answer: &'a DeployResponse,
    /// The gateways' port, if known.
    #[serde(skip)]
    pub port: Option<u16>,
}

impl<'a> Deployed<'a> {
    /// The page of an answer.
    #[must_use]
    pub const fn new(answer: &'a DeployResponse, port: Option<u16>) -> Self {
        Self { answer, port }
    }

    fn url(&self) -> String {
        match self.port {
            None | Some(80) => format!("http://{}/", self.answer.host),
            Some(port) => format!("http://{}:{port}/", self.answer.host),
        }
    }
}

impl Report for Deployed<'_> {
    fn text(&self, _: bool) -> String {
        let answer = self.answer;
        let what = if answer.unchanged {
            "unchanged: this is already"
        } else {
            "deployed"
        };
        let mut text = format!("{what} {} {}\n", answer.app, answer.version);
        text.push_str(&indented(
            &table(
                &[],
                [
                    vec!["url".to_owned(), self.url()],
                    vec!["digest".to_owned(), answer.digest.to_string()],
                    vec!["size".to_owned(), size(answer.size)],
                ],
            ),
            2,
        ));
        if !answer.validation.is_empty() {
            let steps = answer
                .validation
                .iter()
                .map(|s| vec![s.step.clone(), s.result.clone(), s.took.to_string()]);
            text.push_str("  checked\n");
            text.push_str(&indented(&table(&[], steps), 4));
        }
        text
    }

    fn names(&self) -> Vec<String> {
        vec![self.answer.app.to_string()]
    }
}
