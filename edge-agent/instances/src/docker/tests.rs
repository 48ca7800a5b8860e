//! The requests to the engine.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use fdn_core::{Digest, MebiBytes, MilliCpu, Resources};

use super::*;
use crate::spec::{Description, DeviceGrant, ImageSource};
use image::LocalImage;

fn spec() -> StartSpec {
    let image = Image {
        digest: Digest::of(b"image"),
        source: ImageSource::Registry {
            repository: "registry.example.com/thumbs".to_owned(),
            credentials: None,
        },
    };
    let name = "thumbs".parse().unwrap();
    let mut spec = StartSpec::new(
        InstanceId::from_uuid(uuid::Uuid::from_u128(7)),
        name,
        "thumbs".parse().unwrap(),
        image,
        Resources::new(MilliCpu(250), MebiBytes(128)),
    );
    spec.env.insert("PORT".parse().unwrap(), "1".to_owned());
    spec.secrets
        .0
        .insert("TOKEN".parse().unwrap(), "hush".to_owned());
    spec
}

fn body(spec: &StartSpec) -> bollard::models::ContainerCreateBody {
    let image = LocalImage {
        reference: "image".to_owned(),
        volumes: vec!["/var/lib/data".to_owned()],
        ..LocalImage::default()
    };
    let owner = Owner {
        cluster: "eu-west-1".parse().unwrap(),
        node: "node-1".parse().unwrap(),
    };
    create::body(
        spec,
        &owner,
        &image,
        "none",
        8080,
        &DockerOptions::default(),
    )
}

#[test]
fn without_a_network_the_engine_sets_none_up_and_localhost_is_known() {
    let image = LocalImage {
        reference: "image".to_owned(),
        ..LocalImage::default()
    };
    let owner = Owner {
        cluster: "eu-west-1".parse().unwrap(),
        node: "node-1".parse().unwrap(),
    };
    let folder = tempfile::tempdir().unwrap();
    create::write_hosts(folder.path()).unwrap();
    let options = DockerOptions {
        folder: Some(folder.path().to_owned()),
        ..DockerOptions::default()
    };
    let body = |network| create::body(&spec(), &owner, &image, network, 8080, &options);
    let alone = body("none");
    assert_eq!(alone.network_disabled, Some(true));
    let mounts = alone.host_config.unwrap().mounts.unwrap();
    assert_eq!(mounts.len(), 1);
    assert_eq!(mounts[0].target.as_deref(), Some("/etc/hosts"));
    assert_eq!(mounts[0].read_only, Some(true));
    let text = std::fs::read_to_string(mounts[0].source.as_ref().unwrap()).unwrap();
    assert!(text.lines().any(|line| line == "127.0.0.1 localhost"));
    let bridged = body("fdn-node-1");
    assert_eq!(bridged.network_disabled, None, "the engine sets it up");
    assert_eq!(bridged.host_config.unwrap().mounts, None);
}

#[test]
fn the_file_that_containers_read_is_not_replaced_under_them() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("hosts");
    let made = || std::fs::metadata(&place).unwrap().ino();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let folder = folder.path().to_owned();
            std::thread::spawn(move || {
                create::write_hosts(&folder).unwrap();
                std::fs::metadata(folder.join("hosts")).unwrap().ino()
            })
        })
        .collect();
    for writer in writers {
        assert_eq!(writer.join().unwrap(), made(), "all see the first one's");
    }
    std::fs::write(&place, "127.0.0.1 elsewhere\n").unwrap();
    create::write_hosts(folder.path()).unwrap();
    let text = std::fs::read_to_string(&place).unwrap();
    assert!(text.contains("localhost"), "what is wrong is put right");
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "nothing else is left");
}

#[test]
fn every_limit_and_every_lock_is_asked_for() {
    let host = body(&spec()).host_config.unwrap();
    assert_eq!(host.memory, Some(128 << 20));
    assert_eq!(host.memory_swap, host.memory, "no swap");
    assert_eq!(host.nano_cpus, Some(1_000_000_000), "while it is started");
    assert_eq!(
        create::cpu_once_started(&spec().description),
        Some(250_000_000)
    );
    assert_eq!(host.pids_limit, Some(64));
    assert_eq!(host.readonly_rootfs, Some(true));
    assert_eq!(host.cap_drop.unwrap(), ["ALL"]);
    assert_eq!(host.security_opt.unwrap(), ["no-new-privileges:true"]);
    assert_eq!(host.privileged, Some(false));
    assert_eq!(host.network_mode.unwrap(), "none");
    let tmpfs = host.tmpfs.unwrap();
    assert!(tmpfs["/tmp"].contains("size=67108864"));
    assert!(
        tmpfs.contains_key("/var/lib/data"),
        "a declared volume is bounded as well"
    );
    assert!(host.device_requests.is_none() && host.mounts.is_none());
}

