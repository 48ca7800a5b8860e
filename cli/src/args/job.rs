//! `fdn job` and `fdn schedule`: asynchronous runs of apps.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use fdn_core::job::{CronExpression, JobPriority, JobState};
use fdn_core::{AppName, DurationMs, JobId, ScheduleName};

use super::{ConnectArgs, OutputArgs};

/// Arguments of `fdn job`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct JobArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: JobCommand,
}

/// What to do with jobs.
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// Have an app called later, as soon as there is room; the answer is kept
    Submit(Box<SubmitJobArgs>),
    /// Show where a job stands, or wait for its end
    Status(JobStatusArgs),
    /// Write what the app answered to standard output or a file
    Result(JobResultArgs),
    /// End a job that has not ended
    Cancel(OneJobArgs),
    /// Show what the app's functions wrote while they ran a job
    Logs(JobLogsArgs),
    /// List jobs, newest first
    List(ListJobArgs),
    /// Run a job that ended without success again, or all dead letters of an app
    Redrive(RedriveArgs),
}

/// Arguments of `fdn job submit`.
#[derive(Debug, Args)]
pub struct SubmitJobArgs {
    /// The app
    pub app: AppName,
    /// Path and query that it is called with
    #[arg(default_value = "/")]
    pub path: String,
    /// The input: text, @FILE, or - for standard input
    #[arg(long, short, value_name = "DATA", allow_hyphen_values = true)]
    pub data: Option<String>,
    /// The input's media type
    #[arg(long, value_name = "TYPE", default_value = "application/octet-stream")]
    pub content_type: String,
    /// How urgent it is among the tenant's jobs, from 0 to 9
    #[arg(long, value_name = "N", default_value_t)]
    pub priority: JobPriority,
    /// Drop it if it has not begun after this long
    #[arg(long, value_name = "DURATION")]
    pub max_age: Option<DurationMs>,
    /// It must have ended after this long
    #[arg(long, value_name = "DURATION")]
    pub deadline: Option<DurationMs>,
    /// Tell this address of its end, in a signed request
    #[arg(long, value_name = "URL", value_hint = ValueHint::Url)]
    pub webhook: Option<String>,
    /// The same again with the same key is the same job
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of the commands that are about one job.
#[derive(Debug, Args)]
pub struct OneJobArgs {
    /// The job
    pub job: JobId,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn job status`.
#[derive(Debug, Args)]
pub struct JobStatusArgs {
    /// The job
    pub job: JobId,
    /// Wait until it has ended
    #[arg(long, short)]
    pub wait: bool,
    /// How long to wait
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    pub timeout: DurationMs,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn job result`.
#[derive(Debug, Args)]
pub struct JobResultArgs {
    /// The job
    pub job: JobId,
    /// Write to this file instead of standard output
    #[arg(long = "output", short = 'o', value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn job logs`.
#[derive(Debug, Args)]
pub struct JobLogsArgs {
    /// The job
    pub job: JobId,
    /// Search this many of the app's last lines on each node
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub tail: u32,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn job list`.
#[derive(Debug, Args)]
pub struct ListJobArgs {
    /// Only those of this app
    pub app: Option<AppName>,
    /// Only those in this state; dead letters, whose every attempt failed, are `dead`
    #[arg(long, value_name = "STATE")]
    pub state: Option<JobState>,
    /// The most jobs to show
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of the lists of one app or of all.
#[derive(Debug, Args)]
pub struct SomeAppArgs {
    /// Only those of this app
    pub app: Option<AppName>,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn job redrive`.
#[derive(Debug, Args)]
pub struct RedriveArgs {
    /// A job, or an app with --all
    #[arg(value_name = "JOB|APP")]
    pub what: String,
    /// All dead letters of the app
    #[arg(long)]
    pub all: bool,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn schedule`.
#[derive(Debug, Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct ScheduleArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ScheduleCommand,
}

/// What to do with schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// Submit a job of an app again and again, at moments that a cron expression names
    Set(SetScheduleArgs),
    /// List schedules
    List(SomeAppArgs),
    /// Take a schedule away; jobs that it submitted stay
    Remove(RemoveScheduleArgs),
}

/// Arguments of `fdn schedule set`.
#[derive(Debug, Args)]
pub struct SetScheduleArgs {
    /// The app
    pub app: AppName,
    /// The schedule's name in the app
    pub name: ScheduleName,
    /// Minute, hour, day, month and weekday in UTC, such as "*/5 * * * *"
    #[arg(value_name = "CRON")]
    pub cron: CronExpression,
    /// The input: text, @FILE, or - for standard input
    #[arg(long, short, value_name = "DATA", allow_hyphen_values = true)]
    pub data: Option<String>,
    /// The input's media type
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Path and query that the app is called with
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// How urgent its jobs are among the tenant's, from 0 to 9
    #[arg(long, value_name = "N", default_value_t)]
    pub priority: JobPriority,
    /// Drop a job that has not begun after this long
    #[arg(long, value_name = "DURATION")]
    pub max_age: Option<DurationMs>,
    /// Submit nothing for now
    #[arg(long)]
    pub paused: bool,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn schedule remove`.
#[derive(Debug, Args)]
pub struct RemoveScheduleArgs {
    /// The app
    pub app: AppName,
    /// The schedule's name in the app
    pub name: ScheduleName,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
