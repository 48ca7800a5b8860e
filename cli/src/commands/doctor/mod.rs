//! `fdn doctor`: makes checks and reports for each what was found and, if something is wrong, what to do.

mod machine;
mod network;
mod nodes;

use serde::Serialize;

use crate::args::DoctorArgs;
use crate::config::ConfigStore;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::{CliError, render};
use crate::output::{Report, table};
use crate::target::{Choice, Target};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Everything is fine.
    Ok,
    /// It works, or could not be checked; something should be done about it.
    Warn,
    /// It does not work.
    Fail,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The name of the check.
    pub check: &'static str,
    /// The result.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Check {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Ok,
            found: found.into(),
            advice: None,
        }
    }

    fn warn(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Warn,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    fn fail(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            check,
            status: Status::Fail,
            found: found.into(),
            advice: Some(advice.into()),
        }
    }

    fn failed(check: &'static str, error: &CliError) -> Self {
        let advice = error.hint().unwrap_or_else(|| "see the message".to_owned());
        Self::fail(check, error.to_string(), advice)
    }
}

/// The results of all checks.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Diagnosis(pub Vec<Check>);

impl Report for Diagnosis {
    fn text(&self, _: bool) -> String {
        let rows = self.0.iter().map(|c| {
            let status = match c.status {
                Status::Ok => "ok",
                Status::Warn => "warn",
                Status::Fail => "FAIL",
            };
            vec![status.to_owned(), c.check.to_owned(), c.found.clone()]
        });
        let lines = table(&[], rows);
        // The advice is below its check.
        lines
            .lines()
            .zip(&self.0)
            .fold(String::new(), |mut text, (line, check)| {
                text.push_str(line);
                text.push('\n');
                if let Some(advice) = &check.advice {
                    text.push_str(&format!("      -> {advice}\n"));
                }
                text
            })
    }

    fn names(&self) -> Vec<String> {
        self.0
            .iter()
            .filter(|c| c.status != Status::Ok)
            .map(|c| c.check.to_owned())
            .collect()
    }
}

/// Runs the command.
///
/// # Errors
/// [`CliError::Unhealthy`] when a check failed.
pub async fn run(
    args: &DoctorArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let store = ConfigStore::open(env)?;
    let mut checks = Vec::new();
    let target = configuration(&(&args.connect).into(), env, &store, &mut checks);
    if let Some(target) = &target {
        network::check(target, &mut checks).await;
    }
    let local = target
        .as_ref()
        .is_none_or(|t| t.context.as_ref().is_none_or(|c| c.data_dir.is_some()));
    machine::check(local, &mut checks);
    let failed = checks.iter().filter(|c| c.status == Status::Fail).count();
    let all = checks.len();
    console.report(args.output.output, &Diagnosis(checks))?;
    if failed > 0 {
        Err(CliError::Unhealthy(format!(
            "{failed} of {all} checks failed"
        )))
    } else {
        Ok(())
    }
}

/// Checks the configuration; returns the network that it names, if there is one.
fn configuration(
    choice: &Choice,
    env: &Environment,
    store: &ConfigStore,
    checks: &mut Vec<Check>,
) -> Option<Target> {
    let file = store.file();
    match Target::decide(choice, env, store) {
        Ok(target) => {
            let place = file.display();
            checks.push(match (&target.name, file.exists()) {
                (Some(name), _) => Check::ok("config", format!("context {name} of {place}")),
                (None, true) => Check::ok(
                    "config",
                    format!("{place}; no context for {}", target.controller),
                ),
                (None, false) => Check::warn(
                    "config",
                    format!("{place} does not exist; {} is assumed", target.controller),
                    "run fdn up for a network on this machine, or fdn login URL",
                ),
            });
            if let Some(name) = &target.name {
                checks.extend(private(store, name));
            }
            Some(target)
        }
        Err(error) => {
            let text = render(&error);
            let found = text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("fdn: error ")
                .to_owned();
            checks.push(Check::fail(
                "config",
                found,
                error.hint().unwrap_or_default(),
            ));
            None
        }
    }
}

/// Warns if others can read the token.
fn private(store: &ConfigStore, context: &str) -> Option<Check> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = store.token_file(context);
    let mode = std::fs::metadata(&path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        Check::warn(
            "token file",
            format!("{} has mode {mode:o}: others can read it", path.display()),
            format!(
                "chmod 600 {}, and log in again if others use this machine",
                path.display()
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_stands_under_its_check() {
        let checks = vec![
            Check::ok("a", "fine"),
            Check::fail("longer", "broken", "mend it"),
            Check::warn("b", "so-so", "look"),
        ];
        let text = Diagnosis(checks).text(false);
        assert_eq!(
            text,
            "ok    a       fine\nFAIL  longer  broken\n      -> mend it\nwarn  b       so-so\n      -> look\n"
        );
    }
}
