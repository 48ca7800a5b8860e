//! The bounds that a network sets on manifests, and the check against them.

use serde::{Deserialize, Serialize};

use super::{Manifest, ManifestError, RuntimeKind};
use crate::device::{GpuBounds, RESERVED_PREFIXES, is_reserved};
use crate::unit::{ByteSize, DurationMs};

/// The bounds that a network sets on manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ManifestBounds {
    /// Largest `memory`.
    pub memory: ByteSize,
    /// Longest `timeout` and `cpu_time`.
    pub timeout: DurationMs,
    /// Largest `body_limit` and `response_limit`.
    pub body: ByteSize,
    /// Largest `reuse`.
    pub reuse: u32,
    /// Largest `concurrency`.
    pub concurrency: u32,
    /// The most environment variables and secrets together.
    pub env_entries: usize,
    /// The most bytes of all `env` values together.
    pub env_size: ByteSize,
    /// The most allowed hosts.
    pub allowed_hosts: usize,
    /// The most `[[forms]]` tables, i.e. forms besides the first.
    pub forms: usize,
    /// The bounds of the `[gpu]` table.
    pub gpu: GpuBounds,
}

impl Default for ManifestBounds {
    fn default() -> Self {
        Self {
            memory: ByteSize::from_mib(2048),
            timeout: DurationMs::from_secs(900),
            body: ByteSize::from_mib(512),
            reuse: 1_000_000,
            concurrency: 1000,
            env_entries: 128,
            env_size: ByteSize::from_bytes(64 << 10),
            allowed_hosts: 64,
            forms: 3,
            gpu: GpuBounds::default(),
        }
    }
}

impl Manifest {
    /// Checks every value against `bounds`.
    ///
    /// # Errors
    /// The first value out of bounds, by its key.
    pub fn check(&self, bounds: &ManifestBounds) -> Result<(), ManifestError> {
        let within = |key: &str, ok: bool, rule: String| {
            if ok {
                Ok(())
            } else {
                Err(ManifestError(format!("{key} must be {rule}")))
            }
        };
        let at_most = |key: &str, value: ByteSize, least: ByteSize, most: ByteSize| {
            within(
                key,
                (least..=most).contains(&value),
                format!("from {least} to {most}, not {value}"),
            )
        };
        at_most("memory", self.memory, ByteSize::from_mib(1), bounds.memory)?;
        at_most(
            "body_limit",
            self.body_limit,
            ByteSize::from_bytes(0),
            bounds.body,
        )?;
        at_most(
            "response_limit",
            self.response_limit,
            ByteSize::from_bytes(1),
            bounds.body,
        )?;
        for (key, value) in [("timeout", self.timeout), ("cpu_time", self.cpu_time)] {
            let range = DurationMs::from_millis(1)..=bounds.timeout;
            within(
                key,
                range.contains(&value),
                format!("from 1ms to {}, not {value}", bounds.timeout),
            )?;
        }
        within(
            "reuse",
            (1..=bounds.reuse).contains(&self.reuse),
            format!("from 1 to {}", bounds.reuse),
        )?;
        self.check_instances(bounds)?;
        let entries = self.env.len() + self.secrets.len();
        within(
            "env",
            entries <= bounds.env_entries,
            format!("{} entries at most, secrets included", bounds.env_entries),
        )?;
        let bytes: u64 = self.env.values().map(|v| v.len() as u64).sum();
        within(
            "env",
            bytes <= bounds.env_size.as_bytes(),
            format!("{} of values at most", bounds.env_size),
        )?;
        within(
            "env",
            self.env.values().all(|v| !v.contains('\0')),
            "free of NUL characters".to_owned(),
        )?;
        if let Some(both) = self.secrets.iter().find(|s| self.env.contains_key(s)) {
            return Err(ManifestError(format!(
                "{both} stands in both env and secrets; keep one"
            )));
        }
        self.check_reserved()?;
        within(
            "allowed_hosts",
            self.runtime.filters_outbound() || self.allowed_hosts.is_empty(),
            "left out with runtime = \"docker\": nodes cannot hold containers to a list of hosts, so these have no network".to_owned(),
        )?;
        let hosts = self.allowed_hosts.len();
        within(
            "allowed_hosts",
            hosts <= bounds.allowed_hosts,
            format!("{} entries at most", bounds.allowed_hosts),
        )?;
        self.check_gpu(bounds)?;
        self.check_forms(bounds)
    }

    /// Refuses variables that are reserved for device bindings.
    fn check_reserved(&self) -> Result<(), ManifestError> {
        let env = self.env.keys().map(|name| ("env", name));
        let secrets = self.secrets.iter().map(|name| ("secrets", name));
        let mut all = env.chain(secrets);
        match all.find(|(_, name)| is_reserved(name.as_str())) {
            Some((key, name)) => Err(ManifestError(format!(
                "{key} must not hold {name}: the node alone sets names that begin with {}; leave it out, and set what a library reads in the \
                 container image",
                RESERVED_PREFIXES.join(" or ")
            ))),
            None => Ok(()),
        }
    }

    fn check_gpu(&self, bounds: &ManifestBounds) -> Result<(), ManifestError> {
        let Some(gpu) = &self.gpu else {
            return Ok(());
        };
        gpu.check(&bounds.gpu).map_err(ManifestError)?;
        if self.runtime.takes_devices() {
            return Ok(());
        }
        Err(ManifestError(
            "gpu needs a runtime of containers: WebAssembly components reach no device".to_owned(),
        ))
    }

    /// Checks the keys about instances.
    fn check_instances(&self, bounds: &ManifestBounds) -> Result<(), ManifestError> {
        let is_component = self.runtime == RuntimeKind::Wasm;
        let rules = [
            (
                (1..=bounds.concurrency).contains(&self.concurrency),
                format!("concurrency must be from 1 to {}", bounds.concurrency),
            ),
            (
                !is_component || self.concurrency == 1,
                "concurrency must be 1 with runtime = \"wasm\": every call has an instance of its own".to_owned(),
            ),
            (
                is_component || self.reuse == 1,
                "reuse is for runtime = \"wasm\"; a container serves until it is stopped".to_owned(),
            ),
            (
                self.health_path.starts_with('/')
                    && self.health_path.len() <= 1024
                    && self.health_path.bytes().all(|b| b.is_ascii_graphic()),
                "health_path must begin with / and be at most 1024 visible characters".to_owned(),
            ),
            (
                (DurationMs::from_millis(1)..=bounds.timeout).contains(&self.startup),
                format!("startup must be from 1ms to {}", bounds.timeout),
            ),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(ManifestError(rule)),
            None => Ok(()),
        }
    }
}
