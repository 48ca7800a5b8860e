//! At which step of its validation an upload was refused, so that whoever sent it sees how far it came.

use fdn_core::{Coded, ErrorCode};

use crate::Error;

/// The step that refuses with a code. [`ErrorCode::ImageInvalid`] is that of several, which [`super::image::ImageError`] tells apart.
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

/// The step at which an upload was refused with this error, by the name that it has when it passes; `upload` while the upload arrives and
/// `manifest` come before those. `None` for an error of something else.
pub(crate) fn refused_at(error: &Error) -> Option<&'static str> {
    if let Error::Image(image) = error {
        return image.step();
    }
    let code = error.code();
    let found = REFUSES.iter().find(|(refused, _)| *refused == code);
    found.map(|(_, step)| *step)
}
