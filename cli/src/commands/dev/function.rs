//! The function, and what is done with it: its sources are read, built and sent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fdn_core::account::TenantRef;
use fdn_core::api::DeployResponse;
use fdn_core::{AppName, DurationMs, ErrorCode, SecretName};
use indicatif::ProgressBar;
use reqwest::multipart::Form;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::artifact::Artifact;
use crate::client::Client;
use crate::commands::{deploy, wait};
use crate::dev::build::{Build, Built};
use crate::dev::sources::{self, Sources};
use crate::error::CliError;
use crate::function::{FunctionFolder, MANIFEST};

/// How long a deployment may take until every node is ready.
const DEPLOY: DurationMs = DurationMs::from_secs(120);

/// The function, and where it is deployed.
pub(super) struct Function {
    pub(super) path: PathBuf,
    pub(super) build: Option<String>,
    pub(super) component: Option<PathBuf>,
    pub(super) secrets: BTreeMap<SecretName, String>,
    pub(super) client: Client,
    pub(super) colors: bool,
    pub(super) app: AppName,
    pub(super) tenant: Option<TenantRef>,
}

/// The result of an asynchronous activity.
pub(super) enum Completion {
    Read(std::io::Result<Sources>),
    Built(Result<Built, CliError>),
    /// The controller has accepted or rejected the version.
    Sent(Result<DeployResponse, CliError>),
    /// All nodes serve the version, or the wait failed.
    Ready(Result<(), CliError>),
}

impl Function {
    pub(super) async fn read(self: Arc<Self>) -> Completion {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || sources::read(&path)).await;
        Completion::Read(read.unwrap_or_else(|error| Err(std::io::Error::other(error))))
    }

    pub(super) async fn build(
        self: Arc<Self>,
        stop: CancellationToken,
        notes: mpsc::Sender<String>,
    ) -> Completion {
        let command = match &self.build {
            Some(command) => Ok(command.clone()),
            // Determined each time, since the build command itself may have changed.
            None => FunctionFolder::open(&self.path).and_then(|folder| folder.build()),
        };
        Completion::Built(match command {
            Ok(command) => Build::new(&command, &self.path, self.colors)
                .run(&stop, |text| drop(notes.try_send(text)))
                .await
                .map_err(|error| self.failed(&error.to_string())),
            Err(error) => Err(error),
        })
    }

    pub(super) async fn send(self: Arc<Self>) -> Completion {
        Completion::Sent(self.sent().await)
    }

    async fn sent(&self) -> Result<DeployResponse, CliError> {
        let folder = FunctionFolder::open(&self.path)?;
        let component = match &self.component {
            Some(file) => file.clone(),
            None => folder.component()?,
        };
        let artifact = Artifact::of(&component)?;
        let manifest = Some(self.path.join(MANIFEST)).filter(|path| path.is_file());
        let manifest = deploy::manifest(manifest.as_deref(), &artifact)?;
        let bar = ProgressBar::hidden();
        let form = deploy::form(Form::new(), manifest, self.secrets.clone(), artifact, &bar)?;
        let tenant = self.tenant.as_ref();
        self.client.deploy(&self.app, tenant, form).await
    }

    pub(super) async fn ready(
        self: Arc<Self>,
        sent: DeployResponse,
        notes: mpsc::Sender<String>,
    ) -> Completion {
        // If the channel is full, the note is dropped: many notes say the same.
        let told = |text: String| drop(notes.try_send(text));
        let (app, revision) = (&sent.app, sent.revision);
        let ready = wait::follow(&self.client, app, revision, DEPLOY, told, |_, _| {});
        Completion::Ready(ready.await.map(drop))
    }

    pub(super) fn failed(&self, reason: &str) -> CliError {
        CliError::File {
            path: self.path.clone(),
            reason: reason.to_owned(),
            code: ErrorCode::BadRequest,
        }
    }
}
