//! `fdn deploy`: makes the cheap checks, uploads with a progress bar, shows the results of the controller's checks, and waits for the nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fdn_core::api::DeployResponse;
use fdn_core::label::Labels;
use fdn_core::manifest::{Manifest, ManifestError, RuntimeKind};
use fdn_core::{ErrorCode, FormName, SecretName};
use indicatif::ProgressBar;
use reqwest::multipart::{Form, Part};
use serde::Serialize;

use super::{target, wait};
use crate::args::{DeployArgs, FormArg, OutputArgs, SecretArg, WaitArgs};
use crate::artifact::Artifact;
use crate::client::Client;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::function::{MANIFEST, MANIFEST_MAX, unbounded};
use crate::output::{Format, Report, indented, size, table};
use crate::{input, progress};

/// Runs the command.
///
/// # Errors
/// When a file cannot be used, the controller refuses the upload or cannot be reached, or the nodes are not ready in time.
pub async fn run(
    args: &DeployArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let artifact = Artifact::of(&args.file)?;
    let manifest = manifest(args.manifest.as_deref(), &artifact)?;
    let secrets = secrets(&args.secrets)?;
    let target = target(&args.connect, env)?;
    let client = Client::new(&target)?;
    let others = others(&args.forms, manifest.as_deref())?;
    let bytes = others.values().map(|other| other.bytes());
    let bar = progress::upload(console, bytes.fold(artifact.bytes(), u64::saturating_add));
    let form = with_labels_and_signatures(Form::new(), args)?;
    let mut form = self::form(form, manifest, secrets, artifact, &bar)?;
    for (name, other) in others {
        let part = typed(other.part(&bar), "application/octet-stream")?;
        form = form.part(format!("form.{name}"), part);
    }
    let answer = client.deploy(&args.name, args.tenant.as_ref(), form).await;
    bar.finish_and_clear();
    let answer = answer?;
    let port = target.context.as_ref().and_then(|c| c.gateway_port);
    report_deployment(&answer, port, &client, (args.output, args.wait), console).await
}

/// Shows what was deployed, and waits for the nodes if requested.
pub(super) async fn report_deployment(
    answer: &DeployResponse,
    port: Option<u16>,
    client: &Client,
    (output, wait): (OutputArgs, WaitArgs),
    console: &mut Console,
) -> Result<(), CliError> {
    let deployed = DeployReport::new(answer, port);
    let people = matches!(output.output, Format::Table | Format::Wide);
    // In text form, the checks are shown before the wait; a script gets one value at the end.
    if people {
        console.report(output.output, &deployed)?;
    }
    if wait.waits() {
        let (app, revision) = (&answer.app, answer.revision);
        let detail = wait::until_ready(client, app, revision, wait.timeout, console).await?;
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
        console.report(output.output, &deployed)
    }
}

/// Adds labels and the signature to the upload.
fn with_labels_and_signatures(mut form: Form, args: &DeployArgs) -> Result<Form, CliError> {
    let labels = args
        .labels
        .iter()
        .try_fold(Labels::default(), Labels::with)?;
    if !labels.is_empty() {
        let json = serde_json::to_string(&labels).map_err(|e| CliError::Usage(e.to_string()))?;
        form = form.part("labels", typed(Part::text(json), "application/json")?);
    }
    for (name, file) in [
        ("signature", &args.signature),
        ("signature_payload", &args.signature_payload),
    ] {
        if let Some(file) = file {
            form = form.text(name, input::text_file(file)?);
        }
    }
    for (part, all) in [
        ("signature", &args.form_signatures),
        ("signature_payload", &args.form_signature_payloads),
    ] {
        for one in all {
            form = form.text(format!("{part}.{}", one.name), input::text_file(&one.file)?);
        }
    }
    Ok(form)
}

/// The artifacts of the manifest's additional forms: exactly one for each that it names.
fn others(
    args: &[FormArg],
    manifest: Option<&str>,
) -> Result<BTreeMap<FormName, Artifact>, CliError> {
    let mut others = BTreeMap::new();
    for arg in args {
        let artifact = Artifact::of(&arg.file)?;
        if others.insert(arg.name.clone(), artifact).is_some() {
            return Err(CliError::Usage(format!("form {} is given twice", arg.name)));
        }
    }
    let manifest = Manifest::from_toml(manifest.unwrap_or_default(), &unbounded());
    let named = manifest.map(|manifest| manifest.forms).unwrap_or_default();
    for form in &named {
        if !others.contains_key(&form.name) {
            let name = &form.name;
            return Err(CliError::Usage(format!(
                "the manifest names the form {name}, and no artifact is given for it: --form {name}=FILE"
            )));
        }
    }
    let is_known = |name: &FormName| named.iter().any(|form| form.name == *name);
    let unknown = others.keys().find(|name| !is_known(name)).cloned();
    match unknown {
        Some(name) => Err(CliError::Usage(format!(
            "--form {name}: no [[forms]] of the manifest has this name"
        ))),
        None => Ok(others),
    }
}

