//! `fdn job` and `fdn schedule`.

use std::io::Read as _;
use std::time::Duration;

use fdn_core::job::{JobAttempt, JobInfo, JobReceipt, JobState, PutSchedule, ScheduleInfo};
use fdn_core::{AppName, DurationMs, ErrorCode, JobId, Timestamp};
use tokio::time::Instant;

use super::client;
use crate::args::{
    JobCommand, JobLogsArgs, JobResultArgs, JobStatusArgs, ListJobArgs, OneJobArgs, RedriveArgs,
    RemoveScheduleArgs, ScheduleCommand, SetScheduleArgs, SomeAppArgs, SubmitJobArgs,
};
use crate::client::collect;
use crate::console::Console;
use crate::environment::Environment;
use crate::error::CliError;
use crate::output::{Format, Listing, Row, age, printable, size, time};

/// The longest pause between two polls while waiting for a job.
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// The largest input in bytes.
const INPUT_MAX: u64 = 1 << 30;

/// Runs `fdn job`.
///
/// # Errors
/// When the controller refuses or cannot be reached, or a job that was waited for did not succeed.
pub async fn run(
    command: &JobCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        JobCommand::Submit(args) => submit(args, env, console).await,
        JobCommand::Status(args) => status(args, env, console).await,
        JobCommand::Result(args) => result(args, env, console).await,
        JobCommand::Cancel(args) => cancel(args, env, console).await,
        JobCommand::Logs(args) => logs(args, env, console).await,
        JobCommand::List(args) => list(args, env, console).await,
        JobCommand::Redrive(args) => redrive(args, env, console).await,
    }
}

/// Runs `fdn schedule`.
///
/// # Errors
/// When the controller refuses or cannot be reached.
pub async fn schedules(
    command: &ScheduleCommand,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    match command {
        ScheduleCommand::Set(args) => set(args, env, console).await,
        ScheduleCommand::List(args) => list_schedules(args, env, console).await,
        ScheduleCommand::Remove(args) => remove(args, env, console).await,
    }
}

/// The input given by `--data`: a text, `@FILE`, or `-` for standard input.
fn input(data: Option<&str>) -> Result<Vec<u8>, CliError> {
    match data {
        None => Ok(Vec::new()),
        Some("-") => {
            let mut all = Vec::new();
            std::io::stdin()
                .lock()
                .take(INPUT_MAX)
                .read_to_end(&mut all)?;
            Ok(all)
        }
        Some(text) => match text.strip_prefix('@') {
            Some(path) => std::fs::read(path).map_err(|e| CliError::File {
                path: path.into(),
                reason: e.to_string(),
                code: ErrorCode::InputInvalid,
            }),
            None => Ok(text.as_bytes().to_vec()),
        },
    }
}

async fn submit(
    args: &SubmitJobArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let mut query = vec![
        ("priority", args.priority.to_string()),
        ("target", args.path.clone()),
    ];
    query.extend(args.max_age.map(|age| ("max_age", age.to_string())));
    query.extend(args.deadline.map(|end| ("deadline", end.to_string())));
    query.extend(args.webhook.clone().map(|url| ("webhook", url)));
    let input = input(args.data.as_deref())?;
    let client = client(&args.connect, env)?;
    let with = (args.key.as_deref(), args.content_type.as_str());
    let receipt = client.submit_job(&args.app, &query, with, input).await?;
    if let Some(secret) = receipt.webhook_secret.as_ref()
        && args.output.output == Format::Table
    {
        console.note(&format!("what the webhook gets is signed with {secret}"));
    }
    rows(
        args.output.output,
        &[receipt],
        "nothing was submitted",
        console,
    )
}

fn rows<T: Row + serde::Serialize>(
    format: Format,
    rows: &[T],
    nothing: &'static str,
    console: &mut Console,
) -> Result<(), CliError> {
    let now = fdn_service::now();
    console.report(format, &Listing { rows, nothing, now })
}

fn one(format: Format, job: JobInfo, console: &mut Console) -> Result<(), CliError> {
    if let Some(reason) = &job.reason
        && format == Format::Table
    {
        console.note(&printable(reason));
    }
    rows(format, &[job], "no job", console)
}

async fn status(
    args: &JobStatusArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let deadline = Instant::now() + args.timeout.as_duration();
    let mut pause = Duration::from_millis(100);
    let job = loop {
        let job = client.job(args.job).await?;
        if !args.wait || job.state.is_final() {
            break job;
        }
        if Instant::now() + pause > deadline {
            return Err(CliError::Timeout(format!(
                "job {} is still {} after {}",
                args.job, job.state, args.timeout
            )));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_LOOK);
    };
    let (id, state) = (job.id, job.state);
    let (format, history) = (args.output.output, job.history.clone());
    one(format, job, console)?;
    // The other formats contain the attempts in the job itself.
    if matches!(format, Format::Table | Format::Wide) && !history.is_empty() {
        console.line("")?;
        rows(format, &history, "it has not been tried", console)?;
    }
    if args.wait && state != JobState::Succeeded {
        return Err(CliError::JobEnded { job: id, state });
    }
    Ok(())
}

async fn result(
    args: &JobResultArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let answer = client(&args.connect, env)?.job_result(args.job).await?;
    let bytes = collect(answer).await?;
    match &args.file {
        None => console.print_bytes(&bytes),
        Some(path) => std::fs::write(path, bytes).map_err(|e| CliError::File {
            path: path.clone(),
            reason: e.to_string(),
            code: ErrorCode::InputInvalid,
        }),
    }
}

