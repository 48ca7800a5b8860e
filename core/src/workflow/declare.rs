//! Workflow declarations: what developers write as YAML or JSON, and its resolution.
//!
//! ```yaml
//! timeout: 30s
//! stages:
//!   - name: in
//!     function: image
//!     path: /?w=640
//!   - name: text
//!     function: text-stats
//!     version: 3
//!     needs: [{ stage: in, size: 200KiB }]
//!     retries: { count: 2, backoff: 200ms }
//! ```
//!
//! Parsing and resolving are separate steps. [`Declaration::parse`] fails with the line at which the text is wrong;
//! [`Declaration::resolve`] looks functions up, and reports all mistakes at once, each with its stage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

use super::rules::{BACKOFF, Condition, Definition, StageRules, TIMEOUT};
use super::{Edge, STAGES_MAX, Stage, Workflow, WorkflowError};
use crate::error::{Coded, ErrorCode};
use crate::id::{FunctionName, StageName, VersionNumber};
use crate::unit::{ByteSize, DurationMs};

/// The longest declaration, in bytes.
pub const TEXT_MAX: usize = 256 << 10;
/// The most edges of one workflow.
pub const EDGES_MAX: usize = 1024;
/// The largest expected size of an edge.
pub const SIZE_MAX: ByteSize = ByteSize::from_mib(1024);
/// The longest timeout of a workflow or a stage.
pub const TIMEOUT_MAX: DurationMs = DurationMs::from_secs(3600);
/// The most retries of a stage.
pub const RETRIES_MAX: u32 = 10;
/// The longest pause before the first retry.
pub const BACKOFF_MAX: DurationMs = DurationMs::from_secs(60);
/// The expected size of an edge that was neither declared nor measured.
pub const SIZE_UNKNOWN: ByteSize = ByteSize::from_bytes(64 << 10);

/// The version of a function that a stage refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VersionSelector {
    /// The current version at the time the workflow is deployed.
    #[default]
    Current,
    /// This one.
    Number(VersionNumber),
}

impl Serialize for VersionSelector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Current => serializer.serialize_str("current"),
            Self::Number(number) => serializer.serialize_u32(number.get()),
        }
    }
}

impl<'de> Deserialize<'de> for VersionSelector {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = VersionSelector;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the number of a version, or `current`")
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<VersionSelector, E> {
                self.visit_str(&value.to_string())
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<VersionSelector, E> {
                if value == "current" {
                    return Ok(VersionSelector::Current);
                }
                let number = value.parse::<VersionNumber>();
                number
                    .map(VersionSelector::Number)
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(value), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A parent of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dependency {
    /// The stage whose output is needed.
    pub stage: StageName,
    /// The expected size of the output; `None` until it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<ByteSize>,
}

impl<'de> Deserialize<'de> for Dependency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Dependency;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a stage, or `{ stage: NAME, size: 64KiB }`")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Dependency, E> {
                let stage = value.parse().map_err(E::custom)?;
                Ok(Dependency { stage, size: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Dependency, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct WithSize {
                    stage: StageName,
                    #[serde(default)]
                    size: Option<ByteSize>,
                }
                let WithSize { stage, size } =
                    WithSize::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Dependency { stage, size })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// How often a stage is retried, and after which pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Retries {
    /// The most retries, from 0 to 10. A stage is retried only where that is safe: its function has certainly not begun, or is idempotent.
    pub count: u32,
    /// The pause before the first retry, at most `60s`; it doubles with each further one. `100ms` if absent.
    #[serde(default = "backoff")]
    pub backoff: DurationMs,
}

const fn backoff() -> DurationMs {
    BACKOFF
}

/// A stage of a workflow, as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclaredStage {
    /// The stage's name, unique in the workflow.
    pub name: StageName,
    /// The function that the stage runs, of the same tenant.
    pub function: FunctionName,
    /// The version of that function: a number, or `current`, which is resolved when the workflow is deployed. `current` if absent.
    #[serde(default)]
    #[schema(value_type = String)]
    pub version: VersionSelector,
    /// The stages whose outputs the stage takes (its parents), as names or as `{ stage: NAME, size: 64KiB }` with the expected size of the
    /// output. Absent for the entry stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub needs: Vec<Dependency>,
    /// The path and query with which the function is called; if absent, those of the caller for the entry stage, and `/` for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The time limit of one attempt, from `1ms` to `1h`; the function's own timeout applies if it is shorter or this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationMs>,
    /// How often the stage is retried; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<Retries>,
    /// The condition on its parents' ends under which the stage runs; `success` if absent.
    #[serde(default)]
    pub when: Condition,
}

/// A workflow, as it is declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Declaration {
    /// The stage that takes the request; if absent, the one without parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<StageName>,
    /// The time limit of a whole run, from `1ms` to `1h`; `60s` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<DurationMs>,
    /// The stages, from 1 to 256.
    pub stages: Vec<DeclaredStage>,
}

/// The result of looking up a function that a stage refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionLookup {
    /// A version of the function.
    Version(VersionNumber),
    /// There is no such function.
    NoFunction,
    /// The function has no such version.
    NoVersion,
    /// The name is that of a workflow, which cannot be a stage.
    IsWorkflow,
}

