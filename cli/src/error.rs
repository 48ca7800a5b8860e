//! All errors of commands, with their error code, exit code and advice.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use fdn_core::job::JobState;
use fdn_core::manifest::ManifestError;
use fdn_core::{Coded, ErrorCode, JobId, ParseError, Problem};
use fdn_service::ServiceError;

use crate::exit::Exit;
use crate::output::printable;
use crate::resolver::ResolveError;

/// The page that explains every error code: hints are taken from it, so that they always agree with it.
const ERROR_PAGE: &str = include_str!("../../docs/errors.md");

/// An error of a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CliError {
    /// The arguments contradict each other or are invalid.
    #[error("{0}")]
    Usage(String),
    /// The configuration file, a variable or the token file cannot be used.
    #[error("{0}")]
    Config(String),
    /// A file of the user cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// The error code: an empty component has its own.
        code: ErrorCode,
    },
    /// There is no token for this controller.
    #[error("not logged in to {controller}")]
    NotLoggedIn {
        /// The controller's URL.
        controller: String,
    },
    /// The controller answered with a problem.
    #[error("{}", .0.detail)]
    Problem(Box<Problem>),
    /// The server that answered is not a controller of this network.
    #[error("{url} answered with {status}, and not as a controller does")]
    Foreign {
        /// The requested URL.
        url: String,
        /// The HTTP status.
        status: u16,
    },
    /// An answer could not be parsed.
    #[error("the answer of {url} cannot be read: {reason}")]
    Answer {
        /// The requested URL.
        url: String,
        /// The reason.
        reason: String,
    },
    /// There was no answer.
    #[error("{what} does not answer at {place}: {reason}")]
    Unreachable {
        /// The kind of server: "the controller", "a gateway".
        what: &'static str,
        /// Its URL or address.
        place: String,
        /// The reason.
        reason: String,
    },
    /// The server at this address is not the admin listener of a DNS server.
    #[error("no DNS server answers at the admin address {server}: {reason}")]
    NoDnsServer {
        /// The address.
        server: SocketAddr,
        /// The reason.
        reason: String,
    },
    /// An operation took too long.
    #[error("{0}")]
    Timeout(String),
    /// The host name could not be resolved.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// A call was answered with an error by the gateway or the function.
    #[error("{0}")]
    Call(String, ErrorCode),
    /// A call was answered by the function with a status of 400 or above; the answer itself was printed.
    #[error("the function answered with status {0}")]
    Status(u16),
    /// The connection ended before the answer to a call was complete.
    #[error("{0}")]
    Cut(String),
    /// A job that was waited for did not succeed; its state was already printed.
    #[error("job {job} ended without success: {state}")]
    JobEnded {
        /// The job.
        job: JobId,
        /// Its final state.
        state: JobState,
    },
    /// Checks of `fdn doctor` or `fdn test` failed; the table was already printed.
    #[error("{0}")]
    Unhealthy(String),
    /// The user declined.
    #[error("nothing was changed")]
    Declined,
    /// Declared files are not valid: one line per mistake, with file, line and path.
    #[error("{0}")]
    Declared(String),
    /// Writing to the terminal, a pipe or a file failed.
    #[error("output: {0}")]
    Output(#[from] io::Error),
    /// The manifest is not valid.
    #[error("{}: {error}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: ManifestError,
    },
    /// A name or number is not valid.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The shared service code failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A simulation could not be run.
    #[error("{}", with_causes(.0))]
    Sim(#[from] fdn_sim::Error),
    /// The folder to be created is not empty.
    #[error("{} is there already and is not empty", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The address does not belong to this machine.
    #[error("{address} is not an address of this machine, so nothing can listen there")]
    NoAddress {
        /// The address.
        address: IpAddr,
    },
    /// A part of the embedded network could not start.
    #[error("{part} could not start: {message}")]
    Start {
        /// The name of the component.
        part: &'static str,
        /// The error with its causes.
        message: String,
        /// The error code.
        code: ErrorCode,
    },
}

