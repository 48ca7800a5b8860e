//! A function's folder, as created by `fdn new`: its manifest, its component, and its build command.

use std::path::{Path, PathBuf};

use fdn_core::device::GpuBounds;
use fdn_core::manifest::{Manifest, ManifestBounds};
use fdn_core::{ByteSize, DurationMs, ErrorCode};

use crate::error::CliError;
use crate::input;

/// The file name of the manifest.
pub const MANIFEST: &str = "fdn.toml";
/// The largest manifest in bytes.
pub const MANIFEST_MAX: u64 = 1 << 20;
/// The largest `package.json` in bytes.
const PACKAGE_MAX: u64 = 1 << 20;

/// A function's folder.
#[derive(Clone, Debug)]
pub struct FunctionFolder {
    /// Its path.
    pub path: PathBuf,
    /// The content of its `fdn.toml`; the defaults if there is none.
    pub manifest: Manifest,
}

impl FunctionFolder {
    /// Reads the manifest of a folder.
    ///
    /// # Errors
    /// When the folder does not exist, or its manifest is not valid.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let failed = |reason: &str| CliError::File {
            path: path.to_owned(),
            reason: reason.to_owned(),
            code: ErrorCode::BadRequest,
        };
        if !path.is_dir() {
            return Err(failed("it is no folder; name the folder of a function"));
        }
        let file = path.join(MANIFEST);
        let manifest = if file.exists() {
            let text = input::text(&file, MANIFEST_MAX)?;
            Manifest::from_toml(&text, &unbounded())
                .map_err(|error| CliError::Manifest { path: file, error })?
        } else {
            Manifest::default()
        };
        Ok(Self {
            path: path.to_owned(),
            manifest,
        })
    }

    /// The function's name: from the manifest, or else the name of the folder.
    ///
    /// # Errors
    /// When neither is a valid name.
    pub fn name(&self) -> Result<String, CliError> {
        if let Some(name) = &self.manifest.name {
            return Ok(name.to_string());
        }
        let full = self.path.canonicalize().unwrap_or_default();
        let name = full.file_name().and_then(|name| name.to_str());
        name.map(str::to_owned).ok_or_else(|| CliError::File {
            path: self.path.join(MANIFEST),
            reason: "it says no name".to_owned(),
            code: ErrorCode::BadRequest,
        })
    }

    /// The component in the folder: `NAME.wasm`, else the only `.wasm` file.
    ///
    /// # Errors
    /// When there is none, or there are several and none has the function's name.
    pub fn component(&self) -> Result<PathBuf, CliError> {
        let failed = |reason: String| CliError::File {
            path: self.path.clone(),
            reason,
            code: ErrorCode::BadRequest,
        };
        let named = self.path.join(format!("{}.wasm", self.name()?));
        if named.is_file() {
            return Ok(named);
        }
        let entries = self
            .path
            .read_dir()
            .map_err(|error| failed(error.to_string()))?;
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.is_file() && path.extension().is_some_and(|end| end == "wasm"))
            .collect();
        found.sort();
        match found.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(failed(
                "there is no component in it; build it (its README.md says how), or name the file with --component"
                    .to_owned(),
            )),
            several => Err(failed(format!(
                "there are {} components in it, and none is called {}; name one with --component",
                several.len(),
                named.file_name().unwrap_or_default().display()
            ))),
        }
    }

    /// The build command, for `sh -c` in the folder, as in the templates of `fdn new`.
    ///
    /// # Errors
    /// When nothing in the folder determines it.
    pub fn build(&self) -> Result<String, CliError> {
        if self.path.join("build.sh").is_file() {
            return Ok("./build.sh".to_owned());
        }
        let package = self.path.join("package.json");
        if package.is_file() {
            let text = input::text(&package, PACKAGE_MAX)?;
            let package = serde_json::from_str::<serde_json::Value>(&text).unwrap_or_default();
            if package["scripts"]["build"].is_string() {
                // Dependencies are installed once; if one is added later, the user sees npm's own message.
                let installed = self.path.join("node_modules").exists();
                let install = if installed { "" } else { "npm install && " };
                return Ok(format!("{install}npm run --silent build"));
            }
        }
        if self.path.join("Makefile").is_file() {
            return Ok("make".to_owned());
        }
        Err(CliError::Usage(format!(
            "nothing in {} says how it is built: it has no build.sh, no script \"build\" in a package.json and no Makefile; say it with --build",
            self.path.display()
        )))
    }
}

