//! `fdn logs`: shows the log stream of an app; after a broken connection it continues without repeating a line.
//!
//! Lines have no sequence numbers. Those of one node arrive in the order of their times, so it is enough to remember for each node the time of
//! the last line shown, and the lines shown of that millisecond: after a reconnect, earlier lines are old, lines of that millisecond
//! are compared, and later ones are new. For a node without lines so far, lines are new from the time of the first line shown of any node.

use std::collections::BTreeMap;
use std::time::Duration;

use fdn_core::api::{LogLine, LogStream};
use fdn_core::{AppName, NodeId, Retry, Timestamp};
use reqwest::Response;

use super::target;
use crate::args::{LogOutput, LogsArgs};
use crate::client::{self, Client, LOG_IDLE};
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{printable, time};

/// The number of lines requested after a reconnect: as many as nodes keep.
const CATCH_UP: u32 = 10_000;
/// The longest line in bytes.
const LINE_MAX: usize = 1 << 20;
const PAUSE_FIRST: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs the command.
///
/// # Errors
/// When the app does not exist, the controller refuses, or it cannot be reached at the start.
pub async fn run(
    args: &LogsArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let target = target(&args.connect, env)?;
    let client = Client::with_idle(&target, LOG_IDLE)?;
    let mut lines = LogReader::open(client, &args.name, args.follow, args.tail).await?;
    loop {
        match lines.next().await? {
            StreamEvent::Lines(lines) => {
                let text: String = lines
                    .iter()
                    .map(|line| match args.output {
                        LogOutput::Text => format_line(&line.line, console),
                        LogOutput::Json => format!("{}\n", line.text),
                    })
                    .collect();
                if !text.is_empty() {
                    console.print(&text)?;
                }
            }
            StreamEvent::Disconnected(reason) => console.note(&format!(
                "fdn: the stream broke off ({reason}); connecting again"
            )),
            StreamEvent::Ended => return Ok(()),
        }
    }
}

/// An event of a stream of lines.
#[derive(Debug)]
pub(super) enum StreamEvent {
    /// New lines.
    Lines(Vec<Line>),
    /// The connection broke and will be restored.
    Disconnected(String),
    /// There are no more lines, if only past ones were requested.
    Ended,
}

/// A log line.
#[derive(Debug)]
pub(super) struct Line {
    /// The parsed line.
    pub(super) line: LogLine,
    /// The line as received.
    pub(super) text: String,
}

/// The log stream of an app.
#[derive(Debug)]
pub(super) struct LogReader {
    client: Client,
    app: AppName,
    follow: bool,
    shown: ShownLines,
    response: Option<Response>,
    /// The beginning of an incomplete line.
    buffer: Vec<u8>,
}

