use fdn_core::compiled::PackHead;
use futures::TryStreamExt;

use super::*;

mod fake_s3;

use crate::settings::S3Settings;

/// The first incarnation of an artifact.
fn object(bytes: &[u8]) -> Object {
    Object {
        digest: Digest::of(bytes),
        name: String::new(),
    }
}

/// A store in a local folder.
fn folder_store(folder: &Path) -> Artifacts {
    let settings = ArtifactSettings {
        local: folder.join("artifacts"),
        ..ArtifactSettings::default()
    };
    Artifacts::open(&settings).expect("opened")
}

/// A store on an S3-compatible service, simulated by a small server.
fn s3_store(folder: &Path) -> Artifacts {
    let secret = |name: &str| {
        let path = folder.join(name);
        std::fs::write(&path, "secret").expect("written");
        path
    };
    let s3 = S3Settings {
        bucket: "artifacts".to_owned(),
        region: "us-east-1".to_owned(),
        endpoint: Some(format!("http://{}", fake_s3::start())),
        prefix: "/network-1/".to_owned(),
        access_key_file: secret("access"),
        secret_key_file: secret("key"),
        allow_http: true,
    };
    Artifacts::open(&ArtifactSettings {
        local: folder.join("unused"),
        s3: Some(s3),
        ..ArtifactSettings::default()
    })
    .expect("opened")
}

async fn read(
    artifacts: &Artifacts,
    object: &Object,
    span: Option<Span>,
) -> Result<Vec<u8>, ArtifactError> {
    let artifact = artifacts.get(object, span).await?;
    let pieces: Vec<Bytes> = artifact.bytes.try_collect().await?;
    let bytes = pieces.concat();
    assert_eq!(bytes.len() as u64, artifact.end - artifact.start);
    Ok(bytes)
}

fn write(folder: &Path, bytes: &[u8]) -> PathBuf {
    let path = folder.join("upload");
    std::fs::write(&path, bytes).expect("written");
    path
}

async fn what_is_put_comes_back_whole_and_in_spans(folder: &Path, artifacts: &Artifacts) {
    // Two whole parts and some of a third.
    let bytes: Vec<u8> = (0..2 * PART + 100).map(|i| (i % 251) as u8).collect();
    for bytes in [&bytes[..], b"small"] {
        let object = object(bytes);
        let file = write(folder, bytes);
        artifacts.put(&object, &file).await.expect("put");
        artifacts.put(&object, &file).await.expect("put again");
        assert!(artifacts.exists(&object).await.expect("exists"));
        assert_eq!(read(artifacts, &object, None).await.expect("read"), bytes);
        let last = bytes.len() - 2;
        for (span, expected) in [
            (Span::From(2), &bytes[2..]),
            (Span::Between(1, 3), &bytes[1..3]),
            (Span::Between(2, u64::MAX), &bytes[2..]),
            (Span::Last(2), &bytes[last..]),
            (Span::Last(u64::MAX), bytes),
        ] {
            assert_eq!(
                read(artifacts, &object, Some(span)).await.expect("span"),
                expected,
                "{span:?}"
            );
        }
        let beyond = read(artifacts, &object, Some(Span::From(bytes.len() as u64))).await;
        assert!(matches!(beyond, Err(ArtifactError::Range(_))));
    }
}

async fn a_missing_artifact_says_what_to_do(_folder: &Path, artifacts: &Artifacts) {
    let object = object(b"nothing");
    assert!(!artifacts.exists(&object).await.expect("exists"));
    let error = read(artifacts, &object, None).await.expect_err("missing");
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(error.to_string().contains("upload the version again"));
    artifacts
        .delete(&object)
        .await
        .expect("deleting nothing is fine");
}

async fn an_upload_that_cannot_be_read_leaves_nothing(folder: &Path, artifacts: &Artifacts) {
    let object = object(b"x");
    let error = artifacts
        .put(&object, &folder.join("absent"))
        .await
        .expect_err("no file");
    assert!(matches!(error, ArtifactError::Read { .. }));
    assert!(!artifacts.exists(&object).await.expect("exists"));
}

