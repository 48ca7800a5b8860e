//! The artifact that `fdn deploy` uploads: a file, or the name of an image in a registry.

use std::path::{Path, PathBuf};

use fdn_core::ImageReference;
use futures::StreamExt as _;
use indicatif::ProgressBar;
use reqwest::Body;
use reqwest::multipart::Part;
use tokio_util::io::ReaderStream;

use crate::error::CliError;
use crate::{input, progress};

/// The size of the chunks in which a file is read, in bytes.
const CHUNK: usize = 64 << 10;

/// An artifact to be uploaded.
#[derive(Debug)]
pub enum Artifact {
    /// A file: a component, or the archive of an image.
    File {
        /// The open file.
        file: std::fs::File,
        /// Its size in bytes.
        bytes: u64,
        /// Its path.
        path: PathBuf,
    },
    /// An image that the nodes pull from a registry.
    Image(ImageReference),
}

impl Artifact {
    /// The artifact that an argument names: an existing file, or an image if the text looks like the name of one.
    ///
    /// # Errors
    /// When the file cannot be used, or the image has no digest.
    pub fn of(argument: &Path) -> Result<Self, CliError> {
        let text = argument.to_str().filter(|_| !argument.exists());
        if let Some(text) = text
            && let Some(image) = image(text)
        {
            let image = image.map_err(|error| CliError::Usage(error.to_string()))?;
            return Ok(Self::Image(image));
        }
        let (file, bytes) = input::upload(argument)?;
        let path = argument.to_owned();
        Ok(Self::File { file, bytes, path })
    }

    /// The number of bytes that are sent.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        match self {
            Self::File { bytes, .. } => *bytes,
            Self::Image(reference) => reference.to_string().len() as u64,
        }
    }

    /// The file beside which the manifest is searched. It is empty for an image, so that the current folder is searched.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::File { path, .. } => path,
            Self::Image(_) => Path::new(""),
        }
    }

    /// The multipart part of the upload. `bar` shows the progress.
    #[must_use]
    pub fn part(self, bar: &ProgressBar) -> Part {
        let (file, bytes, path) = match self {
            Self::File { file, bytes, path } => (file, bytes, path),
            Self::Image(reference) => {
                progress::validating(bar);
                return Part::text(reference.to_string()).file_name("image");
            }
        };
        let bar = bar.clone();
        // Send exactly the announced length, even if the file grows in the meantime; if it shrinks, the controller notices.
        let reader = tokio::io::AsyncReadExt::take(tokio::fs::File::from_std(file), bytes);
        let stream = ReaderStream::with_capacity(reader, CHUNK).inspect(move |chunk| {
            if let Ok(chunk) = chunk {
                bar.inc(chunk.len() as u64);
                if bar.position() >= bar.length().unwrap_or(bytes) {
                    progress::validating(&bar);
                }
            }
        });
        let name = path.file_name().map_or_else(
            || "component.wasm".into(),
            |name| name.to_string_lossy().into_owned(),
        );
        Part::stream_with_length(Body::wrap_stream(stream), bytes).file_name(name)
    }
}

/// The image that a text names, if it looks like one: with a digest, or with a path and a tag.
fn image(text: &str) -> Option<Result<ImageReference, fdn_core::ParseError>> {
    let last = text.rsplit('/').next().unwrap_or_default();
    let looks_like_one = text.contains("@sha256:")
        || text.contains('/') && !text.starts_with(['/', '.']) && last.contains(':');
    looks_like_one.then(|| text.parse())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_told_from_files() {
        let digest = fdn_core::Digest::of(b"manifest");
        let name = format!("ghcr.io/acme/thumbs@{digest}");
        let artifact = Artifact::of(Path::new(&name)).expect("an image");
        assert_eq!(artifact.bytes(), name.len() as u64);
        assert!(matches!(artifact, Artifact::Image(_)));
        for (argument, says) in [
            ("ghcr.io/acme/thumbs:latest", "by its digest"),
            ("thumbs@sha256:00", "64 hexadecimal"),
            ("ghcr.io/acme/thumbs", "there is no such file"),
            ("./a:b", "there is no such file"),
            ("missing.wasm", "there is no such file"),
        ] {
            let error = Artifact::of(Path::new(argument)).expect_err(argument);
            assert!(error.to_string().contains(says), "{argument}: {error}");
        }
        let folder = tempfile::tempdir().expect("folder");
        let odd = folder.path().join("x@sha256:y");
        std::fs::write(&odd, "bytes").expect("written");
        let artifact = Artifact::of(&odd).expect("a file");
        assert!(matches!(artifact, Artifact::File { bytes: 5, .. }));
    }
}
