//! The command line: every command, its arguments and their help.

mod account;
mod apply;
mod apps;
mod billing;
mod calls;
mod dns;
mod events;
mod fleet;
mod function;
mod job;
mod plan;
mod policy;
mod repository;
mod rollout;
mod shared;
mod tools;
mod top;
mod traffic;
mod workflow;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use fdn_core::account::TenantRef;
use fdn_core::label::Label;
use fdn_core::{AppName, ClientPrefix, DurationMs, ParseError, VersionNumber};

use crate::console::ColorChoice;
use crate::exit::TABLE as EXIT_CODES;
pub use crate::up::args::UpArgs;
pub use account::{
    ApiTokenArgs, ApiTokenCommand, AuditArgs, CreateApiTokenArgs, CreateTenantArgs, CreateUserArgs,
    InviteUserArgs, ListArgs, MemberArgs, MemberCommand, OneTenantArgs, OneUserArgs, PasswordArgs,
    PutMemberArgs, RemoveMemberArgs, RenameTenantArgs, RevokeApiTokenArgs, RoleArg, TenantArgs,
    TenantCommand, UserArgs, UserCommand, UserRoleArgs,
};
pub use apply::ApplyArgs;
pub use apps::{
    EnvArgs, EnvCommand, OneSecretArgs, SecretArgs, SecretCommand, SetEnvArgs, SetSecretArgs,
    UnsetEnvArgs,
};
pub use billing::{
    ApplyPriceArgs, BillArgs, BillOutput, BudgetArgs, BudgetCommand, ListBudgetArgs, PriceArgs,
    PriceCommand, RemoveBudgetArgs, RemovePriceArgs, SetBudgetArgs,
};
pub use calls::{CallsArgs, TraceArgs};
pub use dns::{
    AddTxtArgs, DnsArgs, DnsCommand, DnsDsArgs, DnsDumpArgs, DnsLookupArgs, DnsRemoveArgs,
    DnsServersArgs, DnsTtlArgs, KindArg, ListTxtArgs, RemoveTxtArgs, SetTxtArgs, TtlArg, TxtArgs,
    TxtCommand,
};
pub use events::EventsArgs;
pub use fleet::{
    ClusterArgs, ClusterCommand, CreateClusterArgs, DescribeClusterArgs, DrainArgs, NodeArgs,
    NodeCommand, OneNodeArgs, RemoveNodeArgs, RestoreArgs, TokenArgs,
};
pub use function::{DevArgs, Language, NewArgs, OpenArgs, TestArgs};
pub use job::{
    JobArgs, JobCommand, JobLogsArgs, JobResultArgs, JobStatusArgs, ListJobArgs, OneJobArgs,
    RedriveArgs, RemoveScheduleArgs, ScheduleArgs, ScheduleCommand, SetScheduleArgs, SomeAppArgs,
    SubmitJobArgs,
};
pub use plan::PlanArgs;
pub use policy::{
    CreateKeyArgs, KeyArgs, KeyCommand, OneAppArgs, PolicyArgs, PolicyCommand, RevokeKeyArgs,
    SetPolicyArgs,
};
pub use repository::{
    AddSigningKeyArgs, CatalogueArgs, CatalogueCommand, DeleteTenantArgs, DeleteUserArgs,
    DeployCatalogueArgs, LabelArgs, LabelChange, PolicyArg, RemoveSigningKeyArgs,
    SignaturePolicyArgs, SigningKeyArgs, SigningKeyCommand, TenantLimitArgs,
};
pub use rollout::{
    DomainArgs, DomainCommand, ObjectiveArgs, ObjectiveCommand, OneDomainArgs, RemoveDomainArgs,
    SetObjectiveArgs,
};
pub use shared::{ConnectArgs, OutputArgs, WaitArgs};
pub use tools::{CompletionsArgs, DoctorArgs, Shell, SimArgs, VersionArgs};
pub use top::{SortBy, TopArgs};
pub use traffic::{SetTrafficArgs, StickyBy, TrafficArgs, TrafficCommand};
pub use workflow::{
    WorkflowArgs, WorkflowCommand, WorkflowDeployArgs, WorkflowFileArgs, WorkflowShowArgs,
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const AFTER_HELP: &str = "\
Configuration:
  $XDG_CONFIG_HOME/fdn/config.toml (or ~/.config/fdn/config.toml) names the networks (\"contexts\")
  that fdn up and fdn login wrote; tokens lie beside it in files that only you can read.
  FDN_CONTROLLER   URL of the controller, instead of the current context's
  FDN_CONTEXT      name of the context, instead of the current one
  FDN_TOKEN_FILE   file holding the token, instead of the context's
  FDN_CA_FILE      file with the authorities of https controllers, instead of the context's
  NO_COLOR         no colours
";

/// Deploy functions to the edge, call them, watch them; `fdn up` runs a whole network on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "fdn",
    version,
    long_version = crate::commands::version::LONG.as_str(),
    styles = STYLES,
    max_term_width = 110,
    after_help = format!("{AFTER_HELP}\n{EXIT_CODES}"),
    disable_help_subcommand = false,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// When to use colours: auto (on a terminal), always or never
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        hide_possible_values = true,
        display_order = 900
    )]
    pub color: ColorChoice,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a whole network in this process: controller, DNS and the nodes of several regions
    Up(Box<UpArgs>),
    /// Log in to a controller and make it the current one
    Login(LoginArgs),
    /// Upload a component or an image as the next version of an app and make it current
    Deploy(DeployArgs),
    /// Make a tenant what files say: apps, policies, traffic, budgets, members
    Apply(ApplyArgs),
    /// List the apps
    List(ListArgs),
    /// Show everything about an app: versions, nodes, where clients are sent
    Describe(DescribeArgs),
    /// Call an app the way its users do: through the network's DNS and a gateway
    Invoke(Box<InvokeArgs>),
    /// Look for single calls of an app, on the nodes that they came to
    Calls(CallsArgs),
    /// Show one call as a whole: where it ran, by which plan and revision, and why there
    Trace(TraceArgs),
    /// Show what an app's functions wrote, on all nodes
    Logs(LogsArgs),
    /// Make an earlier version of an app current
    Rollback(RollbackArgs),
    /// Delete apps with all their versions
    Delete(DeleteArgs),
    /// Show why a client's calls go to one cluster and not to another
    Explain(ExplainArgs),
    /// Show what DNS answers a client and why, and where an app's clients are sent
    Dns(DnsArgs),
    /// Show where clients would be sent, how long calls would take and what they would cost, before anything is deployed
    Plan(PlanArgs),
    /// Judge, deploy and show workflows: apps of several stages
    Workflow(WorkflowArgs),
    /// Submit, watch, cancel and redrive jobs: asynchronous runs of an app
    Job(JobArgs),
    /// Submit jobs of an app again and again
    Schedule(ScheduleArgs),
    /// Say who may call an app, how often and from where
    Policy(PolicyArgs),
    /// Make, list and take back keys of an app's callers
    Key(KeyArgs),
    /// Split an app's calls between versions
    Traffic(TrafficArgs),
    /// Say what new versions of an app must keep to; one that does not is taken back
    Objective(ObjectiveArgs),
    /// Ask for, verify, list and let go host names of an app beside its own
    Domain(DomainArgs),
    /// Set, list and remove secrets of an app
    Secret(SecretArgs),
    /// Set, take away and show variables of an app
    Env(EnvArgs),
    /// Show and change labels of an app and its versions
    Label(LabelArgs),
    /// Say whose signatures uploads of a tenant need
    SigningKey(SigningKeyArgs),
    /// List and deploy ready functions
    Catalogue(CatalogueArgs),
    /// Make, list and describe clusters
    Cluster(ClusterArgs),
    /// Let machines in, see, drain and remove them
    Node(NodeArgs),
    /// Show what a month costs: its statement, or usage by function, region or day
    Bill(BillArgs),
    /// List, apply and remove price lists
    Price(PriceArgs),
    /// Set, list and remove budgets, see the alerts they gave
    Budget(BudgetArgs),
    /// Make, see, rename and suspend tenants
    Tenant(TenantArgs),
    /// See and change who may do what in a tenant
    Member(MemberArgs),
    /// Make, invite and disable users, set passwords
    User(UserArgs),
    /// Make, list and take back API tokens for tools
    Token(ApiTokenArgs),
    /// Show who changed what
    Audit(AuditArgs),
    /// Show what happens: deploys, plans, policies, nodes that come and go
    Events(EventsArgs),
    /// Watch clusters, nodes and apps: calls, times, errors, what is taken
    Top(TopArgs),
    /// Make the folder of a new function
    New(NewArgs),
    /// Build and deploy a function whenever its folder changes, and show what it writes
    Dev(DevArgs),
    /// Call a function with the cases beside it, on this machine or where it is deployed
    Test(TestArgs),
    /// Open an app or the console in a browser
    Open(OpenArgs),
    /// Check this installation and the network it uses
    Doctor(DoctorArgs),
    /// Simulate the schedulers on files of your own, or repeat every experiment
    Sim(SimArgs),
    /// Print the versions of client and controller
    Version(VersionArgs),
    /// Print a shell's completion script
    Completions(CompletionsArgs),
}

