//! Cheap checks of an upload, before anything is compiled or run.

use fdn_core::{Coded, ErrorCode};
use wasmparser::{Encoding, Parser, Payload, Validator};

/// The description of an upload that is a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The size in bytes.
    pub size: u64,
    /// The exported version of `wasi:http/incoming-handler`, such as `0.2.3`.
    pub handler_version: String,
    /// The names of its exports.
    pub exports: Vec<String>,
    /// The names of its imports; the network offers all of them.
    pub imports: Vec<String>,
}

/// Why an upload is not a function.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The file is empty.
    #[error("the file is empty; upload the .wasm file that your build wrote")]
    Empty,
    /// The file is not WebAssembly.
    #[error(
        "the file is {looks_like}, not a WebAssembly component; upload the .wasm file that your build wrote"
    )]
    NotWasm {
        /// What it looks like, with the article.
        looks_like: String,
    },
    /// The file is a core module, not a component.
    #[error(
        "the file is a core WebAssembly module, not a component; make one with `wasm-tools component new module.wasm -o component.wasm` (modules built for wasm32-wasip1 also need `--adapt wasi_snapshot_preview1.reactor.wasm`)"
    )]
    CoreModule,
    /// The component is truncated or malformed.
    #[error(
        "the component is truncated or malformed at byte {offset} of {size}: {reason}; build or upload it again"
    )]
    Malformed {
        /// The position of the error, in bytes.
        offset: u64,
        /// The size of the file in bytes.
        size: u64,
        /// The parser's message.
        reason: String,
    },
    /// The component does not export the handler.
    #[error("the component does not export wasi:http/incoming-handler@0.2; it exports {}; build it for the world wasi:http/proxy", list(.exports))]
    NoHandler {
        /// What it exports instead.
        exports: Vec<String>,
    },
    /// The component has imports that the network does not offer.
    #[error("the component imports what the network does not offer: {}; the network offers wasi:cli, clocks, filesystem, http, io, random and sockets 0.2", list(.imports))]
    ForeignImports {
        /// The names of these imports.
        imports: Vec<String>,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

impl Coded for InspectError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Empty => ErrorCode::UploadEmpty,
            Self::NotWasm { .. } => ErrorCode::UploadNotWasm,
            Self::CoreModule => ErrorCode::UploadCoreModule,
            Self::Malformed { .. } => ErrorCode::UploadMalformed,
            Self::NoHandler { .. } => ErrorCode::UploadNoHandler,
            Self::ForeignImports { .. } => ErrorCode::UploadForeignImport,
        }
    }
}

/// The interfaces that functions may import, in any version 0.2.x. All are linked; which access they grant is decided
/// elsewhere: no files, no sockets, no names, HTTP to allowed hosts only.
const OFFERED: &[(&str, &[&str])] = &[
    (
        "wasi:cli",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
    ),
    ("wasi:clocks", &["wall-clock", "monotonic-clock"]),
    ("wasi:filesystem", &["types", "preopens"]),
    ("wasi:http", &["types", "outgoing-handler"]),
    ("wasi:io", &["error", "poll", "streams"]),
    ("wasi:random", &["random", "insecure", "insecure-seed"]),
    (
        "wasi:sockets",
        &[
            "network",
            "instance-network",
            "ip-name-lookup",
            "tcp",
            "tcp-create-socket",
            "udp",
            "udp-create-socket",
        ],
    ),
];

/// Whether `version` is a release 0.2.x; build metadata is ignored, as semantic versioning requires.
fn is_zero_two(version: &str) -> bool {
    let release = version
        .split_once('+')
        .map_or(version, |(release, _)| release);
    release
        .strip_prefix("0.2.")
        .is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|b| b.is_ascii_digit()))
}

fn is_offered(import: &str) -> bool {
    let Some((interface, version)) = import.split_once('@') else {
        return false;
    };
    is_zero_two(version)
        && interface.split_once('/').is_some_and(|(package, name)| {
            OFFERED
                .iter()
                .any(|(offered, names)| *offered == package && names.contains(&name))
        })
}

/// A well-formed component: the first half of [`inspect`], for callers that report each check separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    size: u64,
    exports: Vec<String>,
    imports: Vec<String>,
}

/// Checks, in this order: not empty, WebAssembly, a component, well-formed.
///
/// # Errors
/// The first check that fails.
pub fn parse(bytes: &[u8]) -> Result<Parsed, InspectError> {
    if bytes.is_empty() {
        return Err(InspectError::Empty);
    }
    check_magic(bytes)?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let malformed = |error: wasmparser::BinaryReaderError| InspectError::Malformed {
        offset: u64::try_from(error.offset()).unwrap_or(u64::MAX),
        size,
        reason: error.message().to_owned(),
    };
    Validator::new().validate_all(bytes).map_err(malformed)?;
    let (exports, imports) = names(bytes).map_err(malformed)?;
    if exports.is_empty() {
        // A component truncated between two sections is well-formed, and exports come last.
        return Err(InspectError::Malformed {
            offset: size,
            size,
            reason: "it ends without exporting anything".to_owned(),
        });
    }
    Ok(Parsed {
        size,
        exports,
        imports,
    })
}

impl Parsed {
    /// Checks that the handler is exported; returns its version.
    ///
    /// # Errors
    /// [`InspectError::NoHandler`].
    pub fn check_exports(&self) -> Result<String, InspectError> {
        self.exports
            .iter()
            .find_map(|name| {
                name.strip_prefix("wasi:http/incoming-handler@")
                    .filter(|version| is_zero_two(version))
            })
            .map(ToOwned::to_owned)
            .ok_or_else(|| InspectError::NoHandler {
                exports: self.exports.clone(),
            })
    }

