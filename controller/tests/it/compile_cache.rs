//! The compile cache: compiled functions are not compiled again, by the same controller or others, and nothing without a valid signature is used.

use std::path::Path;

use fdn_core::ByteSize;
use fdn_core::compiled::PackHead;
use fdn_core::digest::Digest;
use fdn_service::pki::PublicKey;
use fdn_testkit::components;

use crate::rig::{Backend, Rig, on_both};

on_both!(
    the_next_version_is_compiled_in_part_and_after_a_restart_too,
    what_nobody_vouches_for_is_removed,
    the_oldest_make_room_and_without_room_nothing_is_kept,
);

/// The number of functions that fill a pack.
const FUNCTIONS: u32 = 1000;

/// The hits and misses so far.
fn functions(rig: &Rig) -> (u64, u64) {
    let functions = &rig.controller.state().metrics.packs.functions;
    let count = |result: &str| functions.with_label_values(&[result]).get();
    (count("hit"), count("miss"))
}

/// Deploys a component; texts of the same length differ in their data alone. Returns the hits and misses.
async fn deploy(rig: &Rig, app: &str, text: &str) -> (u64, u64) {
    let before = functions(rig);
    let component = components::with_engine(FUNCTIONS, text);
    let deployed = rig.deploy(app, component).await;
    assert!(!deployed.unchanged);
    let after = functions(rig);
    (after.0 - before.0, after.1 - before.1)
}

/// Nearly all were hits. The compiler looks up about five in a hundred of the others under another key, depending on what its thread compiled before
/// (ADR 0027).
fn assert_found((hits, misses): (u64, u64)) {
    let engine = u64::from(FUNCTIONS);
    assert!(hits >= engine && misses < engine / 5, "{hits} and {misses}");
}

fn assert_compiled((_, misses): (u64, u64)) {
    assert!(misses >= u64::from(FUNCTIONS), "{misses}");
}

/// Deletes this machine's copy of the compile cache, as if on another machine.
fn forget(rig: &Rig) {
    let uploads = rig.settings.uploads.folder.as_ref().expect("set");
    for entry in std::fs::read_dir(uploads).expect("a folder").flatten() {
        if entry
            .file_name()
            .to_string_lossy()
            .starts_with("fdn-compile-cache-")
        {
            std::fs::remove_dir_all(entry.path()).expect("removed");
        }
    }
}

/// The header of a pack, and the pack.
fn read(path: &Path) -> (PackHead, Vec<u8>) {
    let mut bytes = std::fs::read(path).expect("a pack");
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a head");
    let pack = bytes.split_off(end + 1);
    let head = serde_json::from_slice(&bytes).expect("a head");
    (head, pack)
}

/// Checks that the header matches the pack, and is signed by the network's authority.
async fn assert_vouched(rig: &Rig, pack: &Path) {
    let (head, pack) = read(pack);
    assert_eq!(
        (head.pack, head.size),
        (Digest::of(&pack), pack.len() as u64)
    );
    let fleet = rig.apps_snapshot().await.fleet.expect("told");
    let key =
        PublicKey::of_authority(&fleet.authorities[0], fdn_service::now()).expect("an authority");
    assert!(key.verifies(&head.text(), &head.signature));
}

async fn the_next_version_is_compiled_in_part_and_after_a_restart_too(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-west").await;
    assert_compiled(deploy(&rig, "one", "v1").await);
    assert_found(deploy(&rig, "one", "v2").await);
    assert_found(deploy(&rig, "two", "v3").await);
    // The new functions in those are too few to be stored.
    let packs = rig.packs();
    assert_eq!(packs.len(), 1, "{packs:?}");
    assert_vouched(&rig, &packs[0]).await;
    let bytes = rig.controller.state().metrics.packs.bytes.get();
    let size = std::fs::metadata(&packs[0]).expect("a pack").len();
    assert_eq!(u64::try_from(bytes), Ok(size));

    let rig = rig.restart().await;
    assert_found(deploy(&rig, "one", "v4").await);
    // Another controller, with nothing but the artifact store.
    forget(&rig);
    let rig = rig.restart().await;
    assert_found(deploy(&rig, "one", "v5").await);
    assert_eq!(rig.packs(), packs);
    assert_eq!(rig.controller.state().metrics.packs.failures.get(), 0);
}

async fn what_nobody_vouches_for_is_removed(backend: Backend) {
    let mut rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-west").await;
    assert_compiled(deploy(&rig, "one", "v1").await);
    let path = rig.packs().pop().expect("a pack");
    let (head, pack) = read(&path);
    let foreign = PackHead {
        signature: "bm9ib2R5".to_owned(),
        ..head.clone()
    };
    let mut other = pack.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    let with = |head: &PackHead, pack: &[u8]| {
        let mut bytes = serde_json::to_vec(head).expect("JSON");
        bytes.push(b'\n');
        bytes.extend(pack);
        bytes
    };
    // What a writer to the artifact store could put there: a pack that is unsigned, signed for other bytes, for fewer bytes or under another name,
    // and something that is no pack.
    let renamed = path.with_file_name(Digest::of(b"another").hex());
    let longer: Vec<u8> = pack.iter().copied().chain([0; 9]).collect();
    for (round, (at, bytes)) in [
        (&path, with(&foreign, &pack)),
        (&path, with(&head, &other)),
        (&path, with(&head, &longer)),
        (&renamed, with(&head, &pack)),
        (&path, vec![b'x'; 100_000]),
    ]
    .into_iter()
    .enumerate()
    {
        for pack in rig.packs() {
            std::fs::remove_file(pack).expect("removed");
        }
        forget(&rig);
        std::fs::write(at, bytes).expect("written");
        rig = rig.restart().await;
        assert_compiled(deploy(&rig, "one", &format!("w{round}")).await);
        let metrics = &rig.controller.state().metrics.packs;
        assert_eq!(metrics.refused.get(), 1, "round {round}");
        // The pack is written anew, and signed.
        let packs = rig.packs();
        assert_eq!(packs.len(), 1, "round {round}: {packs:?}");
        assert_vouched(&rig, &packs[0]).await;
    }
    assert_found(deploy(&rig, "one", "v9").await);
}

async fn the_oldest_make_room_and_without_room_nothing_is_kept(backend: Backend) {
    let rig = Rig::start_with(backend, |_| {}).await;
    rig.cluster("eu-west").await;
    assert_compiled(deploy(&rig, "one", "v1").await);
    let first = rig.packs();
    let size = std::fs::metadata(&first[0]).expect("a pack").len();
    // A pack of another engine, from a controller with another processor, that was used longer ago.
    let other = first[0]
        .parent()
        .and_then(Path::parent)
        .expect("a folder")
        .join("00ff")
        .join(Digest::of(b"old").hex());
    std::fs::create_dir_all(other.parent().expect("a folder")).expect("a folder");
    std::fs::write(&other, vec![0; 1 << 20]).expect("written");
    let file = std::fs::File::options().write(true).open(&other);
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
    file.and_then(|file| file.set_modified(long_ago))
        .expect("changed");
    let rig = rig
        .restart_with(|settings| settings.artifacts.compile_cache = ByteSize::from_bytes(size))
        .await;
    assert_found(deploy(&rig, "one", "v2").await);
    assert_eq!(rig.packs(), first);
    assert_eq!(rig.controller.state().metrics.packs.evictions.get(), 1);

    // With the cache turned off, nothing is found and nothing is stored.
    let rig = rig
        .restart_with(|settings| settings.artifacts.compile_cache = ByteSize::from_bytes(0))
        .await;
    assert_eq!(deploy(&rig, "one", "v3").await, (0, 0));
}
