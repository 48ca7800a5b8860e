//! Conversion of an uploaded image archive into one that is safe to load into an engine.
//!
//! The input is read with [`fdn_runtime::image`]: the output of `docker save`, or an OCI image layout. The output always has the former format,
//! with exactly one image under exactly one name, chosen by the agent. The reason is not only that engines before version 25 do not load OCI
//! layouts: names inside an archive would otherwise move the tags of other people's images on the node.
//!
//! Nothing is unpacked here and no path of the archive is used as a path; entries are streamed from one tar file to the other. That the archive
//! is complete was checked at the upload; here its processor architecture is compared with the node's, which no upload can know.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

use fdn_core::ByteSize;
use fdn_runtime::image::{
    Contents, DockerImage, Image, UNPACKED_MAX, architecture, entry_name, open,
};
use tar::{Builder, EntryType, Header};

pub(crate) use fdn_runtime::image::ArchiveError;

/// Finds the one image of an archive for this node's architecture; the archive may unpack to at most `max_size`. Its layers were counted at the upload.
pub(crate) fn plan(path: &Path, max_size: ByteSize) -> Result<Image, ArchiveError> {
    let contents = Contents::read(path, max_size.as_bytes())?;
    let image = contents.image(&[architecture()])?;
    let config = contents.config(&image)?;
    if !config.runs_on(&[architecture()]) {
        return Err(ArchiveError::Platform(format!(
            "it is for {}, this node is linux/{}",
            config.platform(),
            architecture()
        )));
    }
    Ok(image)
}

/// The digest that a registry gives to the image of an OCI layout, for this node's platform; `None` if the archive is not a layout.
pub(crate) fn oci_digest(path: &Path) -> Result<Option<fdn_core::Digest>, ArchiveError> {
    Contents::read(path, UNPACKED_MAX.as_bytes())?.oci_digest(&[architecture()])
}

/// Writes the image as an archive in the format of `docker save` with `tag` as its only name.
pub(crate) fn rewrite(
    (path, max_size): (&Path, ByteSize),
    plan: &Image,
    tag: &str,
    sink: impl Write,
) -> Result<(), ArchiveError> {
    let wanted: BTreeSet<&String> = std::iter::once(&plan.config).chain(&plan.layers).collect();
    let mut out = Builder::new(sink);
    for entry in open(path, max_size.as_bytes())?.entries()? {
        let mut entry = entry?;
        let name = entry_name(&entry)?;
        let kind = entry.header().entry_type();
        if !wanted.contains(&name) {
            continue;
        }
        if kind.is_file() {
            let mut header = plain(entry.size());
            out.append_data(&mut header, &name, &mut entry)?;
        } else if let Some(target) = entry.link_name()?.filter(|_| kind == EntryType::Symlink) {
            // `docker save` before version 25 writes a layer that several images share as a link.
            let mut header = plain(0);
            header.set_entry_type(EntryType::Symlink);
            out.append_link(&mut header, &name, &target)?;
        }
    }
    let manifest = serde_json::to_vec(&[DockerImage {
        config: plan.config.clone(),
        repo_tags: Some(vec![tag.to_owned()]),
        layers: plan.layers.clone(),
    }])
    .map_err(io::Error::other)?;
    let mut header = plain(manifest.len() as u64);
    out.append_data(&mut header, "manifest.json", manifest.as_slice())?;
    out.into_inner()?.flush()?;
    Ok(())
}

fn plain(size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header
}

#[cfg(test)]
mod tests;