/// Arguments of `fdn login`.
#[derive(Debug, Args)]
pub struct LoginArgs {
    /// The controller's URL; without it, the one of --context or of the current context
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub url: Option<String>,
    /// Who logs in
    #[arg(long, short, value_name = "NAME", default_value = "admin")]
    pub user: String,
    /// File holding the password; without it, it is asked for, or read from standard input if that is no terminal
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,
    /// File holding an invitation, as `fdn user invite` printed it: the password that is given becomes that of the user who was invited
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "user")]
    pub invitation_file: Option<PathBuf>,
    /// The name to save this network under; made from the URL if not given
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// Check an https controller against the authorities in this file (PEM), in place of the web's, and save that [env: FDN_CA_FILE]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,
    /// Check it against the web's authorities, and forget the file that was saved
    #[arg(long, conflicts_with = "ca_file")]
    pub no_ca_file: bool,
}

/// Arguments of `fdn deploy`.
#[derive(Debug, Args)]
pub struct DeployArgs {
    /// The app's name: it will be called as NAME.ZONE
    pub name: AppName,
    /// A .wasm component, an image that `docker save` wrote, or one's REGISTRY/PATH@sha256:DIGEST
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The manifest; without it, fdn.toml beside FILE if there is one
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub manifest: Option<PathBuf>,
    /// A secret of the manifest and the file its value is in (- for standard input); may be given several times
    #[arg(long = "secret", value_name = "NAME=FILE", value_parser = parse_secret)]
    pub secrets: Vec<SecretArg>,
    /// A label of the new version; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<Label>,
    /// File holding a signature over FILE in base64, as `cosign sign-blob --key` makes it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub signature: Option<PathBuf>,
    /// File holding the payload that was signed, for an image in a registry (`cosign generate`)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "signature")]
    pub signature_payload: Option<PathBuf>,
    /// The artifact of another form of the manifest (`[[forms]]`), as FILE is that of the first; may be given several times
    #[arg(long = "form", value_name = "NAME=FILE", value_parser = parse_form)]
    pub forms: Vec<FormArg>,
    /// File holding a signature over the artifact of another form, as --signature
    #[arg(long = "form-signature", value_name = "NAME=FILE", value_parser = parse_form)]
    pub form_signatures: Vec<FormArg>,
    /// File holding the payload that was signed, of another form that is an image in a registry
    #[arg(long = "form-signature-payload", value_name = "NAME=FILE", value_parser = parse_form)]
    pub form_signature_payloads: Vec<FormArg>,
    /// The tenant of a new app (its name or id); without it, the only one that you are a member of
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// A `--secret NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretArg {
    /// The name.
    pub name: fdn_core::SecretName,
    /// Where the value is; `-` is standard input.
    pub file: PathBuf,
}

