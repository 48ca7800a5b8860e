//! The only `unsafe` code: mapping compiled machine code into this process.

#![allow(
    unsafe_code,
    reason = "wasmtime cannot prove that compiled code is what its compiler wrote; our checksums do"
)]

use std::os::fd::AsRawFd as _;

use wasmtime::component::Component;

use crate::artifact::TrustedFile;

/// Maps a compiled component.
pub(crate) fn map(engine: &wasmtime::Engine, trusted: &TrustedFile) -> wasmtime::Result<Component> {
    // Through the descriptor, so that the mapped file is the verified one even if the name now refers to another file.
    let path = format!("/proc/self/fd/{}", trusted.file().as_raw_fd());
    // SAFETY: `deserialize_file` requires that the content was written by `Component::serialize` or
    // `Engine::precompile_component`, and that it does not change while it is mapped.
    // - A `TrustedFile` exists only if the content's SHA-256 is the one that a compiler of this node recorded for exactly this
    //   engine (version, settings, CPU features), or one of the controller's compiler that the network's authority has signed; wasmtime checks the
    //   engine's part once more.
    // - Compiled files are written under a temporary name and renamed; nothing in this project opens one for writing after
    //   that. Deleting or replacing the name leaves the mapped inode as it is. The cache folder belongs to the node's own
    //   user; whoever can write there can also replace the node's binary.
    unsafe { Component::deserialize_file(engine, path) }
}
