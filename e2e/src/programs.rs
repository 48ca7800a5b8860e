//! Sets of programs: those of this build, and those of a revision before it.

use std::path::{Path, PathBuf};

use crate::binary;

/// The variable with the folder of the programs of the revision before, which `make soak GROUP=upgrade` sets.
pub const BEFORE_VARIABLE: &str = "FDN_UPGRADE_BINARIES";

/// The programs of one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Those of the build of the running test.
    ///
    /// # Panics
    /// When they have not been built.
    #[must_use]
    pub fn built() -> Self {
        let program = binary("fdn");
        let folder = program.parent().expect("a program lies in a folder");
        Self::in_folder(folder)
    }

    /// Those of the revision before.
    ///
    /// # Panics
    /// When nobody says where they are, or one is missing.
    #[must_use]
    pub fn before() -> Self {
        let folder = std::env::var_os(BEFORE_VARIABLE);
        let folder = folder.unwrap_or_else(|| {
            panic!("{BEFORE_VARIABLE} names no folder with the programs of the revision before: run make soak GROUP=upgrade")
        });
        let before = Self::in_folder(Path::new(&folder));
        assert_ne!(
            before,
            Self::built(),
            "these are the programs of this build"
        );
        before
    }

    fn in_folder(folder: &Path) -> Self {
        let folder = folder
            .canonicalize()
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let programs = Self { folder };
        for name in ["fdn", "fdn-controller", "fdn-dns", "fdn-edge-agent"] {
            let path = programs.path(name);
            assert!(path.is_file(), "{} is missing", path.display());
        }
        programs
    }

    /// Where one of them is.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether a process runs one of them.
    #[must_use]
    pub fn is_run_by(&self, process: u32) -> bool {
        let program = std::fs::read_link(format!("/proc/{process}/exe"));
        program.is_ok_and(|program| program.parent() == Some(&*self.folder))
    }
}
