//! Specifications of instances to be started, and descriptions of instances for as long as they live.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};
use std::path::PathBuf;
use std::time::Duration;

pub use fdn_core::device::DeviceGrant;
use fdn_core::device::GpuRequest;
use fdn_core::manifest::{AllowedHost, Manifest};
use fdn_core::{
    AppName, Digest, FormName, FunctionName, InstanceId, Resources, SecretName, VersionNumber,
};
use serde::{Deserialize, Serialize};

use crate::log::LogLimits;

/// The image that an instance runs, and its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The digest of the registry's manifest, of the archive file, or of the component.
    pub digest: Digest,
    /// The source of the image.
    pub source: ImageSource,
}

/// The source of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// Pulled as `repository@digest`; a tag is never resolved here.
    Registry {
        /// The repository, such as `registry.example.com/team/thumbs`.
        repository: String,
        /// The credentials for the pull, if the registry requires them.
        credentials: Option<Credentials>,
    },
    /// An uploaded archive in the node's artifact cache: the output of `docker save`, or an OCI layout, as a
    /// tar file, which may be compressed.
    Archive {
        /// The file; the cache has verified its digest.
        path: PathBuf,
    },
    /// A WebAssembly component, compiled on this node.
    Component {
        /// The compiled file.
        path: PathBuf,
        /// Everything about its calls: limits, hosts, reuse.
        manifest: Box<Manifest>,
    },
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            ImageSource::Registry { repository, .. } => write!(f, "{repository}@{}", self.digest),
            ImageSource::Archive { .. } => write!(f, "archive {}", self.digest),
            ImageSource::Component { .. } => write!(f, "component {}", self.digest),
        }
    }
}

/// A name and password for a registry. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub username: String,
    /// The password or token.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// Values of secrets by name. Never printed, never written on labels.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secrets(pub BTreeMap<SecretName, String>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// How to determine that a container answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// The path of the HTTP request; any answer below 500 means ready.
    pub path: String,
    /// The time limit, from the start of its process.
    #[serde(with = "crate::spec::millis")]
    pub timeout: Duration,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            timeout: Duration::from_secs(30),
        }
    }
}

/// The destinations to which an instance may open connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outbound {
    /// None.
    #[default]
    Denied,
    /// These hosts. A runtime that cannot enforce the list refuses to start the instance.
    Hosts(BTreeSet<AllowedHost>),
    /// Everything that the node can reach.
    Open,
}

/// What an instance is and holds. Written on containers and pods as a label, so that a restarted agent knows what
/// runs; contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Its id.
    pub id: InstanceId,
    /// The app it serves.
    pub app: AppName,
    /// The function.
    pub function: FunctionName,
    /// The version.
    pub version: VersionNumber,
    /// The form, for a function with several forms: two of them may have the same image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<FormName>,
    /// The digest of the image.
    pub digest: Digest,
    /// CPU and memory that it holds on the node, enforced where the runtime can.
    pub resources: Resources,
    /// How many calls it accepts at the same time.
    pub concurrency: NonZeroU32,
    /// The port on which it listens inside; passed to it as `PORT`. A runtime may choose another one.
    pub port: NonZeroU16,
    /// The GPU slices bound to it.
    pub devices: Vec<DeviceGrant>,
    /// How to determine that it answers.
    pub readiness: Readiness,
}

impl Description {
    /// Whether both are of the same version of the same function, in the same form.
    #[must_use]
    pub fn is_of_the_same(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.version, one.digest);
        self.app == other.app
            && self.function == other.function
            && of(self) == of(other)
            && self.form == other.form
    }
}

/// Everything needed to start an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartSpec {
    /// What is remembered of it.
    pub description: Description,
    /// The image that it runs, with the same digest as in the description.
    pub image: Image,
    /// The most processes and threads at the same time.
    pub pids: u32,
    /// Environment variables.
    pub env: BTreeMap<SecretName, String>,
    /// Secrets, passed as environment variables.
    pub secrets: Secrets,
    /// The destinations to which it may connect.
    pub outbound: Outbound,
    /// Limits on the part of its output that is kept.
    pub logs: LogLimits,
    /// The GPU resources to be bound to it before its start; [`Description::devices`] has those that were bound.
    pub gpu: Option<GpuRequest>,
}

