//! The folders created by `fdn new`: the files of `cli/templates/`, embedded in the program so that it is self-contained.
//!
//! `{{name}}` in paths and texts is replaced by the function's name; binary files are copied unchanged. A test compares these lists with
//! the folders.

use std::io;
use std::path::{Path, PathBuf};

use fdn_core::FunctionName;

use crate::args::Language;

/// One file of a template.
#[derive(Clone, Copy, Debug)]
pub struct TemplateFile {
    /// Its path in the function's folder.
    pub path: &'static str,
    /// Its content.
    pub content: &'static [u8],
}

macro_rules! file {
    ($folder:literal, $path:literal) => {
        TemplateFile {
            path: $path,
            content: include_bytes!(concat!("../templates/", $folder, "/", $path)),
        }
    };
}

/// The WIT interfaces of the network, for languages whose tools read them.
const WIT: TemplateFile = TemplateFile {
    path: "wit/function.wit",
    content: include_bytes!("../templates/wit/function.wit"),
};

/// The test cases of all templates, for `fdn test`.
const CASES: TemplateFile = TemplateFile {
    path: "cases.json",
    content: include_bytes!("../templates/cases.json"),
};

const RUST: &[TemplateFile] = &[
    file!("rust", ".gitignore"),
    file!("rust", "Cargo.toml"),
    file!("rust", "README.md"),
    file!("rust", "build.sh"),
    file!("rust", "fdn.toml"),
    file!("rust", "src/lib.rs"),
    CASES,
];
const JS: &[TemplateFile] = &[
    file!("js", ".gitignore"),
    file!("js", "README.md"),
    file!("js", "build.mjs"),
    file!("js", "fdn.toml"),
    file!("js", "package.json"),
    file!("js", "src/function.js"),
    CASES,
    WIT,
];
const PYTHON: &[TemplateFile] = &[
    file!("python", ".gitignore"),
    file!("python", "README.md"),
    file!("python", "app.py"),
    file!("python", "build.sh"),
    file!("python", "fdn.toml"),
    file!("python", "requirements.txt"),
    CASES,
    WIT,
];
const C: &[TemplateFile] = &[
    file!("c", ".gitignore"),
    file!("c", "Makefile"),
    file!("c", "README.md"),
    file!("c", "bindings/function.c"),
    file!("c", "bindings/function.h"),
    file!("c", "bindings/function_component_type.o"),
    file!("c", "fdn.toml"),
    file!("c", "src/function.c"),
    CASES,
    WIT,
];

/// The files of a language's template.
#[must_use]
pub const fn files(language: Language) -> &'static [TemplateFile] {
    match language {
        Language::Rust => RUST,
        Language::Js => JS,
        Language::Python => PYTHON,
        Language::C => C,
    }
}

/// Creates a function's folder, which must not exist or must be empty. Returns the written files.
///
/// # Errors
/// When the folder is not empty or cannot be written.
pub fn instantiate(
    language: Language,
    name: &FunctionName,
    folder: &Path,
) -> io::Result<Vec<PathBuf>> {
    if folder
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some())
    {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the folder is not empty",
        ));
    }
    let mut written = Vec::new();
    for file in files(language) {
        let path = folder.join(fill(file.path, name));
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        match std::str::from_utf8(file.content) {
            Ok(text) => std::fs::write(&path, fill(text, name))?,
            Err(_) => std::fs::write(&path, file.content)?,
        }
        if file.content.starts_with(b"#!") {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        written.push(path);
    }
    Ok(written)
}

fn fill(text: &str, name: &FunctionName) -> String {
    text.replace("{{name}}", name.as_str())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use fdn_core::manifest::{Manifest, ManifestBounds};

    use super::*;

    const ALL: [(Language, &str); 4] = [
        (Language::Rust, "rust"),
        (Language::Js, "js"),
        (Language::Python, "python"),
        (Language::C, "c"),
    ];

    fn walk(folder: &Path, base: &Path, found: &mut BTreeSet<String>) {
        for entry in folder
            .read_dir()
            .expect("a folder of templates")
            .map(|e| e.expect("entry").path())
        {
            if entry.is_dir() {
                walk(&entry, base, found);
            } else {
                found.insert(
                    entry
                        .strip_prefix(base)
                        .expect("inside")
                        .display()
                        .to_string(),
                );
            }
        }
    }

    #[test]
    fn no_file_of_a_template_is_forgotten() {
        for (language, folder) in ALL {
            let base = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("templates")
                .join(folder);
            let mut there = BTreeSet::from([CASES.path.to_owned()]);
            walk(&base, &base, &mut there);
            if language != Language::Rust {
                there.insert(WIT.path.to_owned());
            }
            let listed: BTreeSet<String> =
                files(language).iter().map(|f| f.path.to_owned()).collect();
            assert_eq!(listed, there, "{folder}");
        }
    }

    #[test]
    fn a_new_folder_has_a_valid_manifest_and_no_placeholder_left() {
        let name: FunctionName = "my-thing".parse().expect("name");
        for (language, _) in ALL {
            let parent = tempfile::tempdir().expect("folder");
            let folder = parent.path().join("x");
            let written = instantiate(language, &name, &folder).expect("made");
            for path in &written {
                let content = std::fs::read(path).expect("read");
                let text = String::from_utf8_lossy(&content);
                assert!(!text.contains("{{name}}"), "{}", path.display());
            }
            let manifest = std::fs::read_to_string(folder.join("fdn.toml")).expect("a manifest");
            let manifest =
                Manifest::from_toml(&manifest, &ManifestBounds::default()).expect("valid");
            assert_eq!(manifest.name, Some(name.clone()), "{language:?}");
            assert!(
                folder.join("README.md").is_file(),
                "{language:?} says how it is built"
            );
            let script = folder.join("build.sh");
            if script.exists() {
                use std::os::unix::fs::PermissionsExt as _;
                let mode = std::fs::metadata(script)
                    .expect("metadata")
                    .permissions()
                    .mode();
                assert_eq!(mode & 0o111, 0o111, "a build script can be run");
            }
            let again = instantiate(language, &name, &folder).expect_err("not empty");
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        }
    }
}
