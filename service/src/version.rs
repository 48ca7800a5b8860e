//! The answer of a program to `--version`.

use std::env::consts::{ARCH, OS};

use serde::Serialize;

/// The release number.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// The C library of the target.
const LIBRARY: &str = if cfg!(target_env = "gnu") {
    "-gnu"
} else if cfg!(target_env = "musl") {
    "-musl"
} else {
    ""
};

/// How a program was built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Build {
    /// The revision of its sources: the value of `FDN_REVISION` at compile time, as set by `make dist`; otherwise `unknown`.
    pub revision: &'static str,
    /// The target's processor, system and C library, such as `x86_64-linux-gnu`.
    pub target: String,
    /// `release` or `debug`.
    pub profile: &'static str,
    /// The optional parts that it was built with.
    pub features: Vec<&'static str>,
}

impl Build {
    /// The build information of this program. The caller knows the optional parts.
    #[must_use]
    pub fn of(features: Vec<&'static str>) -> Self {
        Self {
            revision: revision(option_env!("FDN_REVISION")),
            target: format!("{ARCH}-{OS}{LIBRARY}"),
            profile: if cfg!(debug_assertions) {
                "debug"
            } else {
                "release"
            },
            features,
        }
    }

    /// All fields, by name.
    #[must_use]
    pub fn rows(&self) -> [(&'static str, String); 4] {
        let features = match self.features.is_empty() {
            true => "none".to_owned(),
            false => self.features.join(", "),
        };
        [
            ("revision", self.revision.to_owned()),
            ("target", self.target.clone()),
            ("profile", self.profile.to_owned()),
            ("features", features),
        ]
    }

    /// The release, followed by lines with the build information: what follows a program's name in the answer to `--version`.
    #[must_use]
    pub fn text(&self) -> String {
        let rows = self.rows();
        let rows = rows
            .iter()
            .map(|(name, value)| format!("{name:<9} {value}"));
        let lines: Vec<String> = std::iter::once(RELEASE.to_owned()).chain(rows).collect();
        lines.join("\n")
    }
}

fn revision(told: Option<&'static str>) -> &'static str {
    told.filter(|told| !told.is_empty()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_begins_with_the_release_and_names_everything() {
        let build = Build {
            revision: "0123456789ab",
            target: "x86_64-linux-gnu".to_owned(),
            profile: "release",
            features: vec!["console", "docs"],
        };
        assert_eq!(
            build.text(),
            format!(
                "{RELEASE}\nrevision  0123456789ab\ntarget    x86_64-linux-gnu\nprofile   release\nfeatures  console, docs"
            )
        );
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(revision(None), "unknown");
        assert_eq!(revision(Some("")), "unknown");
        assert_eq!(revision(Some("0123456789ab")), "0123456789ab");
        let build = Build::of(Vec::new());
        assert!(build.target.contains(ARCH), "{}", build.target);
        assert!(build.text().ends_with("features  none"), "{}", build.text());
    }
}