impl StartSpec {
    /// A specification with every limit at its default: for tests, and as a starting point.
    #[must_use]
    pub fn new(
        id: InstanceId,
        app: AppName,
        function: FunctionName,
        image: Image,
        resources: Resources,
    ) -> Self {
        Self {
            description: Description {
                id,
                app,
                function,
                version: VersionNumber::FIRST,
                form: None,
                digest: image.digest,
                resources,
                concurrency: NonZeroU32::MIN,
                port: DEFAULT_PORT,
                devices: Vec::new(),
                readiness: Readiness::default(),
            },
            image,
            pids: 64,
            env: BTreeMap::new(),
            secrets: Secrets::default(),
            outbound: Outbound::Denied,
            logs: LogLimits::default(),
            gpu: None,
        }
    }

    /// All environment variables that the instance sees: its own, its secrets, and overriding both, those of its devices, so that no variable of a
    /// function extends what was bound to it. Without a device the NVIDIA runtime is told so, whatever the image says.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let own = self.env.iter().chain(&self.secrets.0);
        let mut all: BTreeMap<_, _> = own
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        all.extend(self.imposed());
        all
    }

    /// The variables that the node sets, overriding those of the function.
    #[must_use]
    pub fn imposed(&self) -> BTreeMap<String, String> {
        let none = (NVIDIA_DEVICES.to_owned(), "void".to_owned());
        let devices = self.description.devices.iter().flat_map(|d| d.env.clone());
        std::iter::once(none).chain(devices).collect()
    }
}

/// The devices that the NVIDIA container runtime makes visible. CUDA images say `all`, which is obeyed by an engine with that runtime as its default.
const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The port passed to containers as `PORT` unless a manifest says otherwise.
pub const DEFAULT_PORT: NonZeroU16 = NonZeroU16::new(8080).expect("not zero");

/// Serializes durations as whole milliseconds.
pub(crate) mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        u64::deserialize(d).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::MebiBytes;

    use super::*;

    fn spec() -> StartSpec {
        let image = Image {
            digest: Digest::of(b"image"),
            source: ImageSource::Archive {
                path: PathBuf::from("image.tar"),
            },
        };
        let id = InstanceId::from_uuid(uuid::Uuid::nil());
        let (app, function) = ("a".parse().expect("app"), "a".parse().expect("function"));
        StartSpec::new(id, app, function, image, Resources::default())
    }

    #[test]
    fn what_binds_devices_stands_over_variables_and_secrets() {
        let mut spec = spec();
        spec.description.devices = vec![DeviceGrant {
            device: "GPU-1".to_owned(),
            memory: MebiBytes(1024),
            env: BTreeMap::from([
                ("NVIDIA_VISIBLE_DEVICES".to_owned(), "GPU-1".to_owned()),
                (
                    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT".to_owned(),
                    "0=1024M".to_owned(),
                ),
            ]),
            folders: BTreeSet::new(),
            physical: true,
        }];
        let name = |text: &str| text.parse::<SecretName>().expect("name");
        spec.env
            .insert(name("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=80G".to_owned());
        spec.env.insert(name("GREETING"), "hi".to_owned());
        spec.secrets
            .0
            .insert(name("NVIDIA_VISIBLE_DEVICES"), "all".to_owned());
        let environment = spec.environment();
        assert_eq!(environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=1024M");
        assert_eq!(environment["NVIDIA_VISIBLE_DEVICES"], "GPU-1");
        assert_eq!(environment["GREETING"], "hi");
    }

    #[test]
    fn who_was_bound_no_device_sees_none() {
        let mut spec = spec();
        let name = "NVIDIA_VISIBLE_DEVICES".parse().expect("name");
        spec.env.insert(name, "all".to_owned());
        assert_eq!(spec.environment()["NVIDIA_VISIBLE_DEVICES"], "void");
    }
}
