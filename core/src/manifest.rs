//! The manifest `fdn.toml` of a function: its runtime, limits and environment.
//!
//! Parsed once, at the border; a [`Manifest`] in hand is valid. Unknown keys are refused, because a misspelt limit that is
//! silently ignored is worse than an error.

mod check;
mod host;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use check::ManifestBounds;
pub use host::AllowedHost;

use crate::device::GpuRequest;
use crate::error::{Coded, ErrorCode};
use crate::form::FormManifest;
use crate::id::{FunctionName, SecretName};
use crate::resources::Resources;
use crate::unit::{ByteSize, DurationMs, MebiBytes, MilliCpu, Millis};

/// The runtime of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RuntimeKind {
    /// A WebAssembly component that exports `wasi:http/incoming-handler`.
    #[default]
    Wasm,
    /// A container image that serves HTTP on the port in `$PORT`.
    Docker,
}

impl RuntimeKind {
    /// The name used in manifests.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Docker => "docker",
        }
    }

    /// Whether its instances can use GPU devices.
    #[must_use]
    pub const fn takes_devices(self) -> bool {
        match self {
            Self::Wasm => false,
            Self::Docker => true,
        }
    }

    /// Whether nodes can restrict the outbound connections of its instances to a list of hosts.
    #[must_use]
    pub const fn filters_outbound(self) -> bool {
        match self {
            Self::Wasm => true,
            Self::Docker => false,
        }
    }
}

/// The manifest of a function version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Manifest {
    /// The function's name; absent if it is not stated. A name given to `fdn deploy` takes precedence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<FunctionName>,
    /// The runtime of the first form; `wasm` by default.
    pub runtime: RuntimeKind,
    /// The memory limit of one instance; `64MiB` by default. For a component, it holds for all its linear memories together.
    pub memory: ByteSize,
    /// The CPU that a running instance is expected to keep busy, and that placement reserves, in thousandths of a core; 100 by default. It
    /// also limits containers.
    pub cpu_milli: MilliCpu,
    /// The time limit of a call, from the request's arrival to the last byte of the response; `10s` by default.
    pub timeout: DurationMs,
    /// The limit of the CPU time of one call; `5s` by default.
    pub cpu_time: DurationMs,
    /// The number of calls that one instance may serve, one after another; 1 by default, which means a fresh instance for each call. For
    /// components only.
    pub reuse: u32,
    /// The number of calls that one instance serves at the same time; 1 by default, and always for components.
    pub concurrency: u32,
    /// Whether calling the function twice with the same request has the same effect as calling it once. If true, a call that was cut short
    /// may be repeated whatever its method. False by default.
    pub idempotent: bool,
    /// The port on which a container listens, which it finds in the variable `PORT`; 8080 by default.
    #[schema(value_type = u16)]
    pub port: NonZeroU16,
    /// The path of a container's health check; `/` by default.
    pub health_path: String,
    /// The time that a container may take until it answers; `30s` by default.
    pub startup: DurationMs,
    /// The largest request body; `10MiB` by default.
    pub body_limit: ByteSize,
    /// The largest response body; `64MiB` by default.
    pub response_limit: ByteSize,
    /// The environment variables, by name.
    pub env: BTreeMap<SecretName, String>,
    /// The names of secrets that are injected as environment variables; the manifest never contains their values.
    pub secrets: BTreeSet<SecretName>,
    /// The hosts that the function may call, such as `api.example.com`, `api.example.com:8443` or `*.example.com`; none by default. For
    /// components only: containers have no network.
    #[schema(value_type = Vec<String>)]
    pub allowed_hosts: BTreeSet<AllowedHost>,
    /// The expected time of one call at speed 1, until calls have been measured; `10ms` by default.
    pub expected: DurationMs,
    /// The GPU slices of one instance; absent for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuRequest>,
    /// The forms of the function besides the first. Absent where they are listed beside the manifest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub forms: Vec<FormManifest>,
}

/// The default port on which containers listen.
const PORT_DEFAULT: NonZeroU16 = NonZeroU16::new(8080).expect("not zero");

impl Default for Manifest {
    fn default() -> Self {
        Self {
            name: None,
            runtime: RuntimeKind::Wasm,
            memory: ByteSize::from_mib(64),
            cpu_milli: MilliCpu(100),
            timeout: DurationMs::from_secs(10),
            cpu_time: DurationMs::from_secs(5),
            reuse: 1,
            concurrency: 1,
            idempotent: false,
            port: PORT_DEFAULT,
            health_path: "/".to_owned(),
            startup: DurationMs::from_secs(30),
            body_limit: ByteSize::from_mib(10),
            response_limit: ByteSize::from_mib(64),
            env: BTreeMap::new(),
            secrets: BTreeSet::new(),
            allowed_hosts: BTreeSet::new(),
            expected: DurationMs::from_millis(10),
            gpu: None,
            forms: Vec::new(),
        }
    }
}

/// A manifest is refused, for this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fdn.toml: {0}")]
pub struct ManifestError(pub String);

impl Coded for ManifestError {
    fn code(&self) -> ErrorCode {
        ErrorCode::ManifestInvalid
    }
}