fn parse_secret(text: &str) -> Result<SecretArg, ParseError> {
    let error = || {
        ParseError::new(
            "secret",
            text.split('=').next().unwrap_or_default(),
            "NAME=FILE; values are read from files",
        )
    };
    let (name, file) = text
        .split_once('=')
        .filter(|(_, file)| !file.is_empty())
        .ok_or_else(error)?;
    Ok(SecretArg {
        name: name.parse()?,
        file: file.into(),
    })
}

/// What is given for a form of a function: a `--form NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormArg {
    /// The form.
    pub name: fdn_core::FormName,
    /// The file, or the name of an image.
    pub file: PathBuf,
}

fn parse_form(text: &str) -> Result<FormArg, ParseError> {
    let error = || ParseError::new("form", text, "NAME=FILE");
    let (name, file) = text
        .split_once('=')
        .filter(|(_, file)| !file.is_empty())
        .ok_or_else(error)?;
    Ok(FormArg {
        name: name.parse()?,
        file: file.into(),
    })
}

/// Arguments of the commands that list something.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn describe`.
#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// The app
    pub name: AppName,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn invoke`.
#[derive(Debug, Args)]
pub struct InvokeArgs {
    /// The app
    pub app: AppName,
    /// Path and query
    #[arg(default_value = "/")]
    pub path: String,
    /// The body: text, @FILE, or - for standard input
    #[arg(long, short, value_name = "DATA", allow_hyphen_values = true)]
    pub data: Option<String>,
    /// The method; GET, or POST if there is a body
    #[arg(long = "request", short = 'X', value_name = "METHOD")]
    pub method: Option<String>,
    /// A header to send; may be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Resolve as a client of this network would, such as 203.0.113.0/24
    #[arg(long, value_name = "PREFIX")]
    pub client_subnet: Option<ClientPrefix>,
    /// Print status and headers of the answer before its body
    #[arg(long, short)]
    pub include: bool,
    /// Write the body to this file instead of standard output
    #[arg(long = "output", short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Do not tell cluster, node and timings on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// How long the whole call may take
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub timeout: DurationMs,
    /// The DNS server to ask instead of the context's
    #[arg(long, value_name = "ADDR", help_heading = "Network")]
    pub dns: Option<SocketAddr>,
    /// The zone instead of the context's
    #[arg(long, value_name = "ZONE", help_heading = "Network")]
    pub zone: Option<fdn_core::HostName>,
    /// The gateways' port instead of the context's
    #[arg(long, value_name = "PORT", help_heading = "Network")]
    pub gateway_port: Option<u16>,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// How log lines are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogOutput {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Arguments of `fdn logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The app
    pub name: AppName,
    /// Go on with lines as they are written
    #[arg(long, short)]
    pub follow: bool,
    /// Begin with this many lines of the past
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub tail: u32,
    /// How to print the lines
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: LogOutput,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// The app
    pub name: AppName,
    /// The version to go back to; without it, the one before the current
    #[arg(value_parser = parse_version)]
    pub version: Option<VersionNumber>,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

