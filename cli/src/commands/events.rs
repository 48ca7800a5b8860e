//! `fdn events`: shows what happens in the network; after a broken connection it continues where it was.

use std::time::Duration;

use fdn_core::Retry;
use fdn_core::event::{Event, MISSED, Missed};
use reqwest::Response;

use super::target;
use crate::args::{EventsArgs, LogOutput};
use crate::client::{self, Client, LOG_IDLE};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::time;

/// The longest event in bytes.
const EVENT_MAX: usize = 1 << 20;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// When the controller refuses, or cannot be reached at the start.
pub async fn run(
    args: &EventsArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let target = target(&args.connect, env)?;
    let client = Client::with_idle(&target, LOG_IDLE)?;
    let query = query(args);
    let mut reader = Reader {
        last: args.after,
        output: args.output,
    };
    let mut response = client.events(&query, reader.last).await?;
    loop {
        let end = reader.print(response, console).await;
        if !args.follow {
            return end;
        }
        match end {
            // A controller ends every stream after some minutes.
            Ok(()) | Err(CliError::Timeout(_)) => {}
            Err(CliError::Unreachable { reason, .. }) => {
                console.note(&format!(
                    "fdn: the stream broke off ({reason}); connecting again"
                ));
            }
            Err(error) => return Err(error),
        }
        response = reconnect(&client, &query, reader.last).await?;
    }
}

fn query(args: &EventsArgs) -> Vec<(&'static str, String)> {
    let kinds: Vec<&str> = args.kinds.iter().map(|kind| kind.as_str()).collect();
    let mut query = vec![("follow", args.follow.to_string())];
    let filters = [
        ("app", args.app.as_ref().map(ToString::to_string)),
        ("tenant", args.tenant.as_ref().map(ToString::to_string)),
        ("kind", (!kinds.is_empty()).then(|| kinds.join(","))),
    ];
    let given = filters.into_iter();
    query.extend(given.filter_map(|(key, value)| Some((key, value?))));
    query
}

/// Reconnects until a controller answers; gives up only on errors that a retry cannot fix.
async fn reconnect(
    client: &Client,
    query: &[(&str, String)],
    last: Option<u64>,
) -> Result<Response, CliError> {
    let mut pause = PAUSE_FIRST;
    loop {
        tokio::time::sleep(pause).await;
        match client.events(query, last).await {
            Ok(response) => return Ok(response),
            Err(CliError::Problem(problem)) if problem.code.retry() == Retry::Never => {
                return Err(CliError::Problem(problem));
            }
            Err(CliError::Problem(_) | CliError::Unreachable { .. } | CliError::Timeout(_)) => {
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The state of reading, and the output format.
struct Reader {
    /// The number of the last event that was printed.
    last: Option<u64>,
    output: LogOutput,
}

impl Reader {
    async fn print(
        &mut self,
        mut response: Response,
        console: &mut Console,
    ) -> Result<(), CliError> {
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|e| client::connection_error(&e))?
        {
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = buffer.drain(..end + 2).collect();
                self.show(&block, console)?;
            }
            if buffer.len() > EVENT_MAX {
                return Err(strange(format!(
                    "an event is longer than {EVENT_MAX} bytes"
                )));
            }
        }
        Ok(())
    }

    fn show(&mut self, block: &[u8], console: &mut Console) -> Result<(), CliError> {
        let block = std::str::from_utf8(block).map_err(|e| strange(e.to_string()))?;
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        // Comments and the `retry` field have no data.
        let (Some(name), Some(data)) = (field("event"), field("data")) else {
            return Ok(());
        };
        if name == MISSED {
            let missed: Missed = parsed(data)?;
            console.note(&format!(
                "fdn: events before {} are no longer kept; some were missed",
                missed.oldest
            ));
            return Ok(());
        }
        let event: Event = parsed(data)?;
        self.last = Some(event.id);
        match self.output {
            LogOutput::Text => console.print(&line(&event, console)),
            LogOutput::Json => console.print(&format!("{data}\n")),
        }
    }
}

fn parsed<T: serde::de::DeserializeOwned>(data: &str) -> Result<T, CliError> {
    serde_json::from_str(data).map_err(|e| strange(e.to_string()))
}

fn strange(reason: String) -> CliError {
    CliError::Answer {
        url: "the stream of events".to_owned(),
        reason,
    }
}

/// An event in text form: `12:00:00.000 app      deploy app/hello`.
fn line(event: &Event, console: &Console) -> String {
    let detail = event.detail.iter().map(|detail| format!("  {detail}"));
    format!(
        "{} {:8} {} {}{}\n",
        console.paint("2", &time(event.at)),
        event.kind,
        event.action,
        event.subject,
        detail.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    #[test]
    fn filters_are_asked_for_as_the_api_wants_them() {
        let of = |words: &[&str]| {
            let cli = Cli::try_parse_from([&["fdn", "events"], words].concat()).expect("valid");
            match cli.command {
                Command::Events(args) => query(&args),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(&[]), [("follow", "false".to_owned())]);
        let words = ["-f", "--app", "a", "--kind", "app", "--kind", "node"];
        let asked = of(&words);
        assert!(asked.contains(&("follow", "true".to_owned())));
        assert!(asked.contains(&("kind", "app,node".to_owned())));
        assert!(asked.contains(&("app", "a".to_owned())));
        assert!(Cli::try_parse_from(["fdn", "events", "--kind", "apps"]).is_err());
    }
}