impl Manifest {
    /// Parses and checks the text of an `fdn.toml`.
    ///
    /// # Errors
    /// When the text is not TOML, has an unknown key, a value of the wrong form, or a value out of `bounds`; the message names
    /// line or key and what was expected.
    pub fn from_toml(text: &str, bounds: &ManifestBounds) -> Result<Self, ManifestError> {
        let manifest: Self =
            toml::from_str(text).map_err(|e| ManifestError(e.to_string().trim().to_owned()))?;
        manifest.check(bounds)?;
        Ok(manifest)
    }

    /// The manifest as an `fdn.toml`.
    #[must_use]
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a manifest has no value that TOML cannot write")
    }

    /// The resources of one instance.
    #[must_use]
    pub fn resources(&self) -> Resources {
        Resources {
            gpu_memory_mib: self.gpu.as_ref().map_or(MebiBytes(0), GpuRequest::total),
            ..Resources::new(self.cpu_milli, self.memory.to_mebibytes())
        }
    }

    /// The expected time of one call at speed 1, in the schedulers' unit.
    #[must_use]
    pub fn expected_millis(&self) -> Millis {
        Millis::from(self.expected.as_duration())
    }

    /// The memory that one instance reserves, in MiB.
    #[must_use]
    pub const fn memory_mib(&self) -> MebiBytes {
        self.memory.to_mebibytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Manifest, ManifestError> {
        Manifest::from_toml(text, &ManifestBounds::default())
    }

    #[test]
    fn an_empty_manifest_is_the_defaults_and_round_trips() {
        let manifest = parse("").expect("defaults");
        assert_eq!(manifest, Manifest::default());
        assert_eq!(parse(&manifest.to_toml()).expect("own text"), manifest);
    }

    #[test]
    fn a_full_manifest() {
        let manifest = parse(
            r#"
            name = "thumb"
            memory = "128MiB"
            timeout = "2s"
            reuse = 1000
            secrets = ["API_KEY"]
            allowed_hosts = ["api.example.com", "*.example.org:8443"]
            [env]
            GREETING = "hi"
            "#,
        )
        .expect("valid");
        assert_eq!(manifest.memory_mib(), MebiBytes(128));
        assert!(
            manifest
                .allowed_hosts
                .iter()
                .any(|h| h.covers("a.example.org", 8443))
        );
        assert_eq!(parse(&manifest.to_toml()).expect("own text"), manifest);
    }

    #[test]
    fn a_container_says_how_it_serves() {
        let text = "runtime = \"docker\"\nconcurrency = 20\nidempotent = true\nport = 3000\nhealth_path = \"/live\"";
        let manifest = parse(text).expect("valid");
        assert_eq!(manifest.runtime, RuntimeKind::Docker);
        assert_eq!((manifest.concurrency, manifest.port.get()), (20, 3000));
        assert_eq!(parse(&manifest.to_toml()).expect("own text"), manifest);
    }

    #[test]
    fn each_mistake_is_named() {
        for (text, expected) in [
            ("memroy = \"1MiB\"", "memroy"),
            ("memory = 64", "a size in quotes"),
            ("memory = \"1TiB\"", "size"),
            ("memory = \"900GiB\"", "memory must be from 1MiB to 2GiB"),
            ("timeout = \"0s\"", "timeout must be"),
            ("reuse = 0", "reuse must be"),
            ("concurrency = 2", "concurrency must be 1 with"),
            (
                "runtime = \"docker\"\nconcurrency = 0",
                "concurrency must be from 1 to 1000",
            ),
            ("runtime = \"docker\"\nreuse = 9", "reuse is for"),
            ("health_path = \"x\"", "health_path must begin with /"),
            ("startup = \"0s\"", "startup must be"),
            ("port = 0", "port"),
            ("runtime = \"podman\"", "podman"),
            ("secrets = [\"A\"]\n[env]\nA = \"1\"", "A stands in both"),
            ("allowed_hosts = [\"https://x.example\"]", "no scheme"),
            ("[env]\n\"1BAD\" = \"x\"", "environment variable name"),
            (
                "[env]\nCUDA_MPS_PINNED_DEVICE_MEM_LIMIT = \"0=80G\"",
                "env must not hold CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
            ),
            (
                "secrets = [\"NVIDIA_VISIBLE_DEVICES\"]",
                "secrets must not hold NVIDIA_VISIBLE_DEVICES",
            ),
            (
                "[env]\nFDN_GPU_DEVICES = \"all\"",
                "CUDA_ or FDN_ or NVIDIA_",
            ),
            (
                "runtime = \"docker\"\nallowed_hosts = [\"api.example.com\"]",
                "allowed_hosts must be left out with runtime",
            ),
            ("memory = ", "line 1"),
            ("[gpu]\ncores = 10", "memory"),
            ("[gpu]\nmemory = \"0\"", "gpu.memory must be"),
            (
                "[gpu]\nmemory = \"1GiB\"",
                "gpu needs a runtime of containers",
            ),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn slices_of_devices_are_asked_of_a_node() {
        let text = "[gpu]\nmemory = \"1GiB\"\ncount = 2";
        let manifest: Manifest = toml::from_str(text).expect("valid");
        assert_eq!(manifest.resources().gpu_memory_mib, MebiBytes(2048));
        let again: Manifest = toml::from_str(&manifest.to_toml()).expect("own text");
        assert_eq!(again, manifest);
    }
}
