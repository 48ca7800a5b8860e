//! Records of the controller's planning passes.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;

use crate::Network;

impl Network {
    /// The controller records its planning passes from its next start on; the folder.
    ///
    /// # Errors
    /// When its settings cannot be written.
    pub fn record_plans(&self) -> Result<PathBuf> {
        let folder = self.path("plans");
        let mut text = std::fs::read_to_string(self.path("controller.toml"))?;
        writeln!(text, "[planner]\nrecord = \"{}\"", folder.display())?;
        self.write("controller.toml", &text)?;
        Ok(folder)
    }
}
