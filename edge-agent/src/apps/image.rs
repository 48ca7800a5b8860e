//! The image of an app's artifact: an archive, or a reference to an image in a registry.

use std::path::{Path, PathBuf};

use fdn_core::{Digest, ImageReference};
use fdn_instances::{Credentials, Image, ImageSource};
use fdn_service::secret;
use tokio::fs::File;
use tokio::io::AsyncReadExt;

use crate::error::PrepareError;
use crate::settings::RegistrySettings;

/// Reads which image the artifact at `path` stands for.
///
/// # Errors
/// When the artifact or the password file of its registry cannot be read.
pub(super) async fn image(
    digest: Digest,
    path: PathBuf,
    registries: &[RegistrySettings],
) -> Result<Image, PrepareError> {
    match reference(&path).await? {
        None => Ok(Image {
            digest,
            source: ImageSource::Archive { path },
        }),
        Some(reference) => Ok(Image {
            digest: reference.digest(),
            source: ImageSource::Registry {
                repository: reference.repository().to_owned(),
                credentials: credentials(&reference, registries)?,
            },
        }),
    }
}

/// The image reference that the file contains; `None` for an archive, which is longer than any reference.
async fn reference(path: &Path) -> Result<Option<ImageReference>, PrepareError> {
    let disk = |source| PrepareError::Disk {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).await.map_err(disk)?;
    let mut text = Vec::new();
    let limit = ImageReference::MAX as u64 + 1;
    file.take(limit)
        .read_to_end(&mut text)
        .await
        .map_err(disk)?;
    let text = std::str::from_utf8(&text).unwrap_or_default();
    Ok(text.trim().parse().ok())
}

fn credentials(
    reference: &ImageReference,
    registries: &[RegistrySettings],
) -> Result<Option<Credentials>, PrepareError> {
    let known = registries.iter().find(|r| r.host == reference.registry());
    let Some(known) = known else {
        return Ok(None);
    };
    let password = secret::read(&known.password_file)
        .map_err(|error| PrepareError::Registry(known.host.clone(), error.to_string()))?;
    Ok(Some(Credentials {
        username: known.username.clone(),
        password: password.expose().to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_short_text_is_the_name_of_an_image_and_all_else_an_archive() {
        let folder = tempfile::tempdir().expect("folder");
        let password_file = folder.path().join("password");
        std::fs::write(&password_file, "open sesame\n").expect("written");
        let registries = [RegistrySettings {
            host: "127.0.0.1:5000".to_owned(),
            username: "puller".to_owned(),
            password_file,
        }];
        let path = folder.path().join("artifact");
        let of = async |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            let image = image(Digest::of(bytes), path.clone(), &registries).await;
            image.expect("an image")
        };
        let wanted = Digest::of(b"manifest");
        let named = of(format!("127.0.0.1:5000/a/b:v1@{wanted}\n").as_bytes()).await;
        assert_eq!(named.digest, wanted);
        let ImageSource::Registry {
            repository,
            credentials,
        } = named.source
        else {
            panic!("{named:?}");
        };
        assert_eq!(repository, "127.0.0.1:5000/a/b");
        let credentials = credentials.expect("the registry wants them");
        assert_eq!(
            (credentials.username.as_str(), credentials.password.as_str()),
            ("puller", "open sesame")
        );
        let public = of(format!("ghcr.io/a/b@{wanted}").as_bytes()).await;
        assert!(matches!(
            public.source,
            ImageSource::Registry {
                credentials: None,
                ..
            }
        ));
        for bytes in [vec![0; 2048], b"short and no name".to_vec()] {
            let archive = of(&bytes).await;
            assert_eq!(archive.digest, Digest::of(&bytes));
            assert!(matches!(archive.source, ImageSource::Archive { .. }));
        }
    }
}
