//! `fdn signing-key`: manages the keys whose signatures uploads of a tenant need.

use fdn_core::Timestamp;
use fdn_core::repository::{PutSigningKey, SetSignaturePolicy, SigningKeyInfo};

use super::client;
use super::tenant::{done, list};
use crate::args::SigningKeyCommand;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::input;
use crate::output::{Row, age};

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or the key's file cannot be read.
pub async fn run(
    command: &SigningKeyCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        SigningKeyCommand::Add(args) => {
            let request = PutSigningKey {
                public_key: input::text_file(&args.file)?,
            };
            let client = client(&args.connect, env)?;
            let key = client
                .put_signing_key(&args.tenant, &args.name, &request)
                .await?;
            let said = format!(
                "signatures by {} ({}) count in {}",
                key.name,
                key.algorithm.as_str(),
                args.tenant
            );
            done(args.output, key, &said, console)
        }
        SigningKeyCommand::List(args) => {
            let rows = client(&args.connect, env)?
                .signing_keys(&args.tenant)
                .await?;
            let nothing = "no keys; add one with: fdn signing-key add TENANT NAME FILE";
            list(args.output, &rows, nothing, console)
        }
        SigningKeyCommand::Remove(args) => {
            let client = client(&args.connect, env)?;
            client.remove_signing_key(&args.tenant, &args.name).await?;
            console.line(&format!("removed {} from {}", args.name, args.tenant))
        }
        SigningKeyCommand::Policy(args) => {
            let request = SetSignaturePolicy {
                policy: args.policy.into(),
            };
            let client = client(&args.connect, env)?;
            let info = client.set_signature_policy(&args.tenant, &request).await?;
            let said = format!(
                "signatures are {} in {}",
                request.policy.as_str(),
                info.name
            );
            done(args.output, info, &said, console)
        }
    }
}

impl Row for SigningKeyInfo {
    const COLUMNS: &'static [&'static str] = &["NAME", "ALGORITHM", "FINGERPRINT", "AGE", "BY"];
    const NARROW: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            self.algorithm.as_str().to_owned(),
            self.fingerprint.short(),
            age(self.created_at, now),
            self.created_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}
