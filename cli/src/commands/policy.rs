//! `fdn policy`.

use std::path::Path;

use fdn_core::ErrorCode;
use fdn_core::policy::Policy;
use fdn_core::policy::api::PolicyInfo;
use serde::Serialize;

use super::client;
use crate::args::{OneAppArgs, PolicyCommand, SetPolicyArgs};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::{Format, Report};

/// Runs the command.
///
/// # Errors
/// When the file is not a policy, or the controller refuses or cannot be reached.
pub async fn run(
    command: &PolicyCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        PolicyCommand::Show(args) => show(args, env, console).await,
        PolicyCommand::Set(args) => set(args, env, console).await,
        PolicyCommand::Clear(args) => clear(args, env, console).await,
    }
}

async fn show(args: &OneAppArgs, env: &Environment, console: &mut Console) -> Result<(), CliError> {
    let info = client(&args.connect, env)?.policy(&args.app).await?;
    console.report(args.output.output, &PolicyReport { info: &info })
}

async fn set(
    args: &SetPolicyArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let policy = read(&args.file)?;
    let client = client(&args.connect, env)?;
    let info = client.set_policy(&args.app, &policy).await?;
    if args.output.output != Format::Table {
        return console.report(args.output.output, &PolicyReport { info: &info });
    }
    console.line(&format!(
        "policy of {} set at revision {}",
        info.app, info.revision
    ))
}

async fn clear(
    args: &OneAppArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    client.clear_policy(&args.app).await?;
    if args.output.output != Format::Table {
        let info = client.policy(&args.app).await?;
        return console.report(args.output.output, &PolicyReport { info: &info });
    }
    console.line(&format!("policy of {} taken away", args.app))
}

/// Reads a policy from a file; its format depends on the file name extension. Mistakes are found before anything is sent.
fn read(path: &Path) -> Result<Policy, CliError> {
    let failed = |reason: String, code| CliError::File {
        path: path.to_owned(),
        reason,
        code,
    };
    let text = input::secret_value(path)?;
    let parsed: Result<Policy, String> = match path.extension().and_then(|end| end.to_str()) {
        Some("toml") => toml::from_str(&text).map_err(|e| e.to_string()),
        Some("json") => serde_json::from_str(&text).map_err(|e| e.to_string()),
        Some("yaml" | "yml") => serde_norway::from_str(&text).map_err(|e| e.to_string()),
        _ => {
            let reason = "a policy is a file named .toml, .json, .yaml or .yml";
            return Err(failed(reason.to_owned(), ErrorCode::BadRequest));
        }
    };
    let policy = parsed.map_err(|reason| failed(reason, ErrorCode::PolicyInvalid))?;
    policy
        .check()
        .map_err(|error| failed(error.to_string(), ErrorCode::PolicyInvalid))?;
    Ok(policy)
}

/// A policy in text form: TOML that `fdn policy set` accepts.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(transparent)]
struct PolicyReport<'a> {
    info: &'a PolicyInfo,
}

impl Report for PolicyReport<'_> {
    fn text(&self, _: bool) -> String {
        if self.info.policy.is_empty() {
            return format!("# {} has no policy: everybody may call it\n", self.info.app);
        }
        let by = self.info.updated_by.as_deref().unwrap_or("?");
        let text = toml::to_string(&self.info.policy).unwrap_or_default();
        format!("# set by {by} at revision {}\n{text}", self.info.revision)
    }

    fn names(&self) -> Vec<String> {
        vec![self.info.app.to_string()]
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::Coded as _;

    use super::*;

    fn file(name: &str, text: &str) -> Result<Policy, CliError> {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        read(&path)
    }

    #[test]
    fn one_policy_in_three_forms() {
        let toml = file("p.toml", "[rate]\nclient = { requests = 5, per = \"1m\" }");
        let toml = toml.expect("toml");
        let json = r#"{"rate":{"client":{"requests":5,"per":"1m"}}}"#;
        let yaml = "rate:\n  client:\n    requests: 5\n    per: 1m\n";
        assert_eq!(file("p.json", json).expect("json"), toml);
        assert_eq!(file("p.yaml", yaml).expect("yaml"), toml);
    }

    #[test]
    fn mistakes_are_found_before_anything_is_sent() {
        for (name, text, word) in [
            ("p.toml", "concurrency = 0", "concurrency"),
            ("p.json", "{\"cors\":{\"origin\":[]}}", "origin"),
            ("p.yaml", "rate: 5", "rate"),
        ] {
            let error = file(name, text).expect_err(word);
            assert_eq!(error.code(), ErrorCode::PolicyInvalid);
            assert!(error.to_string().contains(word), "{error}");
        }
        let error = file("policy.txt", "").expect_err("no form").to_string();
        assert!(error.contains(".toml"), "{error}");
    }

    #[test]
    fn what_is_shown_can_be_set() {
        let policy = file(
            "p.toml",
            "concurrency = 3\n[authentication]\nkind = \"api_key\"\n[quota]\nper_day = 10",
        );
        let info = PolicyInfo {
            app: "hello".parse().expect("app"),
            revision: fdn_core::Revision(7),
            updated_at: None,
            updated_by: Some("me".to_owned()),
            policy: policy.expect("a policy"),
        };
        let text = PolicyReport { info: &info }.text(false);
        assert!(text.starts_with("# set by me at revision 7\n"), "{text}");
        assert_eq!(file("p.toml", &text).expect("again"), info.policy);
    }
}