async fn cancel(
    args: &OneJobArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let job = client(&args.connect, env)?.cancel_job(args.job).await?;
    one(args.output.output, job, console)
}

async fn logs(
    args: &JobLogsArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let answer = client.job_logs(args.job, args.tail).await?;
    let bytes = collect(answer).await?;
    for line in bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let line: fdn_core::api::LogLine =
            serde_json::from_slice(line).map_err(|e| CliError::Answer {
                url: client.place(),
                reason: e.to_string(),
            })?;
        // Written by other people's code: it must not steer the terminal.
        let text = printable(&line.text);
        console.line(&format!("{} {} {text}", time(line.at), line.node))?;
    }
    Ok(())
}

async fn list(
    args: &ListJobArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    let jobs = client
        .jobs(args.app.as_ref(), args.state, args.limit)
        .await?;
    let nothing = "no jobs; submit one with: fdn job submit APP";
    rows(args.output.output, &jobs, nothing, console)
}

async fn redrive(
    args: &RedriveArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let client = client(&args.connect, env)?;
    if !args.all {
        let job = args.what.parse::<JobId>().map_err(|_| {
            CliError::Usage(format!(
                "{:?} is no job; with --all it may be an app",
                args.what
            ))
        })?;
        let job = client.redrive_job(job).await?;
        return one(args.output.output, job, console);
    }
    let app: AppName = args
        .what
        .parse()
        .map_err(|e: fdn_core::ParseError| CliError::Usage(e.to_string()))?;
    let mut sent: u64 = 0;
    loop {
        let some = client.redrive_jobs(&app).await?;
        sent += u64::from(some.jobs);
        if !some.more {
            return console.line(&format!("sent {sent} dead letters of {app} again"));
        }
    }
}

async fn set(
    args: &SetScheduleArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let input = String::from_utf8(input(args.data.as_deref())?)
        .map_err(|_| CliError::Usage("the input of a schedule is UTF-8 text".to_owned()))?;
    let schedule = PutSchedule {
        cron: args.cron.clone(),
        input,
        content_type: args.content_type.clone(),
        target: args.path.clone(),
        priority: args.priority,
        max_age: args.max_age,
        paused: args.paused,
    };
    let client = client(&args.connect, env)?;
    let set = client
        .set_schedule(&args.app, &args.name, &schedule)
        .await?;
    rows(args.output.output, &[set], "no schedule", console)
}

async fn list_schedules(
    args: &SomeAppArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    let found = client(&args.connect, env)?
        .schedules(args.app.as_ref())
        .await?;
    let nothing = "no schedules; make one with: fdn schedule set APP NAME CRON";
    rows(args.output.output, &found, nothing, console)
}

async fn remove(
    args: &RemoveScheduleArgs,
    env: &Environment,
    console: &mut Console,
) -> Result<(), CliError> {
    client(&args.connect, env)?
        .remove_schedule(&args.app, &args.name)
        .await?;
    console.line(&format!("took schedule {} of {} away", args.name, args.app))
}

impl Row for JobReceipt {
    const COLUMNS: &'static [&'static str] = &["JOB", "APP", "STATE"];
    const NARROW: usize = 3;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        let state = self.state.to_string();
        vec![self.id.to_string(), self.app.to_string(), state]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Row for JobInfo {
    const COLUMNS: &'static [&'static str] = &[
        "JOB", "APP", "STATE", "ATTEMPTS", "CLUSTER", "AGE", "RESULT", "STATUS", "PRIORITY", "BY",
        "REASON",
    ];
    const NARROW: usize = 7;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            self.id.to_string(),
            self.app.to_string(),
            self.state.to_string(),
            self.attempts.to_string(),
            or_dash(self.cluster.as_ref().map(ToString::to_string)),
            age(self.submitted_at, now),
            or_dash(self.result_size.map(|bytes| size(bytes.as_bytes()))),
            or_dash(self.status.map(|status| status.to_string())),
            self.priority.to_string(),
            self.submitted_by.clone(),
            or_dash(self.reason.clone()),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}

impl Row for JobAttempt {
    const COLUMNS: &'static [&'static str] = &[
        "ATTEMPT", "CLUSTER", "BEGAN", "RAN", "END", "STATUS", "REASON",
    ];
    const NARROW: usize = 6;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let until = self.ended_at.unwrap_or(now);
        // The same name as in JSON.
        let end = self.end.and_then(|end| serde_json::to_value(end).ok());
        let end = end.as_ref().and_then(serde_json::Value::as_str);
        vec![
            self.number.to_string(),
            or_dash(self.cluster.as_ref().map(ToString::to_string)),
            time(self.started_at),
            DurationMs::from_millis(until.get().saturating_sub(self.started_at.get())).to_string(),
            end.unwrap_or("running").replace('_', " "),
            or_dash(self.status.map(|status| status.to_string())),
            or_dash(self.reason.clone()),
        ]
    }

    fn name(&self) -> String {
        self.number.to_string()
    }
}

impl Row for ScheduleInfo {
    const COLUMNS: &'static [&'static str] = &["NAME", "APP", "CRON", "NEXT", "LAST JOB", "BY"];
    const NARROW: usize = 5;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        vec![
            self.name.to_string(),
            self.app.to_string(),
            self.schedule.cron.to_string(),
            self.next_at.map_or_else(|| "-".to_owned(), time),
            self.last_job
                .map_or_else(|| "-".to_owned(), |job| job.to_string()),
            self.updated_by.clone(),
        ]
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}
