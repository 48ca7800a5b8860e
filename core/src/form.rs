//! Forms of a function version: the same function built more than once, for example as a component and as a container image, or for CPUs
//! and for GPUs.
//!
//! A manifest's own keys describe its first form, named `main`. Each `[[forms]]` table describes another: a runtime, the resources of an
//! instance and the expected time of a call. Everything else (timeout, variables, secrets, body limits) belongs to the function and is
//! the same in all forms. A cluster serves one form at a time, which the controller chooses ([`FormChoices`]).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::billing::Money;
use crate::device::GpuRequest;
use crate::digest::Digest;
use crate::id::{ClusterId, FormName, StageName};
use crate::manifest::{Manifest, ManifestBounds, ManifestError, RuntimeKind};
use crate::message::{AppSpec, FunctionSpec};
use crate::unit::{ByteSize, DurationMs, MilliCpu, Millis};

/// The name of the form that a manifest's own keys describe.
const MAIN: &str = "main";

impl FormName {
    /// The form that a manifest's own keys describe.
    #[must_use]
    pub fn main() -> Self {
        MAIN.parse().expect("a label")
    }

    /// Whether this is the first form.
    #[must_use]
    pub fn is_main(&self) -> bool {
        self.as_str() == MAIN
    }
}

/// By cluster, then by stage: the form to serve, for stages whose function has several (a plain function is a stage of its own name). For
/// a cluster that is not listed, or a form that the version does not have, nodes choose themselves: the first form that runs there.
pub type FormChoices = BTreeMap<ClusterId, BTreeMap<StageName, FormName>>;

/// A form of a function besides the first: a `[[forms]]` table of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FormManifest {
    /// The form's name, unique in the function; not `main`, which is the first form.
    pub name: FormName,
    /// The runtime of the form.
    pub runtime: RuntimeKind,
    /// The memory limit of one instance; the function's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// The CPU that one instance reserves, in thousandths of a core; the function's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_milli: Option<MilliCpu>,
    /// The expected time of one call in this form at speed 1, until calls have been measured; the function's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<DurationMs>,
    /// The expected wait of a call for an instance to start; if absent, `5ms` for a component and `1s` for a container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_start: Option<DurationMs>,
    /// The number of calls that one instance may serve, one after another; 1 if absent. For components only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<u32>,
    /// The number of calls that one instance serves at the same time; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// The port on which a container listens; the function's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u16>)]
    pub port: Option<NonZeroU16>,
    /// The path of a container's health check; the function's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_path: Option<String>,
    /// The time that a container may take until it answers; the function's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub startup: Option<DurationMs>,
    /// The GPU slices of one instance; none if absent, whatever the first form requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuRequest>,
}

impl FormManifest {
    /// The manifest of the function with this form alone; `function` is the manifest of the first form.
    #[must_use]
    pub fn over(&self, function: &Manifest) -> Manifest {
        Manifest {
            runtime: self.runtime,
            memory: self.memory.unwrap_or(function.memory),
            cpu_milli: self.cpu_milli.unwrap_or(function.cpu_milli),
            expected: self.expected.unwrap_or(function.expected),
            reuse: self.reuse.unwrap_or(1),
            concurrency: self.concurrency.unwrap_or(1),
            port: self.port.unwrap_or(function.port),
            health_path: self
                .health_path
                .clone()
                .unwrap_or_else(|| function.health_path.clone()),
            startup: self.startup.unwrap_or(function.startup),
            gpu: self.gpu.clone(),
            forms: Vec::new(),
            ..function.clone()
        }
    }

    /// The expected wait of a call for an instance to start: the manifest's value, else the runtime's default.
    #[must_use]
    pub fn cold_start(&self) -> Millis {
        let said = self.cold_start.map(|said| Millis::from(said.as_duration()));
        said.unwrap_or_else(|| cold_start(self.runtime))
    }
}

/// The default of that wait for a runtime.
#[must_use]
pub const fn cold_start(runtime: RuntimeKind) -> Millis {
    match runtime {
        RuntimeKind::Wasm => Millis::new(5.0),
        RuntimeKind::Docker => Millis::new(1000.0),
    }
}

impl Manifest {
    /// Splits the manifest into the function with its first form alone, and its other forms.
    #[must_use]
    pub fn split_forms(mut self) -> (Self, Vec<FormManifest>) {
        let forms = std::mem::take(&mut self.forms);
        (self, forms)
    }

