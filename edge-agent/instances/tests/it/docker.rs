//! Containers of a real Docker engine.

mod ahead;
mod own;
mod reach;
mod registry;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use bollard::Docker;
use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, KillContainerOptionsBuilder, ListContainersOptionsBuilder,
};
use fdn_core::{Digest, InstanceId};
use fdn_instances::docker::{DockerOptions, DockerRuntime, Network};
use fdn_instances::{Image, ImageSource, Instance, Owner, Runtime, RuntimeError};
use fdn_testkit::folder::OwnedFolder;
use uuid::Uuid;

use crate::contract::contract;
use crate::subject::{PATIENCE, Program, Subject};

/// The engine, reached with one of the network modes.
pub(crate) struct Engine {
    socket: PathBuf,
    network: Network,
}

/// The folder for files of containers; the same for all runtimes, as for agents that are restarted.
fn folder() -> PathBuf {
    static FOLDER: OnceLock<OwnedFolder> = OnceLock::new();
    let made = || OwnedFolder::new("fdn-containers-").expect("a folder for temporary files");
    FOLDER.get_or_init(made).path().to_owned()
}

/// The probe's archive as an image.
pub(crate) fn image_of(archive: PathBuf) -> Image {
    let bytes = std::fs::read(&archive).expect("the archive was written");
    Image {
        digest: Digest::of(&bytes),
        source: ImageSource::Archive { path: archive },
    }
}

fn image() -> Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE
        .get_or_init(|| image_of(fdn_testkit::docker::saved_image("contract")))
        .clone()
}

impl Engine {
    pub(crate) async fn with(network: Network) -> Self {
        Self {
            socket: fdn_testkit::docker::socket().await,
            network,
        }
    }

    pub(crate) fn client(&self) -> Docker {
        let path = self.socket.display().to_string();
        Docker::connect_with_unix(&path, 60, bollard::API_DEFAULT_VERSION).expect("a socket")
    }

    /// The error of a runtime whose operator has not said that all functions are trusted.
    pub(crate) async fn refused_without_trust(&self) -> RuntimeError {
        let options = DockerOptions {
            socket: self.socket.clone(),
            network: self.network,
            engine_timeout: PATIENCE,
            ..DockerOptions::default()
        };
        let refused = DockerRuntime::connect(crate::subject::owner(), options).await;
        refused.expect_err("nobody is trusted")
    }

    pub(crate) async fn runtime_with(
        &self,
        owner: Owner,
        change: impl FnOnce(&mut DockerOptions),
    ) -> Arc<DockerRuntime> {
        let mut options = DockerOptions {
            socket: self.socket.clone(),
            network: self.network,
            trusted: self.network != Network::Isolated,
            folder: Some(folder()),
            // No pause of a busy machine is taken for a failure.
            engine_timeout: PATIENCE,
            last_lines: PATIENCE / 2,
            ..DockerOptions::default()
        };
        options.health.timeout = PATIENCE;
        change(&mut options);
        let connecting = DockerRuntime::connect(owner, options);
        Arc::new(connecting.await.expect("the engine answers"))
    }
}

fn labels(owner: &Owner) -> [String; 2] {
    [
        format!("net.fdn.cluster={}", owner.cluster),
        format!("net.fdn.node={}", owner.node),
    ]
}

#[async_trait]
impl Subject for Engine {
    async fn runtime(&self, owner: Owner) -> Arc<dyn Runtime> {
        self.runtime_with(owner, |_| {}).await
    }

    fn image(&self, _program: Program) -> Image {
        image()
    }

    fn missing_image(&self) -> Image {
        Image {
            digest: Digest::of(b"nowhere"),
            source: ImageSource::Registry {
                // Nothing listens there.
                repository: "127.0.0.1:9/nowhere".to_owned(),
                credentials: None,
            },
        }
    }

    async fn kill(&self, instance: &dyn Instance) {
        let options = KillContainerOptionsBuilder::default()
            .signal("SIGKILL")
            .build();
        let name = format!("fdn-{}", instance.id());
        let killed = self.client().kill_container(&name, Some(options)).await;
        killed.expect("it runs");
    }

    async fn leftovers(&self, owner: &Owner) -> usize {
        let filters = HashMap::from([("label".to_owned(), labels(owner).to_vec())]);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .filters(&filters)
            .build();
        let listed = self.client().list_containers(Some(options)).await;
        listed.expect("the engine answers").len()
    }

    async fn leave_half_made(&self, owner: &Owner, image: &Image) {
        // The image is on the engine once it was prepared.
        self.runtime(owner.clone())
            .await
            .prepare(image)
            .await
            .expect("the image");
        let id = InstanceId::from_uuid(Uuid::new_v4());
        let labels = labels(owner);
        let pairs = labels.iter().filter_map(|label| label.split_once('='));
        let mut all: HashMap<String, String> = pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        all.insert("net.fdn.instance".to_owned(), id.to_string());
        let body = ContainerCreateBody {
            image: Some(format!("fdn.invalid/archive:{}", image.digest.hex())),
            labels: Some(all),
            ..ContainerCreateBody::default()
        };
        let options = CreateContainerOptionsBuilder::default()
            .name(&format!("fdn-{id}"))
            .build();
        let created = self.client().create_container(Some(options), body).await;
        created.expect("the engine makes it");
    }
}

/// The grace for stopping.
pub(crate) const GRACE: Duration = PATIENCE;

mod isolated {
    use super::*;

    contract!(for_all, Engine::with(Network::Isolated));
    contract!(processes, Engine::with(Network::Isolated));
}

/// Each owner has its own bridge, and an engine has addresses for some thirty: what does not depend on the network is not
/// repeated here.
mod bridge {
    use super::*;

    contract!(for_all, Engine::with(Network::Bridge));
}

mod host {
    use super::*;

    contract!(for_all, Engine::with(Network::Host));
    contract!(processes, Engine::with(Network::Host));
}
