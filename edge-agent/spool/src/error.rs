//! What can go wrong with the spool.

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
        /// What is used, or kept free for calls that run.
        used: ByteSize,
        /// The bound.
        limit: ByteSize,
    },
    /// The disk failed, and no new call is taken until it writes again.
    #[error("the usage spool cannot be written: {0}")]
    Disk(String),
    /// The folder cannot be used.
    #[error("cannot use {path}; make `data` a directory that the agent may write")]
    Folder {
        /// The folder or file.
        path: PathBuf,
        /// Why.
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