/// Bounds that accept everything: the actual ones are known to the controller.
#[must_use]
pub const fn unbounded() -> ManifestBounds {
    ManifestBounds {
        memory: ByteSize::from_bytes(u64::MAX),
        timeout: DurationMs::from_millis(u64::MAX),
        body: ByteSize::from_bytes(u64::MAX),
        reuse: u32::MAX,
        concurrency: u32::MAX,
        env_entries: usize::MAX,
        env_size: ByteSize::from_bytes(u64::MAX),
        allowed_hosts: usize::MAX,
        forms: usize::MAX,
        gpu: GpuBounds {
            memory: ByteSize::from_bytes(u64::MAX),
            count: u32::MAX,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("folder");
        for (name, content) in files {
            std::fs::write(folder.path().join(name), content).expect("written");
        }
        folder
    }

    fn opened(folder: &tempfile::TempDir) -> FunctionFolder {
        FunctionFolder::open(folder.path()).expect("a folder")
    }

    #[test]
    fn the_component_is_the_one_of_the_functions_name_or_the_only_one() {
        let manifest = ("fdn.toml", "name = \"thumbs\"\n");
        let two = folder(&[manifest, ("a.wasm", ""), ("thumbs.wasm", "")]);
        let found = opened(&two).component().expect("found");
        assert_eq!(found, two.path().join("thumbs.wasm"));
        let one = folder(&[manifest, ("a.wasm", ""), ("b.txt", "")]);
        let found = opened(&one).component().expect("found");
        assert_eq!(found, one.path().join("a.wasm"));
        for (files, says) in [
            (&[manifest][..], "there is no component"),
            (
                &[manifest, ("a.wasm", ""), ("b.wasm", "")],
                "none is called thumbs.wasm",
            ),
        ] {
            let error = opened(&folder(files)).component().expect_err(says);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn each_template_is_built_by_its_own_command() {
        use crate::args::Language;
        for (language, command) in [
            (Language::Rust, "./build.sh"),
            (Language::Python, "./build.sh"),
            (Language::Js, "npm install && npm run --silent build"),
            (Language::C, "make"),
        ] {
            let parent = tempfile::tempdir().expect("folder");
            let path = parent.path().join("f");
            crate::templates::instantiate(language, &"f".parse().expect("name"), &path)
                .expect("made");
            let function = FunctionFolder::open(&path).expect("a folder");
            assert_eq!(function.build().expect("a command"), command);
            assert_eq!(function.name().expect("a name"), "f");
            assert_eq!(crate::cases::load(&path).expect("cases").len(), 2);
        }
        let none = folder(&[("package.json", "{\"scripts\": {}}")]);
        let error = opened(&none).build().expect_err("nothing says it");
        assert!(error.to_string().contains("--build"), "{error}");
    }

    #[test]
    fn without_a_manifest_the_folder_gives_the_name() {
        let folder = folder(&[]);
        let name = folder.path().file_name().expect("a name");
        assert_eq!(
            opened(&folder).name().expect("a name"),
            name.display().to_string()
        );
        let error = FunctionFolder::open(Path::new("/nonexistent")).expect_err("none");
        assert!(error.to_string().contains("no folder"), "{error}");
        std::fs::write(folder.path().join("fdn.toml"), "nam = 1").expect("written");
        let error = FunctionFolder::open(folder.path()).expect_err("not valid");
        assert!(matches!(error, CliError::Manifest { .. }), "{error}");
    }
}
