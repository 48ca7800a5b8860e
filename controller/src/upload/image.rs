//! An uploaded container image: an archive as `docker save` writes it, or an OCI image layout, plain or gzip.
//!
//! Judged by what it holds, in one pass and without unpacking anything. Whether an engine can run it (its processor, its layers) is found out
//! by the nodes, which tell it as the phase of the app.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::time::Instant;

use fdn_core::api::ValidationStep;
use fdn_core::{Coded, ErrorCode, Millis};
use flate2::read::GzDecoder;
use tar::Archive;

/// The most entries looked at.
const ENTRIES_MAX: usize = 100_000;
/// The most that a compressed archive may unfold to, for each octet of it.
const UNFOLD_MAX: u64 = 200;

/// An image that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// It is empty.
    #[error("the uploaded image is empty")]
    Empty,
    /// It is not what it should be.
    #[error(
        "the upload is not a container image: {0}; upload what `docker save IMAGE` writes, or an OCI image layout as a tar file"
    )]
    Invalid(String),
    /// The temporary file fails.
    #[error("the uploaded image cannot be read")]
    Read(#[source] std::io::Error),
}

impl Coded for ImageError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Empty => ErrorCode::UploadEmpty,
            Self::Invalid(_) => ErrorCode::ImageInvalid,
            Self::Read(_) => ErrorCode::Internal,
        }
    }
}

/// Judges an image. Blocking.
///
/// # Errors
/// When it is not an archive of an image.
pub fn judge(path: &Path) -> Result<Vec<ValidationStep>, ImageError> {
    let begin = Instant::now();
    let size = std::fs::metadata(path).map_err(ImageError::Read)?.len();
    if size == 0 {
        return Err(ImageError::Empty);
    }
    let format = format_of(path, size)?;
    Ok(vec![ValidationStep {
        step: "format".to_owned(),
        result: format.to_owned(),
        took: Millis::from(begin.elapsed()),
    }])
}

fn format_of(path: &Path, size: u64) -> Result<&'static str, ImageError> {
    let mut magic = [0; 2];
    let mut file = File::open(path).map_err(ImageError::Read)?;
    let read = file.read(&mut magic).map_err(ImageError::Read)?;
    let whole = BufReader::new(File::open(path).map_err(ImageError::Read)?);
    let reader: Box<dyn Read> = if read == 2 && magic == [0x1f, 0x8b] {
        Box::new(GzDecoder::new(whole).take(size.saturating_mul(UNFOLD_MAX)))
    } else {
        Box::new(whole)
    };
    let invalid =
        |error: std::io::Error| ImageError::Invalid(format!("it is not a tar file: {error}"));
    let mut archive = Archive::new(reader);
    let (mut layout, mut index) = (false, false);
    for (count, entry) in archive.entries().map_err(invalid)?.enumerate() {
        let entry = entry.map_err(invalid)?;
        if count >= ENTRIES_MAX {
            let reason = format!("it has more than {ENTRIES_MAX} entries");
            return Err(ImageError::Invalid(reason));
        }
        let name = entry.path_bytes();
        match name.strip_prefix(b"./").unwrap_or(&name) {
            b"manifest.json" => return Ok("docker archive"),
            b"oci-layout" => layout = true,
            b"index.json" => index = true,
            _ => {}
        }
        if layout && index {
            return Ok("OCI image layout");
        }
    }
    let reason = "it holds neither manifest.json nor oci-layout and index.json".to_owned();
    Err(ImageError::Invalid(reason))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};

    use super::*;

    fn archive(names: &[&str]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for name in names {
            let mut header = Header::new_gnu();
            header.set_size(2);
            header.set_mode(0o644);
            header.set_cksum();
            builder
                .append_data(&mut header, name, &b"{}"[..])
                .expect("memory");
        }
        builder.into_inner().expect("memory")
    }

    fn judged(octets: &[u8]) -> Result<String, ImageError> {
        let mut file = tempfile::NamedTempFile::new().expect("file");
        file.write_all(octets).expect("written");
        judge(file.path()).map(|steps| steps[0].result.clone())
    }

    #[test]
    fn both_formats_are_known_plain_and_compressed() {
        let docker = archive(&["layer.tar", "manifest.json"]);
        let oci = archive(&["./oci-layout", "blobs/x", "./index.json"]);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&oci).expect("memory");
        let gzip = gzip.finish().expect("memory");
        for (octets, expected) in [
            (docker, "docker archive"),
            (oci, "OCI image layout"),
            (gzip, "OCI image layout"),
        ] {
            assert_eq!(judged(&octets).expect("an image"), expected);
        }
    }

    #[test]
    fn anything_else_is_refused_with_its_code() {
        for (octets, code) in [
            (Vec::new(), ErrorCode::UploadEmpty),
            (b"\0asm".to_vec(), ErrorCode::ImageInvalid),
            (vec![0x1f, 0x8b, 1, 2, 3], ErrorCode::ImageInvalid),
            (archive(&["oci-layout"]), ErrorCode::ImageInvalid),
            (archive(&["etc/manifest.json"]), ErrorCode::ImageInvalid),
        ] {
            let error = judged(&octets).expect_err("refused");
            assert_eq!(error.code(), code, "{error}");
        }
    }
}