/// The declaration is not valid: one line per mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclarationError(Vec<String>);

impl DeclarationError {
    /// The mistakes, in the order of the stages.
    #[must_use]
    pub fn mistakes(&self) -> &[String] {
        &self.0
    }
}

impl fmt::Display for DeclarationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for DeclarationError {}

impl Coded for DeclarationError {
    fn code(&self) -> ErrorCode {
        ErrorCode::WorkflowInvalid
    }
}

impl From<WorkflowError> for DeclarationError {
    fn from(error: WorkflowError) -> Self {
        Self(vec![error.to_string()])
    }
}

impl Declaration {
    /// Parses YAML or JSON.
    ///
    /// # Errors
    /// The line at which the text is wrong, and why.
    pub fn parse(text: &str) -> Result<Self, DeclarationError> {
        if text.len() > TEXT_MAX {
            let size = text.len();
            let message = format!("the workflow is {size} bytes long, {TEXT_MAX} are allowed");
            return Err(DeclarationError(vec![message]));
        }
        let fault = |message: String| DeclarationError(vec![message]);
        if text.trim_start().starts_with('{') {
            // JSON has its own parser here, because its error messages then speak of JSON.
            return serde_json::from_str(text).map_err(|error| {
                let message = error.to_string();
                let message = message.split(" at line ").next().unwrap_or_default();
                fault(format!("line {}: {message}", error.line()))
            });
        }
        serde_saphyr::from_str(text).map_err(|error| {
            let message = error.without_snippet().to_string();
            // The YAML parser's own position would duplicate the one that is added here.
            let message = message
                .lines()
                .next()
                .unwrap_or_default()
                .split(" at line ")
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ")
                .to_owned();
            match error.location() {
                Some(place) => fault(format!("line {}: {message}", place.line())),
                None => fault(message),
            }
        })
    }

    /// Resolves the whole declaration; `look_up` finds functions.
    ///
    /// # Errors
    /// All mistakes, each with its stage.
    pub fn resolve(
        &self,
        mut look_up: impl FnMut(&FunctionName, VersionSelector) -> FunctionLookup,
    ) -> Result<Definition, DeclarationError> {
        if self.stages.len() > STAGES_MAX {
            return Err(WorkflowError::TooManyStages(self.stages.len()).into());
        }
        let mut wrong = Vec::new();
        self.check_limits(&mut wrong);
        let mut stages = Vec::with_capacity(self.stages.len());
        let mut rules = BTreeMap::new();
        for stage in &self.stages {
            stage.check(&mut wrong);
            let version = match look_up(&stage.function, stage.version) {
                FunctionLookup::Version(version) => version,
                other => {
                    wrong.push(stage.lookup_error(other));
                    VersionNumber::FIRST
                }
            };
            stages.push(Stage {
                name: stage.name.clone(),
                function: stage.function.clone(),
                version,
            });
            let own = stage.rules();
            if own != StageRules::default() {
                rules.insert(stage.name.clone(), own);
            }
        }
        let workflow = match Workflow::new(stages, self.edges()) {
            Ok(workflow) => Some(workflow),
            Err(error) => {
                wrong.push(error.to_string());
                None
            }
        };
        match workflow {
            Some(workflow) if wrong.is_empty() => Ok(Definition {
                workflow,
                timeout: self.timeout.unwrap_or(TIMEOUT),
                rules,
            }),
            Some(_) | None => Err(DeclarationError(wrong)),
        }
    }

