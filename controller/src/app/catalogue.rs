//! The catalogue: ready-made functions that are deployed by name.
//!
//! Those whose components are in the repository are compiled into this program, so that they are available wherever it runs. More can be in a
//! folder (`repository.catalogue`), which is read anew for each request: `catalogue.toml` describes the functions, `CHECKSUMS` has the digests of
//! their components. A function without a checksum is not offered. What is deployed from here passes every check of an upload, including the
//! tenant's signature policy.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fdn_core::api::DeployResponse;
use fdn_core::manifest::RuntimeKind;
use fdn_core::repository::{CatalogueEntry, DeployCatalogue};
use fdn_core::{Digest, FunctionName, TenantId};
use serde::Deserialize;

use super::actor::Actor;
use super::deploy::{Upload, deploy};
use super::repository::RepositoryError;
use crate::Error;
use crate::state::State;
use crate::upload::signature::Signature;

/// The largest size of a text file of the catalogue, in bytes.
const TEXT_MAX: u64 = 1 << 20;
/// The most entries of `catalogue.toml`.
const ENTRIES_MAX: usize = 1000;

/// A function compiled into this program: name, manifest, component.
type Embedded = (&'static str, &'static str, &'static [u8]);

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$((
            $name,
            include_str!(concat!("../../../functions/", $name, "/fdn.toml")),
            include_bytes!(concat!("../../../functions/", $name, "/", $name, ".wasm")),
        )),*]
    };
}

const EMBEDDED: &[Embedded] = embedded!("hello", "image", "sheet");
const DESCRIPTIONS: &str = include_str!("../../../functions/catalogue.toml");

/// The description of a function in `catalogue.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    summary: String,
    language: String,
}

/// A function that can be deployed.
struct CatalogueItem {
    entry: CatalogueEntry,
    manifest: String,
    component: Component,
}

/// Where the bytes of a component are.
enum Component {
    Embedded(&'static [u8]),
    File(PathBuf),
}

/// All functions, by name. One in the folder replaces one of the same name that is compiled in.
///
/// # Errors
/// When the folder's text files cannot be read.
pub async fn list(state: &State) -> Result<Vec<CatalogueEntry>, Error> {
    let all = load(state).await?;
    Ok(all.into_values().map(|ready| ready.entry).collect())
}

async fn load(state: &State) -> Result<BTreeMap<FunctionName, CatalogueItem>, Error> {
    let mut all = embedded()?;
    if let Some(folder) = state.settings.repository.catalogue.clone() {
        let read = tokio::task::spawn_blocking(move || in_folder(&folder));
        let read = read.await;
        all.extend(
            read.map_err(|e| Error::Internal(format!("reading the catalogue broke: {e}")))??,
        );
    }
    Ok(all)
}

fn embedded() -> Result<BTreeMap<FunctionName, CatalogueItem>, Error> {
    let mut descriptions = parse_descriptions(DESCRIPTIONS)?;
    let ready = EMBEDDED.iter().filter_map(|(name, manifest, component)| {
        let (name, description) = descriptions.remove_entry(&name.parse().ok()?)?;
        Some(CatalogueItem {
            entry: entry(
                name,
                description,
                Digest::of(component),
                component.len() as u64,
            ),
            manifest: (*manifest).to_owned(),
            component: Component::Embedded(component),
        })
    });
    Ok(ready
        .map(|ready| (ready.entry.name.clone(), ready))
        .collect())
}

fn parse_descriptions(text: &str) -> Result<BTreeMap<FunctionName, Description>, Error> {
    let descriptions: BTreeMap<FunctionName, Description> = toml::from_str(text)
        .map_err(|e| Error::config(format!("repository.catalogue: catalogue.toml: {e}")))?;
    if descriptions.len() > ENTRIES_MAX {
        return Err(Error::config(format!(
            "repository.catalogue: {ENTRIES_MAX} functions at most"
        )));
    }
    Ok(descriptions)
}

fn entry(
    name: FunctionName,
    description: Description,
    digest: Digest,
    size: u64,
) -> CatalogueEntry {
    CatalogueEntry {
        name,
        summary: description.summary,
        language: description.language,
        digest,
        size,
    }
}

/// Reads the functions of a folder. Blocking.
fn in_folder(folder: &Path) -> Result<BTreeMap<FunctionName, CatalogueItem>, Error> {
    let descriptions = parse_descriptions(&text(&folder.join("catalogue.toml"))?)?;
    let sums = checksums(&text(&folder.join("CHECKSUMS"))?);
    let mut all = BTreeMap::new();
    for (name, description) in descriptions {
        let path = format!("{name}/{name}.wasm");
        let (Some(digest), Ok(meta)) = (sums.get(&path), folder.join(&path).metadata()) else {
            continue;
        };
        let ready = CatalogueItem {
            manifest: text(&folder.join(name.as_str()).join("fdn.toml"))?,
            component: Component::File(folder.join(&path)),
            entry: entry(name.clone(), description, *digest, meta.len()),
        };
        all.insert(name, ready);
    }
    Ok(all)
}

fn text(path: &Path) -> Result<String, Error> {
    let failed = |reason: String| {
        Error::config(format!(
            "repository.catalogue: {}: {reason}",
            path.display()
        ))
    };
    let size = path.metadata().map_err(|e| failed(e.to_string()))?.len();
    if size > TEXT_MAX {
        return Err(failed(format!("it is larger than {TEXT_MAX} bytes")));
    }
    std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))
}