    /// Checks the additional forms.
    ///
    /// # Errors
    /// The first value out of bounds, with its form and key.
    pub(crate) fn check_forms(&self, bounds: &ManifestBounds) -> Result<(), ManifestError> {
        let refuse = |why: String| Err(ManifestError(why));
        if self.forms.len() > bounds.forms {
            return refuse(format!("forms: {} tables at most", bounds.forms));
        }
        let mut names = BTreeSet::new();
        for form in &self.forms {
            let name = &form.name;
            if name.is_main() {
                return refuse(
                    "forms: main is the form of the keys outside of [[forms]]; choose another name"
                        .to_owned(),
                );
            }
            if !names.insert(name) {
                return refuse(format!("forms: {name} stands twice"));
            }
            let whole = form.over(self);
            whole
                .check(bounds)
                .map_err(|error| ManifestError(format!("forms, {name}: {}", error.0)))?;
            let longest = bounds.timeout;
            if form.cold_start.is_some_and(|said| said > longest) {
                return refuse(format!(
                    "forms, {name}: cold_start must be at most {longest}"
                ));
            }
        }
        Ok(())
    }
}

/// A form besides the first, with its artifact, as it is stored and sent to nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FormSpec {
    /// The form's own part of the manifest.
    pub manifest: FormManifest,
    /// The digest of the component or image.
    pub digest: Digest,
    /// The size of the component or image, in bytes.
    pub size: u64,
}

impl FunctionSpec {
    /// The names of the forms, the first one first; empty for a function with a single form, which needs no choice.
    #[must_use]
    pub fn form_names(&self) -> Vec<FormName> {
        if self.forms.is_empty() {
            return Vec::new();
        }
        let others = self.forms.iter().map(|form| form.manifest.name.clone());
        std::iter::once(FormName::main()).chain(others).collect()
    }

    /// The function as if this were its only form; `None` if it has no such form.
    #[must_use]
    pub fn in_form(&self, name: &FormName) -> Option<Self> {
        let mut function = self.clone();
        let forms = std::mem::take(&mut function.forms);
        if name.is_main() {
            return Some(function);
        }
        let form = forms.into_iter().find(|form| form.manifest.name == *name)?;
        function.manifest = form.manifest.over(&function.manifest);
        (function.digest, function.size) = (form.digest, form.size);
        Some(function)
    }

    /// The artifacts of all forms, the first one first.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + '_ {
        let others = self.forms.iter().map(|form| form.digest);
        std::iter::once(self.digest).chain(others)
    }
}

impl AppSpec {
    /// The form chosen for a stage in a cluster; `None` if none was chosen.
    #[must_use]
    pub fn form_in(&self, cluster: &ClusterId, stage: &StageName) -> Option<&FormName> {
        self.forms.get(cluster)?.get(stage)
    }
}