/// Runs the tests on both kinds of store.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod folder {
            $(#[tokio::test]
            async fn $test() {
                let folder = tempfile::tempdir().expect("folder");
                super::$test(folder.path(), &super::folder_store(folder.path())).await;
            })*
        }
        mod s3 {
            $(#[tokio::test]
            async fn $test() {
                let folder = tempfile::tempdir().expect("folder");
                super::$test(folder.path(), &super::s3_store(folder.path())).await;
            })*
        }
    };
}

on_both!(
    what_is_put_comes_back_whole_and_in_spans,
    a_missing_artifact_says_what_to_do,
    an_upload_that_cannot_be_read_leaves_nothing,
    what_is_deleted_is_gone,
    an_object_of_a_job_goes_alone_or_with_all_others,
    packs_are_listed_with_their_marks_and_go_with_them,
);

async fn packs_are_listed_with_their_marks_and_go_with_them(folder: &Path, artifacts: &Artifacts) {
    assert_eq!(artifacts.pack_list().await.expect("listed"), []);
    let file = write(folder, b"functions");
    let head = |engine: &str| PackHead {
        engine: engine.parse().expect("an engine"),
        pack: Digest::of(b"functions"),
        size: 9,
        signature: "by the authority".to_owned(),
    };
    let heads = ["01", "02"].map(head);
    for head in &heads {
        artifacts.pack_put(head, &file).await.expect("put");
    }
    let (first, name) = (&heads[0].engine, heads[0].pack);
    let found = artifacts.pack_get(first, &name).await.expect("there");
    let pieces: Vec<Bytes> = found.bytes.try_collect().await.expect("read");
    let bytes = pieces.concat();
    let (line, pack) = bytes.split_at(bytes.len() - 9);
    assert_eq!(pack, b"functions");
    let read: PackHead = serde_json::from_slice(line).expect("a head");
    assert_eq!(read, heads[0]);

    // A use mark is not a pack.
    artifacts.pack_touch(first, &name).await.expect("marked");
    let listed = artifacts.pack_list().await.expect("listed");
    let shown: Vec<_> = listed.iter().map(|p| (p.engine.as_str(), p.size)).collect();
    assert_eq!(shown, [("01", found.size), ("02", found.size)]);
    assert!(listed.iter().all(|pack| pack.name == name));
    artifacts.pack_delete(first, &name).await.expect("deleted");
    let listed = artifacts.pack_list().await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].engine, heads[1].engine);
    artifacts.pack_delete(first, &name).await.expect("no error");
    let gone = artifacts.pack_get(first, &name).await;
    assert!(matches!(gone, Err(ArtifactError::Missing(missing)) if missing == name));
}

async fn what_is_deleted_is_gone(folder: &Path, artifacts: &Artifacts) {
    let object = object(b"short-lived");
    artifacts
        .put(&object, &write(folder, b"short-lived"))
        .await
        .expect("put");
    artifacts.delete(&object).await.expect("deleted");
    assert!(!artifacts.exists(&object).await.expect("exists"));
}

async fn an_object_of_a_job_goes_alone_or_with_all_others(_folder: &Path, artifacts: &Artifacts) {
    let job = fdn_core::JobId::from_uuid(uuid::Uuid::from_u128(1));
    let bytes = Bytes::from_static(b"some");
    let all = [JobObject::Input, JobObject::Result(1), JobObject::Result(2)];
    for object in all {
        artifacts
            .object_put(job, object, bytes.clone())
            .await
            .expect("put");
    }
    let there = async || {
        let mut there = Vec::new();
        for object in all {
            match artifacts.object_get(job, object).await {
                Ok(found) => there.push((object, found == bytes)),
                Err(error) => assert!(error.is_missing(), "{error}"),
            }
        }
        there
    };
    let result = JobObject::Result(1);
    artifacts.object_delete(job, result).await.expect("deleted");
    artifacts
        .object_delete(job, result)
        .await
        .expect("no error");
    assert_eq!(
        there().await,
        [(JobObject::Input, true), (JobObject::Result(2), true)]
    );
    artifacts.objects_delete(job).await.expect("deleted");
    assert_eq!(there().await, []);
}
