//! The validation step that rejected an upload, so that the sender sees how far it got.

use fdn_core::{Coded, ErrorCode};

use crate::Error;

/// The step that rejects with an error code. [`ErrorCode::ImageInvalid`] belongs to several steps; [`super::image::ImageError`] tells them apart.
const REFUSES: [(ErrorCode, &str); 13] = [
    (ErrorCode::UploadIncomplete, "upload"),
    (ErrorCode::ManifestInvalid, "manifest"),
    (ErrorCode::SignatureMissing, "signature"),
    (ErrorCode::SignatureInvalid, "signature"),
    (ErrorCode::UploadTooLarge, "size"),
    (ErrorCode::UploadEmpty, "format"),
    (ErrorCode::UploadNotWasm, "format"),
    (ErrorCode::UploadCoreModule, "format"),
    (ErrorCode::UploadMalformed, "format"),
    (ErrorCode::UploadNoHandler, "exports"),
    (ErrorCode::UploadForeignImport, "imports"),
    (ErrorCode::UploadNotCompilable, "compile"),
    (ErrorCode::UploadProbeFailed, "probe"),
];

/// The step that rejected an upload with this error, by the name that it has in a successful validation; preceded by `upload` while the upload
/// arrives, and `manifest`. `None` if the error is not about an upload.
pub(crate) fn refused_at(error: &Error) -> Option<&'static str> {
    if let Error::Image(image) = error {
        return image.step();
    }
    let code = error.code();
    let found = REFUSES.iter().find(|(refused, _)| *refused == code);
    found.map(|(_, step)| *step)
}