    /// Checks that the network offers everything that is imported.
    ///
    /// # Errors
    /// [`InspectError::ForeignImports`].
    pub fn check_imports(&self) -> Result<(), InspectError> {
        let foreign: Vec<String> = self
            .imports
            .iter()
            .filter(|name| !is_offered(name))
            .cloned()
            .collect();
        if foreign.is_empty() {
            Ok(())
        } else {
            Err(InspectError::ForeignImports { imports: foreign })
        }
    }

    /// The description of a component that passed both checks.
    #[must_use]
    pub fn into_inspection(self, handler_version: String) -> Inspection {
        Inspection {
            size: self.size,
            handler_version,
            exports: self.exports,
            imports: self.imports,
        }
    }
}

/// Checks, in this order: not empty, WebAssembly, a component, well-formed, exports the handler, imports only what the
/// network offers.
///
/// # Errors
/// The first check that fails.
pub fn inspect(bytes: &[u8]) -> Result<Inspection, InspectError> {
    let parsed = parse(bytes)?;
    let handler_version = parsed.check_exports()?;
    parsed.check_imports()?;
    Ok(parsed.into_inspection(handler_version))
}

/// Checks the eight bytes at the start of every WebAssembly file: magic, version, layer.
fn check_magic(bytes: &[u8]) -> Result<(), InspectError> {
    let Some(rest) = bytes.strip_prefix(b"\0asm") else {
        return Err(InspectError::NotWasm {
            looks_like: crate::sniff::describe_content(bytes),
        });
    };
    match rest {
        [1, 0, 0, 0, ..] => Err(InspectError::CoreModule),
        _ => Ok(()),
    }
}

/// The names of the exports and imports of the outermost component.
fn names(bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), wasmparser::BinaryReaderError> {
    let (mut exports, mut imports) = (Vec::new(), Vec::new());
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::Version { encoding, .. } => {
                depth += 1;
                debug_assert!(depth > 1 || encoding == Encoding::Component);
            }
            Payload::End(_) => depth -= 1,
            Payload::ComponentImportSection(section) if depth == 1 => {
                for import in section {
                    imports.push(import?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 1 => {
                for export in section {
                    exports.push(export?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok((exports, imports))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fdn_testkit::components;

    #[test]
    fn a_function_is_described() {
        let bytes = components::echo();
        let inspection = inspect(&bytes).expect("a function");
        assert_eq!(inspection.size, bytes.len() as u64);
        assert_eq!(inspection.handler_version, "0.2.3");
        assert_eq!(inspection.exports, ["wasi:http/incoming-handler@0.2.3"]);
        assert!(
            inspection
                .imports
                .iter()
                .any(|i| i == "wasi:http/types@0.2.3")
        );
        for version in ["0.2.0", "0.2.12", "0.2.99"] {
            let bytes = components::hello_for("hi", version);
            assert_eq!(inspect(&bytes).expect(version).handler_version, version);
        }
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        assert_eq!(inspect(b""), Err(InspectError::Empty));
        assert_eq!(
            inspect(&components::core_module()),
            Err(InspectError::CoreModule)
        );
        assert!(matches!(
            inspect(b"\x7fELF\x02"),
            Err(InspectError::NotWasm { .. })
        ));
        assert!(matches!(
            inspect(b"\0asm"),
            Err(InspectError::Malformed { .. })
        ));
        let truncated = inspect(&components::truncated()).expect_err("truncated");
        assert!(
            matches!(truncated, InspectError::Malformed { offset, size, .. } if offset <= size),
            "{truncated}"
        );
        let error = inspect(&components::no_handler()).expect_err("no handler");
        assert!(
            error.to_string().contains("it exports fdn:fixtures/shape;"),
            "{error}"
        );
        let error = inspect(&components::foreign_import()).expect_err("foreign");
        assert_eq!(
            error,
            InspectError::ForeignImports {
                imports: vec![
                    "fdn:foreign/things@1.0.0".to_owned(),
                    "acme:store/kv@0.2.0".to_owned(),
                ]
            }
        );
    }

    #[test]
    fn every_truncation_and_flipped_byte_is_an_error_or_a_function_and_never_a_panic() {
        let bytes = components::hello("hi");
        let whole = inspect(&bytes).expect("a function");
        for length in 0..bytes.len() {
            match inspect(&bytes[..length]) {
                // Only custom sections, such as names, follow the exports.
                Ok(part) => assert_eq!(
                    (part.exports, part.imports),
                    (whole.exports.clone(), whole.imports.clone())
                ),
                Err(InspectError::NoHandler { exports }) => panic!("{length}: {exports:?}"),
                Err(_) => {}
            }
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x55;
            let _ = inspect(&flipped);
        }
    }

    #[test]
    fn versions_are_compatible_within_zero_two() {
        assert!(is_offered("wasi:cli/environment@0.2.0"));
        assert!(is_offered("wasi:http/types@0.2.12"));
        assert!(is_offered("wasi:http/types@0.2.12+build"));
        assert!(!is_offered("wasi:http/types@0.3.0"));
        assert!(!is_offered("wasi:http/types@0.2.0-rc-2023-11-10"));
        assert!(!is_offered("wasi:http/types"));
        assert!(!is_offered("wasi:http/incoming-handler@0.2.0"));
        assert!(!is_offered("wasi:keyvalue/store@0.2.0"));
    }
}