/// The evaluation of a form in a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FormTerms {
    /// The stage's name.
    pub stage: StageName,
    /// The cluster's name.
    pub cluster: ClusterId,
    /// The form's name.
    pub form: FormName,
    /// Whether the cluster serves the stage in this form.
    pub chosen: bool,
    /// The time of a call in the cluster, measured or expected; null if the cluster cannot run the form.
    pub run: Millis,
    /// Whether calls of this form were measured in the cluster.
    pub measured: bool,
    /// The mean time, over all calls, that a call waits for an instance to start; null if the cluster cannot run the form.
    pub cold: Millis,
    /// The cost of a million calls; absent if no price list is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<Money>,
    /// Why the form is served or not, in words.
    pub verdict: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::MebiBytes;

    const TWO: &str = r#"
        memory = "64MiB"
        expected = "40ms"
        reuse = 100
        timeout = "3s"
        [env]
        GREETING = "hi"
        [[forms]]
        name = "gpu"
        runtime = "docker"
        memory = "1GiB"
        expected = "4ms"
        concurrency = 8
        [forms.gpu]
        memory = "4GiB"
    "#;

    fn parse(text: &str) -> Result<Manifest, ManifestError> {
        Manifest::from_toml(text, &ManifestBounds::default())
    }

    #[test]
    fn a_form_has_its_own_needs_and_shares_the_rest() {
        let manifest = parse(TWO).expect("valid");
        assert_eq!(parse(&manifest.to_toml()).expect("own text"), manifest);
        let (function, forms) = manifest.split_forms();
        assert!(function.forms.is_empty() && !function.to_toml().contains("forms"));
        let gpu = forms[0].over(&function);
        assert_eq!(gpu.runtime, RuntimeKind::Docker);
        assert_eq!((gpu.reuse, gpu.concurrency), (1, 8));
        assert_eq!(gpu.resources().gpu_memory_mib, MebiBytes(4096));
        assert_eq!((gpu.timeout, &gpu.env), (function.timeout, &function.env));
        assert_eq!(gpu.cpu_milli, function.cpu_milli, "what it leaves out");
        assert_eq!(forms[0].cold_start(), Millis::new(1000.0));
    }

    #[test]
    fn the_sample_is_valid() {
        let sample = include_str!("../../deploy/function/forms.toml");
        let (function, forms) = parse(sample).expect("valid").split_forms();
        assert_eq!((function.runtime, forms.len()), (RuntimeKind::Wasm, 1));
        let gpu = forms[0].over(&function);
        assert_eq!((gpu.concurrency, gpu.env.len()), (8, 1));
    }

    #[test]
    fn what_no_form_can_be_is_refused_by_its_name() {
        let form = |rest: &str| format!("[[forms]]\nname = \"b\"\n{rest}");
        let twice = form("runtime = \"wasm\"\n").repeat(2);
        let many: String = (0..4)
            .map(|n| format!("[[forms]]\nname = \"f{n}\"\nruntime = \"wasm\"\n"))
            .collect();
        for (text, expected) in [
            (form(""), "runtime"),
            (form("runtime = \"docker\"\nmemroy = \"1MiB\""), "memroy"),
            (
                form("runtime = \"docker\"\nreuse = 9"),
                "forms, b: reuse is for",
            ),
            (
                form("runtime = \"wasm\"\n[forms.gpu]\nmemory = \"1GiB\""),
                "forms, b: gpu needs",
            ),
            (
                form("runtime = \"docker\"\nmemory = \"900GiB\""),
                "forms, b: memory must be",
            ),
            (
                form("runtime = \"docker\"\ncold_start = \"16m\""),
                "forms, b: cold_start must be at most",
            ),
            (
                format!(
                    "allowed_hosts = [\"a.example\"]\n{}",
                    form("runtime = \"docker\"")
                ),
                "forms, b: allowed_hosts must be left out",
            ),
            (twice, "b stands twice"),
            (many, "forms: 3 tables at most"),
            (
                "[[forms]]\nname = \"main\"\nruntime = \"docker\"".to_owned(),
                "choose another name",
            ),
        ] {
            let error = parse(&text).expect_err(&text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    fn spec() -> FunctionSpec {
        let (manifest, forms) = parse(TWO).expect("valid").split_forms();
        let forms = forms.into_iter().map(|manifest| FormSpec {
            manifest,
            digest: Digest::of(b"image"),
            size: 5,
        });
        FunctionSpec {
            function: "f".parse().expect("function"),
            version: crate::VersionNumber::FIRST,
            digest: Digest::of(b"component"),
            size: 9,
            manifest,
            secrets: BTreeMap::new(),
            forms: forms.collect(),
        }
    }

    #[test]
    fn a_function_is_each_of_its_forms() {
        let (function, name) = (spec(), |name: &str| name.parse::<FormName>().expect("form"));
        assert_eq!(function.form_names(), [name("main"), name("gpu")]);
        let gpu = function.in_form(&name("gpu")).expect("a form");
        assert_eq!((gpu.digest, gpu.size), (Digest::of(b"image"), 5));
        assert_eq!(gpu.manifest.runtime, RuntimeKind::Docker);
        assert!(gpu.forms.is_empty() && gpu.form_names().is_empty());
        let main = function.in_form(&name("main")).expect("a form");
        assert_eq!(
            (main.digest, main.manifest),
            (function.digest, function.manifest.clone())
        );
        assert_eq!(function.in_form(&name("other")), None);
        assert_eq!(function.digests().count(), 2);
    }

    #[test]
    fn agents_that_know_no_forms_read_the_first_one() {
        // The fields that older agents know; their manifest refuses unknown keys.
        #[derive(Deserialize)]
        struct Before {
            digest: Digest,
            manifest: Manifest,
        }
        let text = serde_json::to_string(&spec()).expect("json");
        let before: Before = serde_json::from_str(&text).expect("as before");
        assert_eq!(before.digest, Digest::of(b"component"));
        let own = serde_json::to_value(&before.manifest).expect("json");
        assert_eq!(own.get("forms"), None);
        let single = FunctionSpec {
            forms: Vec::new(),
            ..spec()
        };
        let text = serde_json::to_string(&single).expect("json");
        assert!(!text.contains("forms"), "{text}");
        let read: FunctionSpec = serde_json::from_str(&text).expect("json of before");
        assert_eq!(read, single);
    }
}
