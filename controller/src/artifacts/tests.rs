use futures::TryStreamExt;

use super::*;

fn store() -> (tempfile::TempDir, Artifacts) {
    let folder = tempfile::tempdir().expect("folder");
    let settings = ArtifactSettings {
        local: folder.path().join("artifacts"),
        s3: None,
    };
    let artifacts = Artifacts::open(&settings).expect("opened");
    (folder, artifacts)
}

async fn read(
    artifacts: &Artifacts,
    digest: &Digest,
    span: Option<Span>,
) -> Result<Vec<u8>, ArtifactError> {
    let artifact = artifacts.get(digest, span).await?;
    let pieces: Vec<Bytes> = artifact.octets.try_collect().await?;
    let octets = pieces.concat();
    assert_eq!(octets.len() as u64, artifact.end - artifact.start);
    Ok(octets)
}

fn write(folder: &tempfile::TempDir, octets: &[u8]) -> PathBuf {
    let path = folder.path().join("upload");
    std::fs::write(&path, octets).expect("written");
    path
}

#[tokio::test]
async fn what_is_put_comes_back_whole_and_in_spans() {
    let (folder, artifacts) = store();
    // Two whole parts and a piece of a third.
    let octets: Vec<u8> = (0..2 * PART + 100).map(|i| (i % 251) as u8).collect();
    for octets in [&octets[..], b"small"] {
        let digest = Digest::of(octets);
        let file = write(&folder, octets);
        artifacts.put(&digest, &file).await.expect("put");
        artifacts.put(&digest, &file).await.expect("put again");
        assert!(artifacts.exists(&digest).await.expect("exists"));
        assert_eq!(read(&artifacts, &digest, None).await.expect("read"), octets);
        let last = octets.len() - 2;
        for (span, expected) in [
            (Span::From(2), &octets[2..]),
            (Span::Between(1, 3), &octets[1..3]),
            (Span::Between(2, u64::MAX), &octets[2..]),
            (Span::Last(2), &octets[last..]),
            (Span::Last(u64::MAX), octets),
        ] {
            assert_eq!(
                read(&artifacts, &digest, Some(span)).await.expect("span"),
                expected,
                "{span:?}"
            );
        }
        let beyond = read(&artifacts, &digest, Some(Span::From(octets.len() as u64))).await;
        assert!(matches!(beyond, Err(ArtifactError::Range(_))));
    }
}

#[tokio::test]
async fn a_missing_artifact_says_what_to_do() {
    let (_folder, artifacts) = store();
    let digest = Digest::of(b"nothing");
    assert!(!artifacts.exists(&digest).await.expect("exists"));
    let error = read(&artifacts, &digest, None).await.expect_err("missing");
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(error.to_string().contains("upload the version again"));
    artifacts
        .delete(&digest)
        .await
        .expect("deleting nothing is fine");
}

#[tokio::test]
async fn an_upload_that_cannot_be_read_leaves_nothing() {
    let (folder, artifacts) = store();
    let digest = Digest::of(b"x");
    let error = artifacts
        .put(&digest, &folder.path().join("absent"))
        .await
        .expect_err("no file");
    assert!(matches!(error, ArtifactError::Read { .. }));
    assert!(!artifacts.exists(&digest).await.expect("exists"));
}
