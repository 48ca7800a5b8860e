//! Errors of the spool.

use std::io;
use std::path::PathBuf;

use fdn_core::{ByteSize, Coded, ErrorCode};

/// Why a record is not in the spool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpoolError {
    /// There is no room for the record of another call.
    #[error("the usage spool is full: {used} of {limit} wait for the controller")]
    Full {
        /// The bytes used, and those reserved for running calls.
        used: ByteSize,
        /// The limit, in bytes.
        limit: ByteSize,
    },
    /// The disk failed; no new call is accepted until it can be written again.
    #[error("the usage spool cannot be written: {0}")]
    Disk(String),
    /// The folder is not usable.
    #[error("cannot use {path}; make `data` a directory that the agent may write")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The record is larger than any record can be, which is a bug.
    #[error("a record of {0} bytes is too large for the usage spool")]
    TooLarge(usize),
    /// The spool is being closed.
    #[error("the usage spool is closed")]
    Closed,
}

impl Coded for SpoolError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Full { .. } | Self::Disk(_) | Self::Closed => ErrorCode::Overloaded,
            Self::Folder { .. } => ErrorCode::DataDirectory,
            Self::TooLarge(_) => ErrorCode::Internal,
        }
    }
}
