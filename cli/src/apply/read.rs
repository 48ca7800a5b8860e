//! Reads declared files and reports every mistake in every file, each with file, line and path, before anything is requested or changed.

mod parts;
mod records;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use fdn_core::account::TenantRef;
use fdn_core::app::PutAppDns;
use fdn_core::billing::{BudgetName, SetBudget};
use fdn_core::job::PutSchedule;
use fdn_core::label::Labels;
use fdn_core::policy::{Policy, Traffic};
use fdn_core::rollout::Objective;
use fdn_core::workflow::{Declaration, FunctionLookup};
use fdn_core::{
    AppName, HostName, ImageReference, RecordName, ScheduleName, SecretName, TenantRole, UserName,
    VersionNumber,
};
use fdn_service::secret::Secret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Spanned;

pub use records::Txt;

use super::SetName;
use crate::environment::Environment;

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its name for display; `-` for standard input.
    pub name: String,
    /// The folder that relative paths in it refer to.
    pub folder: PathBuf,
    /// Its content.
    pub text: String,
}

/// What an app runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// A component or an image archive in a file, or an image in a registry.
    Function {
        /// The file, or the image's name.
        artifact: PathBuf,
        /// The manifest; if absent, the one beside the file.
        manifest: Option<PathBuf>,
    },
    /// A workflow of several functions.
    Workflow(Declaration),
}

/// The value of a secret, read from the source that a file names.
#[derive(Clone, Debug, PartialEq)]
pub struct SecretSource {
    /// The value.
    pub value: Secret,
    /// A description of the source.
    pub from: String,
}

/// The declaration of an app. What is absent is left as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct App {
    /// What it runs.
    pub workload: Option<Workload>,
    /// The policy: who may call it.
    pub policy: Option<Policy>,
    /// The traffic split between versions.
    pub traffic: Option<Traffic>,
    /// The declared secrets; others are left as they are.
    pub secrets: BTreeMap<SecretName, SecretSource>,
    /// The declared schedules; others are left as they are.
    pub schedules: BTreeMap<ScheduleName, PutSchedule>,
    /// The declared domains; others are left as they are.
    pub domains: BTreeSet<HostName>,
    /// The objective of new versions; `Some(None)` removes it.
    pub objective: Option<Option<Objective>>,
    /// All labels of the function.
    pub labels: Option<Labels>,
    /// All labels of the current version.
    pub version_labels: Option<Labels>,
    /// The TTL of DNS answers.
    pub dns: Option<PutAppDns>,
}

/// The content of all declared files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Declarations {
    /// The tenant that the files are for.
    pub tenant: Option<TenantRef>,
    /// The set name under which applied items are remembered.
    pub set: Option<SetName>,
    /// Apps.
    pub apps: BTreeMap<AppName, App>,
    /// Budgets.
    pub budgets: BTreeMap<BudgetName, SetBudget>,
    /// Members.
    pub members: BTreeMap<UserName, TenantRole>,
    /// The declared text records by name; others are left as they are.
    pub txt: BTreeMap<RecordName, Txt>,
}

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    /// The path in the document, such as `apps.hello.policy.rate`; empty for all of it.
    pub path: String,
    /// The description.
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.what)
    }
}

/// The structure of a file; its values are parsed separately, so that a mistake in one does not hide others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default)]
    tenant: Option<Spanned<String>>,
    #[serde(default)]
    set: Option<Spanned<String>>,
    #[serde(default)]
    apps: BTreeMap<String, Spanned<BTreeMap<String, Spanned<Value>>>>,
    #[serde(default)]
    budgets: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    members: BTreeMap<String, Spanned<Value>>,
    #[serde(default)]
    txt: BTreeMap<String, Spanned<Value>>,
}

/// Reads all files, and the values of the secrets that they refer to.
///
/// # Errors
/// All mistakes in the files.
pub fn read_declarations(
    sources: &[Source],
    env: &Environment,
) -> Result<Declarations, Vec<Mistake>> {
    let mut reader = Reader {
        env,
        declared: Declarations::default(),
        mistakes: Vec::new(),
        places: BTreeMap::new(),
        // Standard input can be read only once.
        input_used: sources.iter().any(|source| source.name == "-"),
    };
    for source in sources {
        reader.file(source);
    }
    if reader.mistakes.is_empty() {
        Ok(reader.declared)
    } else {
        Err(reader.mistakes)
    }
}

struct Reader<'a> {
    env: &'a Environment,
    declared: Declarations,
    mistakes: Vec<Mistake>,
    /// Where each item was declared first.
    places: BTreeMap<String, String>,
    input_used: bool,
}

/// A position in a file.
struct Position<'a> {
    source: &'a Source,
    line: u64,
    path: String,
}

