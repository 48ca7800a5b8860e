//! What the layers of an image unfold to together, whatever names they have in the archive.

use super::unpack::Budget;
use super::{ArchiveError, Contents, Image, invalid};

/// The most layers of an image; engines take fewer. With the next two bounds, following links to them ends soon.
const LAYERS_MAX: usize = 1000;
/// The most links that lead to a layer.
const LINKS_MAX: usize = 8;
/// The most bytes of a path to a layer.
const PATH_MAX: usize = 1024;

impl Contents {
    /// Checks that the unpacked size of all layers was counted, and is not too much if each counts as often as the image names it: engines unpack it
    /// anew each time.
    ///
    /// # Errors
    /// When that of one was not, one is no file, or they are too many or too large together.
    pub fn check_measured(&self, image: &Image) -> Result<(), ArchiveError> {
        if image.layers.len() > LAYERS_MAX {
            return Err(invalid(format!("it has more than {LAYERS_MAX} layers")));
        }
        let mut budget = Budget::new(self.max_size);
        for layer in &image.layers {
            let file = self.file_of(layer).ok_or_else(|| {
                invalid(format!(
                    "{layer} may lead to one file or another, depending on who reads it"
                ))
            })?;
            if self.unmeasured.contains(&file) {
                return Err(invalid(format!(
                    "{layer} is neither plain nor gzip, so what it unfolds to is not known; save the image with layers of gzip"
                )));
            }
            // A hard link, or a symbolic link that leads nowhere, has nothing that was counted.
            let (bytes, entries) = self
                .unfolded
                .get(&file)
                .copied()
                .ok_or_else(|| invalid(format!("{layer} is not a file of the archive")))?;
            budget
                .take(bytes, entries)
                .map_err(|error| invalid(format!("with {layer}, {error}")))?;
        }
        Ok(())
    }

    /// The file that a layer is, perhaps through symbolic links; `None` if it depends on how they are followed.
    pub(super) fn file_of(&self, layer: &str) -> Option<String> {
        let mut path = self.follow("", layer).filter(|path| path == layer)?;
        for _ in 0..LINKS_MAX {
            let Some(target) = self.links.get(&path) else {
                return Some(path);
            };
            let folder = match target.starts_with('/') {
                true => "",
                false => path.rsplit_once('/').map_or("", |(folder, _)| folder),
            };
            path = self.follow(folder, target)?;
        }
        None
    }

    /// The plain path of what is called `path` in this folder; `None` if a link is among its folders, or it is too long.
    fn follow(&self, folder: &str, path: &str) -> Option<String> {
        if folder.len() + path.len() > PATH_MAX {
            return None;
        }
        let mut plain: Vec<&str> = Vec::new();
        for part in folder.split('/').chain(path.split('/')) {
            if self.links.contains_key(&plain.join("/")) {
                return None;
            }
            match part {
                "" | "." => {}
                ".." => {
                    plain.pop();
                }
                part => plain.push(part),
            }
        }
        Some(plain.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;
    use tar::{Builder, EntryType, Header};

    use super::*;

    fn plain(builder: &mut Builder<Vec<u8>>, name: &str, bytes: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder
            .append_data(&mut header, name, bytes)
            .expect("memory");
    }

    fn link(builder: &mut Builder<Vec<u8>>, kind: EntryType, (name, target): (&str, &str)) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(0);
        builder
            .append_link(&mut header, name, target)
            .expect("memory");
    }

    /// Whether an image may have these layers: `a/layer` has 40,000 bytes, of 100,000 that there may be.
    fn check(layers: &[&str]) -> Result<(), String> {
        let mut builder = Builder::new(Vec::new());
        let manifest = json!([{ "Config": "c.json", "Layers": layers }]);
        plain(&mut builder, "c.json", b"{}");
        plain(&mut builder, "a/layer", &[b'x'; 40_000]);
        for names in [
            ("b/layer", "../a/layer"),
            ("c/layer", "./../b/.//layer"),
            ("d", "a"),
            ("e/layer", "/d/layer"),
            ("f/layer", "layer"),
            ("g/layer", "nowhere"),
        ] {
            link(&mut builder, EntryType::Symlink, names);
        }
        plain(&mut builder, "i/layer", b"");
        for names in [("h/layer", "a/layer"), ("i/layer", "a/layer")] {
            link(&mut builder, EntryType::Link, names);
        }
        plain(
            &mut builder,
            "manifest.json",
            manifest.to_string().as_bytes(),
        );
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let archive = builder.into_inner().expect("memory");
        file.write_all(&archive).expect("written");
        let contents = Contents::digest(file.path(), 100_000).expect("an archive");
        let image = Image {
            config: "c.json".to_owned(),
            layers: layers.iter().map(|&layer| layer.to_owned()).collect(),
            digest: None,
        };
        let checked = contents.check_measured(&image);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn a_layer_counts_as_often_as_it_is_named() {
        check(&["a/layer", "a/layer"]).expect("within");
        check(&["a/layer", "c/layer"]).expect("within");
        for layers in [
            ["a/layer", "a/layer", "a/layer"],
            ["a/layer", "b/layer", "c/layer"],
            ["c/layer", "c/layer", "c/layer"],
        ] {
            let error = check(&layers).expect_err("too much");
            assert!(error.contains("unfolds to more than"), "{error}");
        }
    }

    #[test]
    fn a_layer_that_is_no_file_is_refused() {
        for layer in ["g/layer", "h/layer", "i/layer"] {
            let error = check(&[layer]).expect_err("refused");
            assert!(error.contains("is not a file of the archive"), "{error}");
        }
    }

    #[test]
    fn a_layer_that_is_one_file_or_another_is_refused() {
        for layer in ["d/layer", "e/layer", "f/layer", "a/../a/layer", "/a/layer"] {
            let error = check(&[layer]).expect_err("refused");
            assert!(error.contains("one file or another"), "{error}");
        }
    }
}