fn parse_version(text: &str) -> Result<VersionNumber, ParseError> {
    let digits = text.strip_prefix('v').unwrap_or(text);
    let error = || ParseError::new("version number", text, "a whole number from 1 up");
    digits
        .parse::<u32>()
        .map_err(|_| error())
        .and_then(VersionNumber::try_from)
}

/// Arguments of `fdn delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The apps
    #[arg(required = true)]
    pub names: Vec<AppName>,
    /// Only this version of it, which must not be in use
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    pub only: Option<VersionNumber>,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub wait: WaitArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Arguments of `fdn explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The app
    pub app: AppName,
    /// The client's address or prefix
    #[arg(long, value_name = "ADDR")]
    pub client: ClientPrefix,
    /// How to print the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_secret_is_a_name_and_a_file() {
        let secret = parse_secret("KEY=path/with=sign").expect("secret");
        assert_eq!(
            (secret.name.as_str(), secret.file.as_path()),
            ("KEY", "path/with=sign".as_ref())
        );
        let error = parse_secret("KEY").expect_err("no file").to_string();
        assert!(error.contains("NAME=FILE"), "{error}");
        assert!(parse_secret("1KEY=x").is_err());
    }

    #[test]
    fn the_value_of_a_misused_secret_is_not_repeated() {
        let error = parse_secret("KEY=").expect_err("no file").to_string();
        assert!(!error.contains("KEY="), "{error}");
    }

    #[test]
    fn waiting_is_the_default_and_the_last_flag_counts() {
        let parse = |flags: &[&str]| {
            let all = ["fdn", "rollback", "a"].iter().chain(flags);
            match Cli::try_parse_from(all).expect("valid").command {
                Command::Rollback(args) => args.wait.waits(),
                _ => panic!("another command"),
            }
        };
        assert!(parse(&[]) && parse(&["--wait"]) && parse(&["--no-wait", "--wait"]));
        assert!(!parse(&["--no-wait"]));
    }

    #[test]
    fn versions_may_have_a_v() {
        assert_eq!(parse_version("v3").expect("version").get(), 3);
        assert!(parse_version("0").is_err());
        assert!(parse_version("latest").is_err());
    }
}