impl<'a> Position<'a> {
    fn new<T>(source: &'a Source, value: &Spanned<T>, path: String) -> Self {
        Self {
            source,
            line: value.referenced.line(),
            path,
        }
    }

    fn mistake(&self, what: impl Into<String>) -> Mistake {
        Mistake {
            file: self.source.name.clone(),
            line: self.line,
            path: self.path.clone(),
            what: what.into(),
        }
    }
}

impl Reader<'_> {
    fn file(&mut self, source: &Source) {
        let document: Document = match serde_saphyr::from_str(&source.text) {
            Ok(document) => document,
            Err(error) => {
                let line = error.location().map_or(1, |place| place.line());
                self.mistakes.push(Mistake {
                    file: source.name.clone(),
                    line,
                    path: String::new(),
                    what: message_only(&error.without_snippet().to_string()),
                });
                return;
            }
        };
        if let Some(text) = &document.tenant {
            let position = Position::new(source, text, "tenant".to_owned());
            if let Some(tenant) = self.parse(&position, &text.value) {
                let old = self.declared.tenant.replace(tenant);
                self.check_agreement(
                    &position,
                    old.as_ref(),
                    self.declared.tenant.clone().as_ref(),
                );
            }
        }
        if let Some(text) = &document.set {
            let position = Position::new(source, text, "set".to_owned());
            if let Some(set) = self.parse(&position, &text.value) {
                let old = self.declared.set.replace(set);
                self.check_agreement(&position, old.as_ref(), self.declared.set.clone().as_ref());
            }
        }
        for (name, app) in &document.apps {
            self.app(source, name, app);
        }
        for (name, budget) in &document.budgets {
            self.budget(source, name, budget);
        }
        for (name, member) in &document.members {
            let position = Position::new(source, member, format!("members.{name}"));
            let (user, role) = (
                self.parse(&position, name),
                self.value(&position, &member.value),
            );
            if let (Some(user), Some(role)) = (user, role)
                && self.is_first(&position)
            {
                self.declared.members.insert(user, role);
            }
        }
        for (name, records) in &document.txt {
            self.txt(source, name, records);
        }
    }

    fn app(
        &mut self,
        source: &Source,
        name: &str,
        fields: &Spanned<BTreeMap<String, Spanned<Value>>>,
    ) {
        let whole = Position::new(source, fields, format!("apps.{name}"));
        let Some(app_name) = self.parse::<AppName>(&whole, name) else {
            return;
        };
        let mut app = App::default();
        let (mut runs, mut manifest): (Vec<Workload>, Option<PathBuf>) = (Vec::new(), None);
        for (field, value) in &fields.value {
            let position = Position::new(source, value, format!("apps.{name}.{field}"));
            match field.as_str() {
                "component" => runs.extend(self.component(&position, &value.value)),
                "image" => runs.extend(self.image(&position, &value.value)),
                "workflow" => runs.extend(self.workflow(&position, &value.value)),
                "manifest" => manifest = self.path(&position, &value.value),
                "policy" => {
                    app.policy = self.value(&position, &value.value);
                    let wrong = app.policy.as_ref().and_then(|policy| policy.check().err());
                    self.record_mistake(&position, wrong);
                }
                "traffic" => {
                    app.traffic = self.value(&position, &value.value);
                    let wrong = app.traffic.as_ref().and_then(|split| split.check().err());
                    self.record_mistake(&position, wrong);
                }
                other => self.part(&position, (other, &value.value), &mut app),
            }
        }
        if runs.len() > 1 {
            self.mistakes
                .push(whole.mistake("an app runs one of component, image and workflow"));
        }
        app.workload = match (runs.pop(), manifest) {
            (Some(Workload::Function { artifact, .. }), manifest) => {
                Some(Workload::Function { artifact, manifest })
            }
            (other, None) => other,
            (_, Some(_)) => {
                self.mistakes
                    .push(whole.mistake("manifest: it goes with component or image"));
                None
            }
        };
        self.check_fields(&whole, &app);
        if self.is_first(&whole) {
            self.declared.apps.insert(app_name, app);
        }
    }

    fn component(&mut self, position: &Position<'_>, value: &Value) -> Option<Workload> {
        let artifact = self.path(position, value)?;
        Some(Workload::Function {
            artifact,
            manifest: None,
        })
    }

    /// The path of an existing file.
    fn path(&mut self, position: &Position<'_>, value: &Value) -> Option<PathBuf> {
        let text: String = self.value(position, value)?;
        let path = position.source.folder.join(&text);
        if path.is_file() {
            return Some(path);
        }
        let what = format!("there is no file {}", path.display());
        self.mistakes.push(position.mistake(what));
        None
    }

    fn image(&mut self, position: &Position<'_>, value: &Value) -> Option<Workload> {
        let text: String = self.value(position, value)?;
        let image: ImageReference = self.parse(position, &text)?;
        Some(Workload::Function {
            artifact: PathBuf::from(image.to_string()),
            manifest: None,
        })
    }

    /// A workflow, inline or in a separate file. Only the controller knows which functions exist; everything else is checked here.
    fn workflow(&mut self, position: &Position<'_>, value: &Value) -> Option<Workload> {
        let declaration: Declaration = match value {
            Value::String(_) => {
                let path = self.path(position, value)?;
                let read = std::fs::read_to_string(&path);
                let parsed = read
                    .map_err(|e| vec![e.to_string()])
                    .and_then(|text| Declaration::parse(&text).map_err(|e| e.mistakes().to_vec()));
                match parsed {
                    Ok(declaration) => declaration,
                    Err(wrong) => {
                        let told = wrong.iter().map(|e| format!("{}: {e}", path.display()));
                        let told: Vec<Mistake> = told.map(|e| position.mistake(e)).collect();
                        self.mistakes.extend(told);
                        return None;
                    }
                }
            }
            inline => self.value(position, inline)?,
        };
        if let Err(error) =
            declaration.resolve(|_, _| FunctionLookup::Version(VersionNumber::FIRST))
        {
            let told = error.mistakes().iter().map(|e| position.mistake(e));
            self.mistakes.extend(told);
            return None;
        }
        Some(Workload::Workflow(declaration))
    }

    fn budget(&mut self, source: &Source, name: &str, value: &Spanned<Value>) {
        let position = Position::new(source, value, format!("budgets.{name}"));
        let parsed: Option<BudgetName> = self.parse(&position, name);
        let (Some(name), Some(request)) =
            (parsed, self.value::<SetBudget>(&position, &value.value))
        else {
            return;
        };
        // The network defines the currency, but the amount can be checked without it.
        let wrong = fdn_core::billing::Budget::new(
            name.clone(),
            &request,
            fdn_core::billing::Currency::EUR,
        )
        .err();
        self.record_mistake(&position, wrong);
        if self.is_first(&position) {
            self.declared.budgets.insert(name, request);
        }
    }

    fn record_mistake(&mut self, position: &Position<'_>, wrong: Option<impl fmt::Display>) {
        self.mistakes
            .extend(wrong.map(|error| position.mistake(error.to_string())));
    }

    fn parse<T: std::str::FromStr<Err: fmt::Display>>(
        &mut self,
        position: &Position<'_>,
        text: &str,
    ) -> Option<T> {
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.mistakes.push(position.mistake(error.to_string()));
                None
            }
        }
    }

    fn value<T: DeserializeOwned>(&mut self, position: &Position<'_>, value: &Value) -> Option<T> {
        match serde_path_to_error::deserialize(value.clone()) {
            Ok(value) => Some(value),
            Err(error) => {
                let inner = error.path().to_string();
                let path = match inner.as_str() {
                    "." => position.path.clone(),
                    inner => format!("{}.{inner}", position.path),
                };
                let what = error.into_inner().to_string();
                self.mistakes.push(Mistake {
                    path,
                    ..position.mistake(what)
                });
                None
            }
        }
    }

    /// Whether this is the first declaration of an item; otherwise a mistake is recorded.
    fn is_first(&mut self, position: &Position<'_>) -> bool {
        let here = format!("{}:{}", position.source.name, position.line);
        match self.places.insert(position.path.clone(), here) {
            None => true,
            Some(there) => {
                let what = format!("it is declared already, at {there}");
                self.mistakes.push(position.mistake(what));
                false
            }
        }
    }

    fn check_agreement<T: PartialEq + fmt::Display>(
        &mut self,
        position: &Position<'_>,
        before: Option<&T>,
        now: Option<&T>,
    ) {
        if let (Some(before), Some(now)) = (before, now)
            && before != now
        {
            let what =
                format!("{now}, but another file says {before}; all files are applied as one");
            self.mistakes.push(position.mistake(what));
        }
    }
}

/// The parser's message without its own description of the position.
fn message_only(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    let line = line.split(" at line ").next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// The files of an argument: the file itself, or all `.yaml` and `.yml` files in the folder, sorted by name.
///
/// # Errors
/// When the folder cannot be read or has no such files.
pub fn files(argument: &Path) -> Result<Vec<PathBuf>, String> {
    if !argument.is_dir() {
        return Ok(vec![argument.to_owned()]);
    }
    let entries = std::fs::read_dir(argument).map_err(|e| e.to_string())?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        let yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        if yaml && path.is_file() {
            found.push(path);
        }
    }
    found.sort();
    match found.is_empty() {
        true => Err("there is no .yaml file in it".to_owned()),
        false => Ok(found),
    }
}