impl CliError {
    /// The exit code of the program.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Timeout(_) => Exit::Timeout,
            Self::Unreachable { .. } | Self::NoDnsServer { .. } => Exit::Unreachable,
            Self::Resolve(ResolveError::NoSuchName { .. } | ResolveError::NoAddress { .. }) => {
                Exit::NotFound
            }
            Self::Resolve(_) => Exit::Unreachable,
            Self::Status(_) | Self::Cut(_) => Exit::CallFailed,
            Self::Sim(fdn_sim::Error::Write { source, .. })
                if source.kind() == io::ErrorKind::BrokenPipe =>
            {
                Exit::Ok
            }
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Sim(fdn_sim::Error::Differs { .. })
            | Self::Output(_)
            | Self::Unhealthy(_)
            | Self::JobEnded { .. }
            | Self::Declined
            | Self::Foreign { .. }
            | Self::Answer { .. } => Exit::Failed,
            Self::Usage(_)
            | Self::Declared(_)
            | Self::Config(_)
            | Self::NoAddress { .. }
            | Self::Exists { .. }
            | Self::File { .. }
            | Self::NotLoggedIn { .. }
            | Self::Problem(_)
            | Self::Call(..)
            | Self::Manifest { .. }
            | Self::Parse(_)
            | Self::Service(_)
            | Self::Sim(_)
            | Self::Start { .. } => Exit::of(self.code()),
        }
    }

    /// Advice on what to do next.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Usage(_) | Self::Parse(_) | Self::Sim(fdn_sim::Error::Usage(_)) => {
                "`fdn help` and `fdn help COMMAND` show how it is written"
            }
            Self::Declared(_) => return None,
            Self::Config(_) => {
                "correct the file or variable named, or run `fdn login URL` to write a new context"
            }
            Self::File {
                code: ErrorCode::BadRequest,
                ..
            } => "check the path; the file must be readable by you",
            Self::NotLoggedIn { controller } => {
                return Some(format!(
                    "run `fdn login {controller}`, or name a file with a token in FDN_TOKEN_FILE"
                ));
            }
            Self::Exists { .. } => {
                "choose another name, or another folder with --dir; nothing was written"
            }
            Self::NoAddress { address } => {
                return Some(format!(
                    "Linux has all of 127.0.0.0/8; elsewhere give the loopback interface the address first: \
                     sudo ifconfig lo0 alias {address} up (one for each node; fewer with --nodes and --region)"
                ));
            }
            Self::Foreign { .. } | Self::Answer { .. } => {
                "check the controller's URL (`fdn doctor`), and that client and server are of one version (`fdn version`)"
            }
            Self::Unreachable {
                what: "the controller",
                ..
            } => {
                "start a network with `fdn up`, or name the right controller with `fdn login URL`, --controller or \
                 FDN_CONTROLLER; `fdn doctor` looks closer"
            }
            Self::Unreachable { .. } => {
                "`fdn cluster list` shows which gateways live; `fdn doctor` looks closer"
            }
            Self::NoDnsServer { .. } => {
                "name what `admin` says in the server's dns.toml, 127.0.0.1:8602 on its own machine unless set; DNS itself is answered elsewhere"
            }
            Self::Timeout(_) => {
                "look with `fdn describe APP` and `fdn node list`, or allow more time with --timeout"
            }
            Self::Resolve(ResolveError::NoSuchName { .. }) => "`fdn list` shows what is deployed",
            Self::Resolve(ResolveError::NoAddress { .. }) => {
                "`fdn cluster list` shows whether any cluster lives"
            }
            Self::Resolve(_) => {
                "check that the network runs and where its DNS listens (`fdn doctor`), or name it with --dns"
            }
            Self::Status(_) => "`fdn logs APP` shows what the function wrote",
            Self::Cut(_) => {
                "the function passed a limit, or its node stopped: `fdn logs APP` and `fdn node list` show which; call again"
            }
            Self::JobEnded { job, .. } => {
                return Some(format!(
                    "`fdn job logs {job}` shows what the function wrote, `fdn job redrive {job}` runs it again"
                ));
            }
            Self::Unhealthy(_) | Self::Declined | Self::Output(_) => return None,
            Self::File { .. }
            | Self::Problem(_)
            | Self::Call(..)
            | Self::Manifest { .. }
            | Self::Service(_)
            | Self::Sim(_)
            | Self::Start { .. } => return hint_of(self.code()),
        };
        Some(text.to_owned())
    }
}

