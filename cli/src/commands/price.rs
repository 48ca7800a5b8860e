//! `fdn price`.

use std::path::Path;

use fdn_core::billing::PriceList;
use fdn_core::{ErrorCode, Timestamp};

use super::{client, each};
use crate::args::{ApplyPriceArgs, PriceCommand};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Listing, Row};

/// The largest file in bytes.
const FILE_MAX: u64 = 1 << 20;

/// Runs the command.
///
/// # Errors
/// When the controller refuses or cannot be reached, or the file is not a price list.
pub async fn run(
    command: &PriceCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        PriceCommand::List(args) => {
            let rows = client(&args.connect, env)?.price_lists().await?;
            list(args.output.output, &rows, console)
        }
        PriceCommand::Apply(args) => apply(args, env, console).await,
        PriceCommand::Remove(args) => {
            let client = client(&args.connect, env)?;
            each(&args.names, console, async |name| {
                let removed = client.remove_price_list(name).await;
                removed.map(|()| format!("removed {name}"))
            })
            .await
        }
    }
}

fn list(format: Format, rows: &[PriceList], console: &mut Console) -> Result<(), CliError> {
    let nothing =
        "there is no price list, so nothing costs anything; make one: fdn price apply FILE";
    console.report(
        format,
        &Listing {
            rows,
            nothing,
            now: fdn_service::now(),
        },
    )
}

async fn apply(
    args: &ApplyPriceArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let request = read(&args.file)?;
    let applied = client(&args.connect, env)?
        .apply_price_list(&request)
        .await?;
    if args.output.output != Format::Table {
        return list(args.output.output, std::slice::from_ref(&applied), console);
    }
    let until = applied
        .to
        .map_or_else(String::new, |to| format!(" until before {to}"));
    console.line(&format!(
        "{} is valid from {}{until}",
        applied.name, applied.from
    ))
}

/// Reads a price list: TOML according to the file name, otherwise YAML, which includes JSON.
fn read(path: &Path) -> Result<PriceList, CliError> {
    use std::io::Read as _;
    let failed = |reason: String, code| CliError::File {
        path: path.to_owned(),
        reason,
        code,
    };
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_MAX).read_to_string(&mut text))
        .map_err(|e| failed(e.to_string(), ErrorCode::BadRequest))?;
    let read = if path.extension().is_some_and(|kind| kind == "toml") {
        toml::from_str(&text).map_err(|e| e.to_string())
    } else {
        serde_norway::from_str(&text).map_err(|e| e.to_string())
    };
    read.map_err(|reason| failed(reason, ErrorCode::PriceListInvalid))
}

impl Row for PriceList {
    const COLUMNS: &'static [&'static str] = &["NAME", "FROM", "TO", "CURRENCY", "PRICES", "FREE"];
    const NARROW: usize = 4;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let meters = |names: Vec<String>| {
            if names.is_empty() {
                "-".to_owned()
            } else {
                names.join(",")
            }
        };
        vec![
            self.name.to_string(),
            self.from.to_string(),
            self.to.map_or("-".to_owned(), |to| to.to_string()),
            self.currency.to_string(),
            meters(self.prices.keys().map(ToString::to_string).collect()),
            meters(
                self.free
                    .iter()
                    .map(|(meter, units)| format!("{meter}={units}"))
                    .collect(),
            ),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}