/// The default manifest of an image.
const OF_AN_IMAGE: &str = "runtime = \"docker\"\n";

/// The text of the manifest: the named file, or else `fdn.toml` beside the artifact if it exists.
pub(crate) fn manifest(
    named: Option<&Path>,
    artifact: &Artifact,
) -> Result<Option<String>, CliError> {
    let is_image = matches!(artifact, Artifact::Image(_));
    let beside = artifact
        .path()
        .parent()
        .unwrap_or_else(|| Path::new(""))
        .join(MANIFEST);
    let path: PathBuf = match named {
        Some(path) => path.to_owned(),
        None if beside.is_file() => beside,
        None => return Ok(is_image.then(|| OF_AN_IMAGE.to_owned())),
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
            "a manifest may have {MANIFEST_MAX} bytes at most"
        )));
    }
    let text = std::fs::read_to_string(&path).map_err(|e| failed(e.to_string()))?;
    // Keys and forms are checked before a large component is sent; only the controller knows the bounds.
    let refused = |error| CliError::Manifest {
        path: path.clone(),
        error,
    };
    let manifest = Manifest::from_toml(&text, &unbounded()).map_err(refused)?;
    if is_image && manifest.runtime == RuntimeKind::Wasm {
        let reason = "an image needs runtime = \"docker\"".to_owned();
        return Err(refused(ManifestError(reason)));
    }
    Ok(Some(text))
}

/// The values of the secrets, by name.
pub(crate) fn secrets(args: &[SecretArg]) -> Result<BTreeMap<SecretName, String>, CliError> {
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

/// The multipart form: manifest and secrets first, so that the controller has them when the component arrives.
pub(crate) fn form(
    mut form: Form,
    manifest: Option<String>,
    secrets: BTreeMap<SecretName, String>,
    artifact: Artifact,
    bar: &ProgressBar,
) -> Result<Form, CliError> {
    if let Some(text) = manifest {
        form = form.part("manifest", typed(Part::text(text), "application/toml")?);
    }
    if !secrets.is_empty() {
        let json = serde_json::to_string(&secrets).map_err(|e| CliError::Usage(e.to_string()))?;
        form = form.part("secrets", typed(Part::text(json), "application/json")?);
    }
    let part = artifact.part(bar);
    Ok(form.part("component", typed(part, "application/wasm")?))
}

fn typed(part: Part, media_type: &str) -> Result<Part, CliError> {
    part.mime_str(media_type)
        .map_err(|e| CliError::Usage(e.to_string()))
}

/// The controller's answer in text form.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DeployReport<'a> {
    /// The controller's answer.
    #[serde(flatten)]
    pub answer: &'a DeployResponse,
    /// The port of the gateways, if known.
    #[serde(skip)]
    pub port: Option<u16>,
}

impl<'a> DeployReport<'a> {
    /// The text form of an answer.
    #[must_use]
    pub const fn new(answer: &'a DeployResponse, port: Option<u16>) -> Self {
        Self { answer, port }
    }

    /// The URL of the app.
    #[must_use]
    pub fn url(&self) -> String {
        match self.port {
            None | Some(80) => format!("http://{}/", self.answer.host),
            Some(port) => format!("http://{}:{port}/", self.answer.host),
        }
    }
}

impl Report for DeployReport<'_> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_manifest_has_its_artifact_and_no_other() {
        let manifest = "[[forms]]\nname = \"gpu\"\nruntime = \"docker\"\n";
        let image = format!("ghcr.io/acme/a@{}", fdn_core::Digest::of(b"manifest"));
        let arg = |name: &str| FormArg {
            name: name.parse().expect("form"),
            file: image.clone().into(),
        };
        let told = |args: &[FormArg], manifest| {
            let others = others(args, manifest);
            others.map(|others| others.len()).map_err(|e| e.to_string())
        };
        assert_eq!(told(&[], None), Ok(0));
        assert_eq!(told(&[arg("gpu")], Some(manifest)), Ok(1));
        for (args, manifest, says) in [
            (vec![], Some(manifest), "--form gpu=FILE"),
            (vec![arg("gpu"), arg("gpu")], Some(manifest), "given twice"),
            (vec![arg("gpu"), arg("b")], Some(manifest), "--form b"),
            (vec![arg("gpu")], None, "--form gpu"),
        ] {
            let error = told(&args, manifest).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }
}