impl Coded for CliError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Usage(_) => ErrorCode::BadRequest,
            Self::Declared(_) => ErrorCode::FilesInvalid,
            Self::Config(_) => ErrorCode::ConfigInvalid,
            Self::File { code, .. } | Self::Call(_, code) | Self::Start { code, .. } => *code,
            Self::NoAddress { .. } => ErrorCode::AddressTaken,
            Self::Exists { .. } => ErrorCode::Conflict,
            Self::NotLoggedIn { .. } => ErrorCode::Unauthenticated,
            Self::Problem(problem) => problem.code,
            Self::Unreachable { .. } | Self::NoDnsServer { .. } => ErrorCode::ControllerUnreachable,
            Self::Timeout(_) => ErrorCode::NotReady,
            Self::Resolve(error) => error.code(),
            Self::Status(_) | Self::Cut(_) => ErrorCode::NoResponse,
            Self::Manifest { error, .. } => error.code(),
            Self::Parse(error) => error.code(),
            Self::Service(error) => error.code(),
            Self::Sim(error) => error.code(),
            Self::Foreign { .. }
            | Self::Answer { .. }
            | Self::Unhealthy(_)
            | Self::JobEnded { .. }
            | Self::Declined
            | Self::Output(_) => ErrorCode::Internal,
        }
    }
}

/// Whether the error code is helpful to the reader: it is documented for exactly this error.
fn shows_code(error: &CliError) -> bool {
    match error {
        CliError::Usage(_)
        | CliError::NoAddress { .. }
        | CliError::Exists { .. }
        | CliError::Declined
        | CliError::Output(_)
        | CliError::Unhealthy(_)
        | CliError::JobEnded { .. }
        | CliError::Status(_)
        | CliError::Cut(_)
        | CliError::Timeout(_)
        | CliError::NoDnsServer { .. }
        | CliError::Foreign { .. }
        | CliError::Answer { .. }
        | CliError::Sim(fdn_sim::Error::Usage(_)) => false,
        CliError::Unreachable { what, .. } => *what == "the controller",
        CliError::Config(_)
        | CliError::Declared(_)
        | CliError::File { .. }
        | CliError::NotLoggedIn { .. }
        | CliError::Problem(_)
        | CliError::Resolve(_)
        | CliError::Call(..)
        | CliError::Manifest { .. }
        | CliError::Parse(_)
        | CliError::Service(_)
        | CliError::Sim(_)
        | CliError::Start { .. } => true,
    }
}

/// The text of an error, followed by those of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// The lines printed for an error: what happened, and what to do. It may quote what a function wrote, so control characters are escaped.
#[must_use]
pub fn render(error: &CliError) -> String {
    let code = if shows_code(error) {
        format!(" {}", error.code())
    } else {
        String::new()
    };
    let said: Vec<String> = error.to_string().lines().map(printable).collect();
    let mut text = format!("fdn: error{code}: {}\n", said.join("\n"));
    if let CliError::Problem(problem) = error
        && let Some(id) = &problem.request_id
    {
        text.push_str(&format!(
            "  request: {id} (the controller's log has more under this id)\n"
        ));
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("  hint: {hint}\n"));
    }
    text
}

/// The advice of the page of error codes for a code.
#[must_use]
pub fn hint_of(code: ErrorCode) -> Option<String> {
    let heading = format!("## {code}\n");
    let section = ERROR_PAGE.split_once(&heading)?.1;
    let section = section.split("\n## ").next()?;
    // The first paragraph explains the code, the rest gives advice.
    let advice = section.trim().split_once("\n\n")?.1;
    Some(advice.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_hint() {
        for code in ErrorCode::ALL {
            let hint = hint_of(*code).unwrap_or_default();
            assert!(hint.len() > 20, "{code}: {hint:?}");
            assert!(!hint.contains('#'), "{code}: {hint:?}");
        }
    }

    #[test]
    fn an_error_says_code_reason_request_and_remedy() {
        let problem = Problem::new(ErrorCode::UploadCoreModule, "x.wasm is a core module")
            .with_request_id("r-1");
        let error = CliError::Problem(Box::new(problem));
        let text = render(&error);
        assert!(
            text.starts_with("fdn: error FDN-1003: x.wasm is a core module\n"),
            "{text}"
        );
        assert!(text.contains("request: r-1"), "{text}");
        assert!(text.contains("wasm-tools component new"), "{text}");
        assert_eq!(error.exit(), Exit::Usage);
    }

    #[test]
    fn what_a_function_wrote_cannot_control_the_terminal() {
        let said = "its last output:\n\u{1b}[2Jone\n\ttwo";
        let problem = Problem::new(ErrorCode::UploadProbeFailed, said);
        let text = render(&CliError::Problem(Box::new(problem)));
        assert!(
            text.contains(": its last output:\n\\u{1b}[2Jone\n\ttwo\n"),
            "{text:?}"
        );
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let error = CliError::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(error.exit(), Exit::Ok);
    }
}