/// Digests by path, from the format of `sha256sum`; other lines are skipped.
fn checksums(text: &str) -> BTreeMap<String, Digest> {
    let line = |line: &str| {
        let (digest, path) = line.split_once("  ")?;
        Some((path.trim().to_owned(), digest.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Deploys a function of the catalogue as an app.
///
/// # Errors
/// When there is no such function, its component does not match its checksum, or as for deploying an upload.
pub async fn deploy_entry(
    state: Arc<State>,
    actor: Actor,
    tenant: TenantId,
    name: &FunctionName,
    request: DeployCatalogue,
) -> Result<DeployResponse, Error> {
    let ready = load(&state).await?.remove(name);
    let ready = ready.ok_or_else(|| Error::NotFound {
        what: format!("function {name} of the catalogue"),
        hint: "`fdn catalogue list` shows what there is",
    })?;
    let place = state.uploads.acquire_place(tenant)?;
    let bytes: Cow<'static, [u8]> = match ready.component {
        Component::Embedded(bytes) => Cow::Borrowed(bytes),
        Component::File(path) => Cow::Owned(read(name, &path, ready.entry.size).await?),
    };
    let mut spool = state.uploads.spool(RuntimeKind::Wasm)?;
    for piece in bytes.chunks(256 << 10) {
        spool.write(piece).await?;
    }
    let component = spool.finish().await?;
    if component.digest() != ready.entry.digest {
        return Err(RepositoryError::Damaged {
            name: name.clone(),
            reason: format!(
                "its component is {}, and its checksum {}",
                component.digest(),
                ready.entry.digest
            ),
        }
        .into());
    }
    let upload = Upload {
        manifest: Some(ready.manifest),
        secrets: BTreeMap::new(),
        labels: (!request.labels.is_empty()).then_some(request.labels),
        signature: request.signature.map(|text| Signature {
            text,
            payload: None,
        }),
        component,
        forms: BTreeMap::new(),
        place,
    };
    let app = request.app.unwrap_or_else(|| name.clone().into());
    deploy(state, actor, tenant, app, upload).await
}

async fn read(name: &FunctionName, path: &Path, size: u64) -> Result<Vec<u8>, Error> {
    let damaged = |reason: String| RepositoryError::Damaged {
        name: name.clone(),
        reason,
    };
    let bytes = tokio::fs::read(path).await;
    let bytes = bytes.map_err(|e| damaged(format!("its component cannot be read: {e}")))?;
    // The size was read a moment ago: if it differs, the file is just being written.
    if bytes.len() as u64 != size {
        return Err(damaged("its component is being changed".to_owned()).into());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The list written by the build of the components.
    const ARTIFACTS: &str = include_str!("../../../functions/ARTIFACTS");

    #[test]
    fn what_is_inside_is_what_was_built() {
        let all = embedded().expect("valid");
        let names: Vec<&str> = all.keys().map(FunctionName::as_str).collect();
        assert_eq!(names, ["hello", "image", "sheet"]);
        let sums = checksums(ARTIFACTS);
        for (name, ready) in &all {
            assert_eq!(
                sums.get(&format!("{name}/{name}.wasm")),
                Some(&ready.entry.digest)
            );
            assert!(!ready.entry.summary.is_empty() && ready.entry.size > 0);
        }
    }

    #[test]
    fn every_function_that_is_built_has_its_words() {
        let descriptions = parse_descriptions(DESCRIPTIONS).expect("valid");
        let sums = checksums(ARTIFACTS);
        for path in sums.keys().filter(|path| path.ends_with(".wasm")) {
            let name = path.split('/').next().expect("a folder");
            let key: FunctionName = name.parse().expect("a name");
            assert!(
                descriptions.contains_key(&key),
                "{name} is missing in catalogue.toml"
            );
            assert!(
                EMBEDDED.iter().any(|(embedded, ..)| *embedded == name),
                "{name} is not offered"
            );
        }
    }

    #[test]
    fn a_folder_offers_what_has_a_checksum() {
        let folder = tempfile::tempdir().expect("folder");
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, text).expect("written");
        };
        let words = "summary = \"x\"\nlanguage = \"C\"\n";
        write(
            "catalogue.toml",
            &format!("[one]\n{words}[two]\n{words}[three]\n{words}"),
        );
        for name in ["one", "two"] {
            write(&format!("{name}/{name}.wasm"), "bytes");
            write(&format!("{name}/fdn.toml"), "");
        }
        let digest = Digest::of(b"bytes").hex();
        write(
            "CHECKSUMS",
            &format!("# a comment\n{digest}  one/one.wasm\n{digest}  three/three.wasm\n"),
        );
        let all = in_folder(folder.path()).expect("read");
        let names: Vec<&str> = all.keys().map(FunctionName::as_str).collect();
        assert_eq!(names, ["one"], "two has no checksum, three no component");
        let one: FunctionName = "one".parse().expect("a name");
        assert_eq!(all[&one].entry.size, 5);
        assert!(in_folder(&folder.path().join("absent")).is_err());
    }
}
