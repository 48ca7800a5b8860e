//! An uploaded container image: an archive as written by `docker save`, or an OCI image layout, plain or gzip; or the name of one in a registry
//! ([`ImageReference`]), which the nodes pull.
//!
//! Archives are validated in one pass without unpacking anything ([`fdn_runtime::image`], which nodes also use): the format, the configuration,
//! whether the contents match their digests, and whether a node can have the image's processor. What only an engine finds out is reported by the
//! nodes as the phase of the app.

use std::path::Path;
use std::time::Instant;

use fdn_core::api::ValidationStep;
use fdn_core::{ByteSize, Coded, ErrorCode, ImageReference, Millis};
use fdn_runtime::image::{ARCHITECTURES, ArchiveError, Contents};

/// Why an image is rejected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The upload is empty.
    #[error("the uploaded image is empty")]
    Empty,
    /// It is not a container image.
    #[error(
        "the upload is not a container image: {0}; upload what `docker save IMAGE` writes, an OCI image layout as a tar file, or the name REGISTRY/PATH@sha256:…"
    )]
    Invalid(String),
    /// The configuration cannot be used.
    #[error(
        "the image's configuration cannot be used: {0}; build it anew, save it and upload it again"
    )]
    Config(String),
    /// The contents do not match their digests.
    #[error("the image is damaged: {0}; save it again and upload that")]
    Damaged(String),
    /// No node can run it.
    #[error("no node can run the image: {0}; build it for one of them (docker build --platform …)")]
    Platform(String),
    /// The temporary file cannot be read.
    #[error("the uploaded image cannot be read")]
    Read(#[source] std::io::Error),
}

impl Coded for ImageError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Empty => ErrorCode::UploadEmpty,
            Self::Invalid(_) | Self::Config(_) | Self::Damaged(_) | Self::Platform(_) => {
                ErrorCode::ImageInvalid
            }
            Self::Read(_) => ErrorCode::Internal,
        }
    }
}

impl ImageError {
    /// The step of [`validate`] that rejects the image.
    pub(super) const fn step(&self) -> Option<&'static str> {
        match self {
            Self::Empty | Self::Invalid(_) => Some("format"),
            Self::Config(_) => Some("config"),
            Self::Damaged(_) => Some("digest"),
            Self::Platform(_) => Some("platform"),
            Self::Read(_) => None,
        }
    }
}

/// Converts an archive's error into one of a step.
fn at(step: fn(String) -> ImageError) -> impl Fn(ArchiveError) -> ImageError {
    move |error| match error {
        ArchiveError::Read(error) => ImageError::Read(error),
        ArchiveError::Platform(why) => ImageError::Platform(why),
        other => step(other.to_string()),
    }
}

fn of(what: &str, count: usize) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Validates an image, which may be at most `limit` bytes when decompressed. Blocking.
///
/// # Errors
/// When it is not an archive of an image that nodes can run.
pub fn validate(path: &Path, limit: ByteSize) -> Result<Vec<ValidationStep>, ImageError> {
    let mut begin = Instant::now();
    let size = std::fs::metadata(path).map_err(ImageError::Read)?.len();
    if size == 0 {
        return Err(ImageError::Empty);
    }
    let mut steps = Vec::new();
    let mut step = |name: &str, result: String| {
        let took = Millis::from(begin.elapsed());
        begin = Instant::now();
        steps.push(ValidationStep {
            step: name.to_owned(),
            result,
            took,
        });
    };
    if let Some(reference) = reference(path, size)? {
        step(
            "format",
            format!("pulled by the nodes from {}", reference.registry()),
        );
        // The controller does not ask registries: it may not reach them, and does not have the nodes' credentials.
        for left in ["config", "digest", "platform"] {
            step(
                left,
                "left to the nodes, which pull it by digest".to_owned(),
            );
        }
        return Ok(steps);
    }
    let contents = Contents::digest(path, limit.as_bytes()).map_err(|error| match error {
        // Invalid compression, or too much decompressed data, appears as a read error within the archive.
        ArchiveError::Read(error) => ImageError::Invalid(format!("it is not a tar file: {error}")),
        other => ImageError::Invalid(other.to_string()),
    })?;
    let format = contents.format().map_err(at(ImageError::Invalid))?;
    let image = contents.image(&ARCHITECTURES);
    let image = image.map_err(at(ImageError::Invalid))?;
    contents
        .check_measured(&image)
        .map_err(at(ImageError::Invalid))?;
    step("format", format.as_str().to_owned());
    let config = contents.config(&image).map_err(at(ImageError::Config))?;
    config.check(&image).map_err(at(ImageError::Config))?;
    step("config", of("layer", image.layers.len()));
    let compared = contents.compare(&image, &config);
    let compared = compared.map_err(at(ImageError::Damaged))?;
    // A node of another architecture takes another image of the archive.
    for processor in ARCHITECTURES {
        let other = contents.image(&[processor]).ok();
        let Some(other) = other.filter(|other| *other != image) else {
            continue;
        };
        contents
            .check_measured(&other)
            .map_err(at(ImageError::Invalid))?;
        let config = contents.config(&other).map_err(at(ImageError::Config))?;
        config.check(&other).map_err(at(ImageError::Config))?;
        contents
            .compare(&other, &config)
            .map_err(at(ImageError::Damaged))?;
    }
    step("digest", format!("{} as said", of("file", compared)));
    let platform = config.platform();
    if !config.runs_on(&ARCHITECTURES) {
        let nodes = ARCHITECTURES.join(" or linux/");
        let why = format!("it is for {platform}, nodes are linux/{nodes}");
        return Err(ImageError::Platform(why));
    }
    step("platform", platform);
    Ok(steps)
}

/// The image reference that an upload consists of, if it is one. Blocking.
///
/// # Errors
/// When it is a reference that cannot be used, or the file cannot be read.
pub fn reference_in(path: &Path) -> Result<Option<ImageReference>, ImageError> {
    let size = std::fs::metadata(path).map_err(ImageError::Read)?.len();
    reference(path, size)
}

/// The image reference, if the upload is short text. An archive is never that short: it has at least 512 bytes of header.
fn reference(path: &Path, size: u64) -> Result<Option<ImageReference>, ImageError> {
    if size > ImageReference::MAX as u64 {
        return Ok(None);
    }
    let text = std::fs::read(path).map_err(ImageError::Read)?;
    let text = std::str::from_utf8(&text).ok().map(str::trim);
    let Some(text) = text.filter(|text| text.contains('/') && !text.contains('\0')) else {
        return Ok(None);
    };
    let reference = text.parse::<ImageReference>();
    reference
        .map(Some)
        .map_err(|error| ImageError::Invalid(error.to_string()))
}

#[cfg(test)]
mod tests;
