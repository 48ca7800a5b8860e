//! Classification of the engine's errors.

use bollard::errors::Error;

use crate::error::{RuntimeError, StartError};
use crate::link::chain;
use crate::runtime::Kind;

/// The HTTP status of an error of the engine, if it answered at all.
pub(super) fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// Whether the engine's error message contains this text (in lower case).
pub(super) fn says(error: &Error, part: &str) -> bool {
    words(error).to_lowercase().contains(part)
}

fn words(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        other => chain(other),
    }
}

/// Converts an error of the engine that cannot be caused by the specification.
pub(super) fn engine(operation: &'static str, error: &Error) -> RuntimeError {
    let reason = words(error);
    match error {
        Error::DockerResponseServerError { .. } | Error::DockerStreamError { .. } => {
            RuntimeError::Refused {
                kind: Kind::Docker,
                operation,
                reason,
            }
        }
        _ => RuntimeError::Unreachable {
            kind: Kind::Docker,
            reason: format!("{operation}: {reason}"),
        },
    }
}

/// Converts an error of the engine while it created or started a container. The engine has few statuses, so its messages are examined.
pub(super) fn start(operation: &'static str, image: &str, error: &Error) -> StartError {
    let text = words(error).to_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let (image, reason) = (image.to_owned(), words(error));
    if status(error).is_none() {
        return engine(operation, error).into();
    }
    if says(&["no such image"]) {
        StartError::ImageMissing { image, reason }
    } else if says(&[
        "executable file not found",
        "no such file or directory: unknown",
        "no command specified",
        "exec format error",
        "permission denied: unknown",
        "unable to find user",
        // Volumes that the image declares. Not every status 400 is the image's fault: the engine also answers so if a folder of the node that
        // is to be mounted is missing, the node has fewer cores, or it does not know the API's version.
        "destination can't be '/'",
        "mount path must be absolute",
        "duplicate mount point",
        "cannot mount volume over existing file",
        "cannot be mounted because it is inside",
    ]) {
        StartError::ImageInvalid { image, reason }
    } else if says(&[
        "could not select device driver",
        "unknown or invalid runtime",
    ]) {
        StartError::Unsupported { reason }
    } else if says(&[
        "no space left",
        "cannot allocate memory",
        "resource temporarily unavailable",
    ]) {
        StartError::NoRoom { reason }
    } else {
        engine(operation, error).into()
    }
}

/// Converts an error of the engine while it pulled or loaded an image.
pub(super) fn image(operation: &'static str, image: &str, error: &Error) -> StartError {
    let text = words(error).to_lowercase();
    let says = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    let (image, reason) = (image.to_owned(), words(error));
    if says(&["no space left"]) {
        StartError::NoRoom { reason }
    } else if says(&[
        "not found",
        "does not exist",
        "manifest unknown",
        "no such host",
        "denied",
        "unauthorized",
        "authentication required",
        "no basic auth credentials",
        "connection refused",
        "timeout",
        "deadline exceeded",
    ]) {
        StartError::ImageMissing { image, reason }
    } else if says(&[
        "invalid",
        "unexpected eof",
        "unrecognized",
        "no matching manifest",
        "digest",
    ]) {
        StartError::ImageInvalid { image, reason }
    } else {
        engine(operation, error).into()
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{Coded, ErrorCode};

    use super::*;

    fn server(status_code: u16, message: &str) -> Error {
        Error::DockerResponseServerError {
            status_code,
            message: message.to_owned(),
        }
    }

    #[test]
    fn the_engines_words_become_reasons_that_a_caller_can_act_on() {
        for (error, code) in [
            (server(404, "No such image: x"), ErrorCode::ImageMissing),
            (
                server(
                    400,
                    "OCI runtime create failed: exec: \"/x\": stat /x: no such file or directory: unknown",
                ),
                ErrorCode::ImageInvalid,
            ),
            (
                server(400, "invalid specification: destination can't be '/'"),
                ErrorCode::ImageInvalid,
            ),
            (
                server(400, "Duplicate mount point: /etc/hosts"),
                ErrorCode::ImageInvalid,
            ),
            (
                server(
                    400,
                    "invalid mount config for type \"bind\": bind source path does not exist: /run/hosts",
                ),
                ErrorCode::EngineFailed,
            ),
            (
                server(
                    500,
                    "could not select device driver \"nvidia\" with capabilities: [[gpu]]",
                ),
                ErrorCode::InstanceUnsupported,
            ),
            (
                server(500, "write /var/lib: no space left on device"),
                ErrorCode::Overloaded,
            ),
            (server(500, "something else"), ErrorCode::EngineFailed),
            (Error::RequestTimeoutError, ErrorCode::EngineFailed),
        ] {
            assert_eq!(
                start("start the container", "x", &error).code(),
                code,
                "{error}"
            );
        }
        for error in [
            "manifest for x not found: manifest unknown",
            "Head \"http://127.0.0.1:5000/v2/x\": no basic auth credentials",
        ] {
            let stream = Error::DockerStreamError {
                error: error.to_owned(),
            };
            assert_eq!(image("pull", "x", &stream).code(), ErrorCode::ImageMissing);
        }
    }
}
