//! What is to be started, and what is known of an instance for as long as it lives.

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

/// The bytes that an instance runs, and where to have them from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Of the registry's manifest, of the archive file, or of the component.
    pub digest: Digest,
    /// Where it comes from.
    pub source: ImageSource,
}

/// Where an image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// Pulled as `repository@digest`; a tag is never resolved here.
    Registry {
        /// Such as `registry.example.com/team/thumbs`.
        repository: String,
        /// Who pulls, if the registry asks.
        credentials: Option<Credentials>,
    },
    /// An archive that was uploaded and lies in the node's artifact cache: what `docker save` writes, or an OCI layout, as a
    /// tar file, which may be compressed.
    Archive {
        /// The file; its bytes have been checked against the digest by the cache.
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

/// How it is known that a container answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readiness {
    /// The path of the HTTP request; any answer below 500 means ready.
    pub path: String,
    /// How long it may take from the start of its process.
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

/// Where an instance may open connections to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outbound {
    /// Nowhere.
    #[default]
    Denied,
    /// To these hosts. A runtime that cannot keep to the list refuses to start the instance.
    Hosts(BTreeSet<AllowedHost>),
    /// Wherever the node can.
    Open,
}

/// What an instance is and holds. Written on containers and pods as a label, so that an agent that starts again knows what
/// runs; holds no secret.
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
    /// Of a function with several forms, which one: two of them may be one image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<FormName>,
    /// Of the image.
    pub digest: Digest,
    /// CPU and memory that it holds of the node, enforced where the runtime can.
    pub resources: Resources,
    /// How many calls it takes at the same time.
    pub concurrency: NonZeroU32,
    /// The port inside on which it listens; it is told by `PORT`. A runtime may give it another one.
    pub port: NonZeroU16,
    /// GPU slices bound to it.
    pub devices: Vec<DeviceGrant>,
    /// How it is checked.
    pub readiness: Readiness,
}

impl Description {
    /// Whether both are of one version of one function, in the same form.
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
    /// What stays known.
    pub description: Description,
    /// What it runs; its digest is the description's.
    pub image: Image,
    /// Most processes and threads at the same time.
    pub pids: u32,
    /// Environment variables.
    pub env: BTreeMap<SecretName, String>,
    /// Secrets, given as environment variables.
    pub secrets: Secrets,
    /// Where it may connect to.
    pub outbound: Outbound,
    /// How much of its output is kept.
    pub logs: LogLimits,
    /// What of the node's GPU devices is to be bound to it before its start; [`Description::devices`] says what was.
    pub gpu: Option<GpuRequest>,
}

impl StartSpec {
    /// A specification with every limit at its default: for tests, and as a start.
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

    /// All environment variables that the instance shall see: its own, its secrets, and over both those of its devices, so that nothing that a
    /// function names widens what was bound to it. Without a device the NVIDIA runtime is told so, whatever the image says.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        let own = self.env.iter().chain(&self.secrets.0);
        let mut all: BTreeMap<_, _> = own
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        all.extend(self.imposed());
        all
    }

    /// What the node sets, over what the function says.
    #[must_use]
    pub fn imposed(&self) -> BTreeMap<String, String> {
        let none = (NVIDIA_DEVICES.to_owned(), "void".to_owned());
        let devices = self.description.devices.iter().flat_map(|d| d.env.clone());
        std::iter::once(none).chain(devices).collect()
    }
}

/// The devices that the NVIDIA container runtime makes visible. Images of CUDA say `all`, which an engine that has it as its default obeys.
const NVIDIA_DEVICES: &str = "NVIDIA_VISIBLE_DEVICES";

/// The port that containers are told by `PORT` unless a manifest says otherwise.
pub const DEFAULT_PORT: NonZeroU16 = NonZeroU16::new(8080).expect("not zero");

/// Durations as whole milliseconds.
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