    fn edges(&self) -> Vec<Edge> {
        let of = |stage: &DeclaredStage| {
            let to = stage.name.clone();
            stage.needs.clone().into_iter().map(move |need| Edge {
                from: need.stage,
                to: to.clone(),
                size: need.size.unwrap_or(SIZE_UNKNOWN),
            })
        };
        self.stages.iter().flat_map(of).collect()
    }

    fn check_limits(&self, wrong: &mut Vec<String>) {
        if let Some(timeout) = self.timeout
            && !is_time(timeout)
        {
            wrong.push(format!(
                "the workflow's timeout is {timeout}; from 1ms to {TIMEOUT_MAX} is possible"
            ));
        }
        let edges: usize = self.stages.iter().map(|stage| stage.needs.len()).sum();
        if edges > EDGES_MAX {
            wrong.push(format!(
                "the workflow has {edges} edges, {EDGES_MAX} are allowed; split it"
            ));
        }
        let Some(entry) = &self.entry else { return };
        let Some(found) = self.stages.iter().find(|stage| stage.name == *entry) else {
            wrong.push(format!("entry: there is no stage {entry}"));
            return;
        };
        if !found.needs.is_empty() {
            wrong.push(format!("stage {entry} is the entry and cannot need others"));
        }
        for stage in &self.stages {
            if stage.needs.is_empty() && stage.name != *entry {
                let name = &stage.name;
                wrong.push(format!(
                    "stage {name} cannot be reached from the entry {entry}: it needs nothing"
                ));
            }
        }
    }
}

fn is_time(time: DurationMs) -> bool {
    time.as_millis() > 0 && time <= TIMEOUT_MAX
}

impl DeclaredStage {
    fn rules(&self) -> StageRules {
        StageRules {
            path: self.path.clone(),
            timeout: self.timeout,
            retries: self.retries.map_or(0, |retries| retries.count),
            backoff: self.retries.map_or(BACKOFF, |retries| retries.backoff),
            when: self.when,
        }
    }

    fn lookup_error(&self, found: FunctionLookup) -> String {
        let Self { name, function, .. } = self;
        match (found, self.version) {
            (FunctionLookup::IsWorkflow, _) => {
                format!("stage {name}: {function} is a workflow, and a stage runs a function")
            }
            (FunctionLookup::NoVersion, VersionSelector::Number(number)) => {
                format!("stage {name}: function {function} has no version {number}")
            }
            _ => format!("stage {name}: there is no function {function}"),
        }
    }

    fn check(&self, wrong: &mut Vec<String>) {
        let name = &self.name;
        let mut fault = |message: String| wrong.push(format!("stage {name}: {message}"));
        if let Some(timeout) = self.timeout
            && !is_time(timeout)
        {
            fault(format!(
                "timeout is {timeout}; from 1ms to {TIMEOUT_MAX} is possible"
            ));
        }
        if let Some(retries) = self.retries {
            if retries.count > RETRIES_MAX {
                fault(format!(
                    "retries.count is {}; {RETRIES_MAX} at most",
                    retries.count
                ));
            }
            if retries.backoff > BACKOFF_MAX {
                fault(format!(
                    "retries.backoff is {}; {BACKOFF_MAX} at most",
                    retries.backoff
                ));
            }
        }
        if let Some(path) = &self.path {
            let plain = path.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
            if !path.starts_with('/') || !plain || path.len() > 2048 {
                fault("path must begin with / and have no spaces, 2048 bytes at most".to_owned());
            }
        }
        if self.when != Condition::Success && self.needs.is_empty() {
            fault("the entry has no parents, so it runs always: leave `when` out".to_owned());
        }
        let mut seen = BTreeSet::new();
        for need in &self.needs {
            if !seen.insert(&need.stage) {
                fault(format!("needs {} twice", need.stage));
            }
            if let Some(size) = need.size
                && size > SIZE_MAX
            {
                fault(format!(
                    "the output of {} is said to be {size}; {SIZE_MAX} at most",
                    need.stage
                ));
            }
        }
    }
}

#[cfg(test)]
#[path = "declare/tests.rs"]
mod tests;