#[test]
fn an_images_own_health_check_is_switched_off() {
    let check = body(&spec()).healthcheck.and_then(|check| check.test);
    assert_eq!(check, Some(vec!["NONE".to_owned()]));
}

#[test]
fn an_image_cannot_say_whose_its_containers_are() {
    let owner = Owner {
        cluster: "eu-west-1".parse().unwrap(),
        node: "node-1".parse().unwrap(),
    };
    let labels_of = |scope: Option<&str>, images: &[(&str, &str)]| {
        let image = LocalImage {
            reference: "image".to_owned(),
            has_scope: images.iter().any(|(name, _)| *name == create::SCOPE),
            ..LocalImage::default()
        };
        let options = DockerOptions {
            scope: scope.map(str::to_owned),
            ..DockerOptions::default()
        };
        let own = create::body(&spec(), &owner, &image, "none", 8080, &options).labels;
        // As the engine merges them.
        let images = images.iter().map(|(name, value)| (*name, *value));
        let mut all: HashMap<_, _> = images
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        all.extend(own.unwrap());
        all
    };
    let strange = [
        create::CLUSTER,
        create::NODE,
        create::SCOPE,
        create::INSTANCE,
        create::DESCRIPTION,
        create::PORT,
    ]
    .map(|name| (name, "x"));
    for scope in [None, Some("mine")] {
        let plain = labels_of(scope, &[]);
        let merged = labels_of(scope, &strange);
        for labels in [&plain, &merged] {
            assert!(create::is_of(Some(labels), &owner, scope), "{labels:?}");
            assert!(!create::is_of(Some(labels), &owner, Some("x")));
        }
        for (name, _) in strange.iter().filter(|(name, _)| *name != create::SCOPE) {
            assert_eq!(merged[*name], plain[*name], "{name}");
        }
    }
    let plain = labels_of(None, &[]);
    assert!(
        !plain.contains_key(create::SCOPE),
        "earlier releases take an empty one for a scope"
    );
}

#[test]
fn secrets_reach_the_environment_and_nothing_else() {
    let mut body = body(&spec());
    let env = body.env.take().unwrap();
    assert!(env.contains(&"TOKEN=hush".to_owned()));
    assert!(
        env.contains(&"PORT=8080".to_owned()),
        "the function cannot move the port: {env:?}"
    );
    let rest = serde_json::to_string(&body).unwrap();
    assert!(!rest.contains("hush"), "{rest}");
    assert!(!format!("{:?}", spec()).contains("hush"));
}

#[test]
fn a_description_survives_its_label() {
    let spec = spec();
    let labels = body(&spec).labels.unwrap();
    let read: Description = serde_json::from_str(&labels[create::DESCRIPTION]).unwrap();
    assert_eq!(read, spec.description);
    assert_eq!(labels[create::CLUSTER], "eu-west-1");
}

#[test]
fn physical_devices_are_requested_and_simulated_ones_are_not() {
    let grant = |device: &str, physical| DeviceGrant {
        device: device.to_owned(),
        memory: MebiBytes(1024),
        env: [("CUDA_VISIBLE_DEVICES".to_owned(), device.to_owned())].into(),
        folders: BTreeSet::from([PathBuf::from("/tmp/nvidia-mps")]),
        physical,
    };
    let mut spec = spec();
    spec.description.devices = vec![grant("GPU-1", true), grant("sim-2", false)];
    let body = body(&spec);
    let host = body.host_config.unwrap();
    let requests = host.device_requests.unwrap();
    assert_eq!(requests[0].device_ids.as_deref().unwrap(), ["GPU-1"]);
    assert_eq!(host.mounts.unwrap().len(), 1, "one folder, once");
    let env = body.env.unwrap();
    assert!(env.iter().any(|v| v.starts_with("CUDA_VISIBLE_DEVICES=")));
}