impl LogReader {
    /// Starts with the last `tail` lines; with `follow` the stream does not end.
    ///
    /// # Errors
    /// When the app does not exist, the controller refuses, or it cannot be reached.
    pub(super) async fn open(
        client: Client,
        app: &AppName,
        follow: bool,
        tail: u32,
    ) -> Result<Self, CliError> {
        let response = client.logs(app, follow, tail).await?;
        Ok(Self {
            client,
            app: app.clone(),
            follow,
            shown: ShownLines::default(),
            response: Some(response),
            buffer: Vec::new(),
        })
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// When a retry cannot help: the app was deleted, the token has expired, or the stream is malformed.
    pub(super) async fn next(&mut self) -> Result<StreamEvent, CliError> {
        let mut response = match self.response.take() {
            Some(response) => response,
            None => {
                self.shown.reconnected();
                self.buffer.clear();
                reconnect(&self.client, &self.app).await?
            }
        };
        match response
            .chunk()
            .await
            .map_err(|e| client::connection_error(&e))
        {
            Ok(Some(chunk)) => {
                let lines = self.take(&chunk, response.url().path())?;
                self.response = Some(response);
                Ok(StreamEvent::Lines(lines))
            }
            Ok(None) if !self.follow => Ok(StreamEvent::Ended),
            Err(error) if !self.follow => Err(error),
            Ok(None) | Err(CliError::Timeout(_)) => Ok(StreamEvent::Lines(Vec::new())),
            Err(CliError::Unreachable { reason, .. }) => Ok(StreamEvent::Disconnected(reason)),
            Err(error) => Err(error),
        }
    }

    /// The new lines that are completed by a piece of the stream.
    fn take(&mut self, chunk: &[u8], url: &str) -> Result<Vec<Line>, CliError> {
        self.buffer.extend_from_slice(chunk);
        let (mut lines, mut rest) = (Vec::new(), 0);
        while let Some(end) = self.buffer[rest..].iter().position(|b| *b == b'\n') {
            let text = &self.buffer[rest..rest + end];
            rest += end + 1;
            // Empty lines keep the connection alive.
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line: LogLine = serde_json::from_slice(text).map_err(|e| CliError::Answer {
                url: "the log stream".to_owned(),
                reason: e.to_string(),
            })?;
            if self.shown.is_new(&line) {
                let text = String::from_utf8_lossy(text).into_owned();
                lines.push(Line { line, text });
            }
        }
        self.buffer.drain(..rest);
        if self.buffer.len() > LINE_MAX {
            return Err(CliError::Answer {
                url: url.to_owned(),
                reason: format!("a line is longer than {LINE_MAX} bytes"),
            });
        }
        Ok(lines)
    }
}

/// Reconnects until the controller answers; gives up only if a retry cannot help (the app was deleted, the token has expired).
async fn reconnect(client: &Client, app: &AppName) -> Result<Response, CliError> {
    let mut pause = PAUSE_FIRST;
    loop {
        tokio::time::sleep(pause).await;
        match client.logs(app, true, CATCH_UP).await {
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

/// A line in text form: `12:00:00.000 eu-west-1 v2 hello`, errors in red, messages of the node itself in yellow.
#[must_use]
pub fn format_line(line: &LogLine, console: &Console) -> String {
    let node = console.paint(color_of(&line.node), line.node.as_str());
    let text = printable(&line.text);
    let text = match line.stream {
        LogStream::Stdout => text,
        LogStream::Stderr => console.paint("31", &text),
        LogStream::System => console.paint("33", &format!("[{text}]")),
    };
    format!(
        "{} {node} {} {text}\n",
        console.paint("2", &time(line.at)),
        line.version
    )
}

/// The colour of a node: one of six, always the same for a node.
fn color_of(node: &NodeId) -> &'static str {
    const COLORS: [&str; 6] = ["32", "34", "35", "36", "92", "94"];
    let sum: usize = node.as_str().bytes().map(usize::from).sum();
    COLORS[sum % COLORS.len()]
}

/// Which lines were already shown.
#[derive(Debug, Default)]
struct ShownLines {
    /// The time of the first line shown of any node.
    floor: Option<Timestamp>,
    nodes: BTreeMap<NodeId, LastMillisecond>,
    catching_up: bool,
}

/// The last millisecond of a node with shown lines.
#[derive(Debug, Default)]
struct LastMillisecond {
    at: Timestamp,
    lines: Vec<LogLine>,
    /// The lines of that millisecond that have not arrived again since the reconnect.
    again: Vec<LogLine>,
}

impl ShownLines {
    fn reconnected(&mut self) {
        self.catching_up = true;
        // Nothing was shown, so nothing is old.
        self.floor.get_or_insert(Timestamp(0));
        for last in self.nodes.values_mut() {
            last.again.clone_from(&last.lines);
        }
    }

    fn is_new(&mut self, line: &LogLine) -> bool {
        let floor = *self.floor.get_or_insert(line.at);
        let known = self.nodes.contains_key(&line.node);
        if !self.catching_up {
            self.floor = Some(floor.min(line.at));
        } else if !known && line.at < floor {
            return false;
        }
        let last = self.nodes.entry(line.node.clone()).or_default();
        if self.catching_up && known {
            if line.at < last.at {
                return false;
            }
            if line.at == last.at
                && let Some(place) = last.again.iter().position(|old| old == line)
            {
                last.again.swap_remove(place);
                return false;
            }
        }
        if line.at > last.at {
            last.at = line.at;
            last.lines.clear();
        }
        if line.at == last.at {
            last.lines.push(line.clone());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn line(node: &str, at: u64, text: &str) -> LogLine {
        LogLine {
            at: Timestamp(at),
            app: "a".parse().expect("app"),
            function: "a".parse().expect("function"),
            version: fdn_core::VersionNumber::FIRST,
            node: node.parse().expect("node"),
            instance: fdn_core::InstanceId::from_uuid(Uuid::from_u128(1)),
            request: "r".into(),
            stage: None,
            stream: LogStream::Stdout,
            text: text.into(),
        }
    }

    fn shown(seen: &mut ShownLines, lines: &[LogLine]) -> Vec<String> {
        lines
            .iter()
            .filter(|l| seen.is_new(l))
            .map(|l| format!("{}:{}", l.node, l.text))
            .collect()
    }

    #[test]
    fn after_a_loss_no_line_comes_twice_and_none_is_left_out() {
        let mut seen = ShownLines::default();
        let first = [
            line("a", 5, "1"),
            line("b", 5, "x"),
            line("a", 6, "2"),
            line("a", 6, "2"),
        ];
        assert_eq!(
            shown(&mut seen, &first),
            ["a:1", "b:x", "a:2", "a:2"],
            "two equal lines are two lines"
        );
        seen.reconnected();
        let again = [
            line("a", 1, "before the tail"),
            line("a", 5, "1"),
            line("b", 5, "x"),
            line("c", 4, "old line of a node not heard of"),
            line("a", 6, "2"),
            line("a", 6, "2"),
            line("a", 6, "2"),
            line("c", 6, "new"),
            line("b", 7, "y"),
        ];
        assert_eq!(
            shown(&mut seen, &again),
            ["a:2", "c:new", "b:y"],
            "the third equal line is new"
        );
        seen.reconnected();
        assert_eq!(shown(&mut seen, &again), [] as [&str; 0]);
        assert_eq!(shown(&mut seen, &[line("a", 7, "3")]), ["a:3"]);
    }

    #[test]
    fn an_empty_log_before_the_loss_hides_nothing() {
        let mut seen = ShownLines::default();
        seen.reconnected();
        assert_eq!(
            shown(&mut seen, &[line("a", 5, "1"), line("b", 4, "2")]),
            ["a:1", "b:2"]
        );
    }
}
