//! The properties that every error of the network has: a stable code, who must act, and whether a retry can help.
//!
//! Each crate has its own `Error` enum; all of them implement [`Coded`]. Only `controller/src/http/error.rs` and the gateway
//! turn a code into an HTTP status; both send an RFC 9457 [`Problem`].

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Who caused an error, and thus must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The caller sent something that will never work as it is.
    Caller,
    /// A function's own code misbehaved.
    Function,
    /// Something we depend on (database, broker, object store, network) failed.
    Dependency,
    /// We have a bug.
    Internal,
}

/// Whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// No: change the request first.
    Never,
    /// Yes, after a pause.
    Later,
}

/// An error with a code, which implies who must act and whether a retry can help.
pub trait Coded: std::error::Error {
    /// The stable code.
    fn code(&self) -> ErrorCode;

    /// Who must act.
    fn fault(&self) -> Fault {
        self.code().fault()
    }

    /// Whether the same request may succeed later.
    fn retry(&self) -> Retry {
        self.code().retry()
    }
}

macro_rules! codes {
    ($($variant:ident, $code:literal, $fault:ident, $retry:ident, $status:literal, $title:literal;)*) => {
        /// Every error code of the network. A code keeps its meaning for ever; `docs/errors.md` has a paragraph for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        #[non_exhaustive]
        pub enum ErrorCode {
            $(#[doc = $title] $variant,)*
        }

        impl ErrorCode {
            /// All codes, in ascending order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as text: `FDN-1001` and so on.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }

            /// One line that says what the code means.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title,)* }
            }

            /// Who must act.
            #[must_use]
            pub const fn fault(self) -> Fault {
                match self { $(Self::$variant => Fault::$fault,)* }
            }

            /// Whether the same request may succeed later.
            #[must_use]
            pub const fn retry(self) -> Retry {
                match self { $(Self::$variant => Retry::$retry,)* }
            }

            /// The HTTP status that carries this code (RFC 9110, section 15).
            #[must_use]
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }
        }
    };
}

codes! {
    UploadEmpty,        "FDN-1001", Caller, Never, 422, "the uploaded file is empty";
    UploadNotWasm,      "FDN-1002", Caller, Never, 422, "the uploaded file is not WebAssembly";
    UploadCoreModule,   "FDN-1003", Caller, Never, 422, "the uploaded file is a core module, not a component";
    UploadMalformed,    "FDN-1004", Caller, Never, 422, "the uploaded component is truncated or malformed";
    UploadNoHandler,    "FDN-1005", Caller, Never, 422, "the component does not export wasi:http/incoming-handler";
    UploadForeignImport,"FDN-1006", Caller, Never, 422, "the component imports what the network does not offer";
    UploadTooLarge,     "FDN-1007", Caller, Never, 413, "the uploaded file is larger than the limit";
    UploadNotCompilable,"FDN-1008", Caller, Never, 422, "the component cannot be compiled within the limits";
    UploadProbeFailed,  "FDN-1009", Caller, Never, 422, "the component did not answer the probe call within its limits";
    ManifestInvalid,    "FDN-1010", Caller, Never, 422, "the manifest fdn.toml is not valid";
    ImageInvalid,       "FDN-1020", Caller, Never, 422, "the container image cannot be used";
    InstanceUnsupported,"FDN-1021", Caller, Never, 422, "the node's runtime cannot give what the function asks for";
    SignatureMissing,   "FDN-1030", Caller, Never, 422, "the upload is not signed and the tenant's policy asks for it";
    SignatureInvalid,   "FDN-1031", Caller, Never, 422, "the signature is by none of the tenant's keys over this upload";
    SigningKeyInvalid,  "FDN-1032", Caller, Never, 422, "the public key cannot be used";
    UploadIncomplete,   "FDN-1011", Caller, Later, 400, "the upload ended before it was complete";

    Unauthenticated,    "FDN-2001", Caller, Never, 401, "no valid credentials were sent";
    Forbidden,          "FDN-2002", Caller, Never, 403, "these credentials do not allow the operation";
    NotFound,           "FDN-2003", Caller, Never, 404, "there is no such thing";
    Conflict,           "FDN-2004", Caller, Never, 409, "the operation conflicts with the present state";
    BadRequest,         "FDN-2005", Caller, Never, 400, "the request cannot be understood";
    TooManyRequests,    "FDN-2006", Caller, Later, 429, "too many requests; wait and try again";
    BodyTooLarge,       "FDN-2007", Caller, Never, 413, "the request body is larger than the limit";
    TenantSuspended,    "FDN-2010", Caller, Never, 403, "the tenant is suspended: its members may only look";
    TenantNotNamed,     "FDN-2011", Caller, Never, 400, "the request does not say which tenant is meant";
    CsrfRefused,        "FDN-2012", Caller, Never, 403, "a change from a browser came without its session's token";
    PreconditionFailed, "FDN-2013", Caller, Never, 412, "the resource has changed since it was read";
    IdempotencyMismatch,"FDN-2014", Caller, Never, 422, "the idempotency key was used for another request";
    IdempotencyRunning, "FDN-2015", Caller, Later, 409, "the first request with this idempotency key still runs";
    IdempotencyLost,    "FDN-2016", Caller, Never, 409, "the request was carried out before and its answer is not kept";
    PasswordRefused,    "FDN-2017", Caller, Never, 422, "the password is not long enough or too long";
    LastOfItsKind,      "FDN-2018", Caller, Never, 409, "nobody would be left who may undo it";
    MasterKeyMissing,   "FDN-2020", Dependency, Later, 503, "the master key that secrets are sealed under is not there";
    SecretInvalid,      "FDN-2021", Caller, Never, 422, "the value of a secret is not valid";
    ObjectiveInvalid,   "FDN-2022", Caller, Never, 422, "the objective is not valid";
    DomainInvalid,      "FDN-2023", Caller, Never, 422, "the host name cannot be an app's";
    DomainTaken,        "FDN-2024", Caller, Never, 409, "another app answers to the host name";
    DomainUnproven,     "FDN-2025", Caller, Later, 409, "the record that proves the host name is not there";
    ResolverFailed,     "FDN-2026", Dependency, Later, 503, "no resolver answered";
    TryInvalid,         "FDN-2065", Caller, Never, 422, "the call to try an app with cannot be made";
    NoGateway,          "FDN-2066", Dependency, Later, 503, "no gateway is alive that could be called";
    TryFailed,          "FDN-2067", Dependency, Later, 502, "the gateway that was called did not answer";
    RecordInvalid,      "FDN-2070", Caller, Never, 422, "the record cannot be set as it is asked for";
    RecordRefused,      "FDN-2071", Caller, Never, 403, "the name of the record is not one that the caller may set";
    RecordsFull,        "FDN-2072", Caller, Never, 409, "as many records are set as may be";
    FilesInvalid,       "FDN-2050", Caller, Never, 422, "the declared files are not valid";

    StorageFull,        "FDN-2035", Caller, Never, 409, "the tenant stores as much as it may";
    TenantNotEmpty,     "FDN-2036", Caller, Never, 409, "the tenant still has apps";
    AppSuspended,       "FDN-2037", Caller, Later, 403, "the app's owner is suspended";
    CatalogueDamaged,   "FDN-2038", Dependency, Later, 503, "a function of the catalogue is not what its checksum says";
    OidcRefused,        "FDN-2039", Caller, Never, 403, "the identity provider's user may not log in here";
    OidcFailed,         "FDN-2040", Dependency, Later, 502, "the login with the identity provider failed";
    OidcOff,            "FDN-2041", Caller, Never, 404, "logins with an identity provider are not set up";
    InvitationUnknown,  "FDN-2042", Caller, Never, 403, "the invitation is not known";
    InvitationExpired,  "FDN-2043", Caller, Never, 403, "the invitation has ended";

    UnknownHost,        "FDN-3001", Caller, Never, 404, "no app is deployed under this host name";
    FunctionTrapped,    "FDN-3002", Function, Never, 502, "the function trapped";
    FunctionTimeout,    "FDN-3003", Function, Later, 504, "the function did not answer within its timeout";
    FunctionCpuLimit,   "FDN-3004", Function, Never, 502, "the function used more CPU time than its limit";
    FunctionMemoryLimit,"FDN-3005", Function, Never, 502, "the function asked for more memory than its limit";
    ResponseTooLarge,   "FDN-3006", Function, Never, 502, "the function's response body passed its limit";
    Overloaded,         "FDN-3007", Dependency, Later, 503, "the node has no room for this call now";
    NotReady,           "FDN-3008", Dependency, Later, 503, "the app is not ready on this node yet";
    NoResponse,         "FDN-3009", Function, Never, 502, "the function ended without an answer";
    InstanceNotStarted, "FDN-3020", Function, Later, 502, "the function's instance did not start";
    InstanceLost,       "FDN-3021", Function, Later, 502, "the function's instance ended while the call ran";

    AddressRefused,     "FDN-3040", Caller, Never, 403, "the client's address may not call this app";
    CredentialsMissing, "FDN-3041", Caller, Never, 401, "the app asks for credentials";
    CredentialsInvalid, "FDN-3042", Caller, Never, 401, "the credentials sent to the app do not count";
    TokenForbidden,     "FDN-3043", Caller, Never, 403, "the token does not allow calls of this app";
    RateLimited,        "FDN-3044", Caller, Later, 429, "calls come faster than the app allows";
    QuotaUsedUp,        "FDN-3045", Caller, Later, 429, "the app's quota is used up";
    TooManyAtOnce,      "FDN-3046", Caller, Later, 429, "as many calls of the app run as may";
    OriginRefused,      "FDN-3047", Caller, Never, 403, "pages of this origin may not call the app so";
    KeysUnavailable,    "FDN-3048", Dependency, Later, 503, "the keys that tokens are checked with cannot be had";
    PolicyInvalid,      "FDN-3049", Caller, Never, 422, "the policy is not valid";

    DatabaseFailed,     "FDN-4001", Dependency, Later, 503, "the metadata store did not answer";
    BrokerFailed,       "FDN-4002", Dependency, Later, 503, "the message broker did not answer";
    ArtifactStoreFailed,"FDN-4003", Dependency, Later, 503, "the artifact store did not answer";
    ControllerUnreachable, "FDN-4004", Dependency, Later, 503, "the controller did not answer";
    ArtifactCorrupt,    "FDN-4005", Dependency, Later, 502, "an artifact's bytes do not match its digest";
    EngineFailed,       "FDN-4020", Dependency, Later, 503, "the container engine did not do what was asked";
    ImageMissing,       "FDN-4021", Dependency, Later, 503, "the container image cannot be had";

    ConfigInvalid,      "FDN-5001", Caller, Never, 400, "the configuration is not valid";
    AddressTaken,       "FDN-5002", Caller, Never, 400, "a listening address is already taken";
    DataDirectory,      "FDN-5003", Caller, Never, 400, "the data directory cannot be used";
    InputInvalid,       "FDN-5004", Caller, Never, 400, "a file given to a command is not what it should be";

    NoClusterFits,      "FDN-6001", Dependency, Later, 503, "no cluster has room for the app";
    WorkflowInvalid,    "FDN-6002", Caller, Never, 422, "the workflow is not valid";
    StageFailed,        "FDN-6003", Function, Never, 502, "a stage of the workflow failed";
    WorkflowTimeout,    "FDN-6004", Function, Later, 504, "the workflow did not end within its timeout";
    WorkflowTooLarge,   "FDN-6005", Function, Never, 502, "the workflow's data passed its limit";
    JobNotFinal,        "FDN-6010", Caller, Later, 409, "the job has not ended";
    JobEnded,           "FDN-6011", Caller, Never, 409, "the job has ended";
    JobNoResult,        "FDN-6012", Caller, Never, 410, "the job has no result that is kept";
    JobsFull,           "FDN-6013", Caller, Later, 429, "as many jobs of the app wait as may";
    JobTooLarge,        "FDN-6014", Caller, Never, 413, "the input of the job is larger than the limit";
    JobInvalid,         "FDN-6015", Caller, Never, 422, "the job cannot be accepted as it is";
    JobNotAccepted,     "FDN-6016", Dependency, Later, 503, "the job was not accepted: the broker did not confirm it";
    ScheduleInvalid,    "FDN-6017", Caller, Never, 422, "the schedule is not valid";
    WebhookRefused,     "FDN-6018", Caller, Never, 422, "the address may not be told of jobs or alerts";
    StageRefused,       "FDN-3030", Caller, Never, 403, "this gateway takes no stage calls from the caller";

    JoinTokenUnknown,   "FDN-7001", Caller, Never, 403, "the join token is not known";
    JoinTokenExpired,   "FDN-7002", Caller, Never, 403, "the join token has expired";
    JoinTokenUsedUp,    "FDN-7003", Caller, Never, 403, "the join token has let in as many machines as it may";
    JoinTokenRevoked,   "FDN-7004", Caller, Never, 403, "the join token was taken back";
    JoinElsewhere,      "FDN-7005", Caller, Never, 403, "the join token is for another region or cluster";
    NodeNameTaken,      "FDN-7006", Caller, Never, 409, "another node has this name";
    CsrInvalid,         "FDN-7007", Caller, Never, 422, "the certificate signing request cannot be used";
    CertificateRefused, "FDN-7008", Caller, Never, 403, "the node's certificate does not count";
    NodeAtWork,         "FDN-7009", Caller, Later, 409, "the node still takes or does work";
    JoinInsecure,       "FDN-7010", Caller, Never, 400, "secrets would travel unprotected";

    BillOverflow,       "FDN-8001", Internal, Never, 500, "a bill is larger than can be counted";
    PriceListInvalid,   "FDN-8002", Caller, Never, 422, "the price list is not valid";
    PriceListOverlaps,  "FDN-8003", Caller, Never, 409, "another price list is valid at the same time";
    PriceListInUse,     "FDN-8004", Caller, Never, 409, "the price list has been used and cannot be changed";
    UsageOutOfRange,    "FDN-8005", Caller, Never, 422, "a usage record says more than a call can use";
    BudgetInvalid,      "FDN-8006", Caller, Never, 422, "the budget is not valid";

    Internal,           "FDN-9001", Internal, Later, 500, "something in the network itself went wrong";
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl TryFrom<String> for ErrorCode {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.as_str() == s)
            .ok_or_else(|| {
                ParseError::new(
                    "error code",
                    s,
                    "a code of docs/errors.md, such as FDN-1001",
                )
            })
    }
}

impl From<ErrorCode> for String {
    fn from(value: ErrorCode) -> String {
        value.as_str().to_owned()
    }
}

/// An error as it is returned over HTTP (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A reference to the documentation of the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means, in one line.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable error code, such as `FDN-1001`.
    #[schema(value_type = String)]
    pub code: ErrorCode,
    /// What happened in this case, and what to do about it.
    pub detail: String,
    /// The id of the request, as in the log; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The stage that failed; only for errors of workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// The number of the last attempt at that stage, from 1 up; 0 if there was none. Only for errors of workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Why that attempt failed; only for errors of workflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The validation step at which an upload was refused: a `step` of a `ValidationStep`, `upload` while the upload was being received, or
    /// `manifest` before all steps. Absent for other errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

impl Problem {
    /// The media type of RFC 9457.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A problem with this code and its default status.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("/docs/errors#{}", code.as_str().to_ascii_lowercase()),
            title: code.title().to_owned(),
            status: code.http_status(),
            code,
            detail: detail.into(),
            request_id: None,
            stage: None,
            attempt: None,
            reason: None,
            step: None,
        }
    }

    /// Adds the validation step at which an upload was refused.
    #[must_use]
    pub fn at_step(mut self, step: Option<&str>) -> Self {
        self.step = step.map(str::to_owned);
        self
    }

    /// Adds the id of the request.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

/// A text does not have the required form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value:?} is not valid: expected {expected}")]
pub struct ParseError {
    what: &'static str,
    value: String,
    expected: &'static str,
}

impl ParseError {
    /// An error for `value`, which is truncated to a readable length.
    #[must_use]
    pub fn new(what: &'static str, value: impl Into<String>, expected: &'static str) -> Self {
        let mut value = value.into();
        if value.chars().count() > 80 {
            value = value.chars().take(80).chain(['…']).collect();
        }
        Self {
            what,
            value,
            expected,
        }
    }
}

impl Coded for ParseError {
    fn code(&self) -> ErrorCode {
        ErrorCode::BadRequest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_round_trip() {
        let texts: BTreeSet<_> = ErrorCode::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(texts.len(), ErrorCode::ALL.len());
        for code in ErrorCode::ALL {
            assert_eq!(
                ErrorCode::try_from(code.as_str().to_owned()).expect("own text"),
                *code
            );
        }
    }

    #[test]
    fn every_code_has_its_paragraph() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/errors.md");
        let text = std::fs::read_to_string(path).expect("docs/errors.md is part of the project");
        for code in ErrorCode::ALL {
            assert!(
                text.contains(&format!("## {code}")),
                "docs/errors.md lacks {code}"
            );
        }
    }

    #[test]
    fn a_long_value_is_cut_in_the_message() {
        let error = ParseError::new("size", "x".repeat(1000), "a size");
        assert!(error.to_string().len() < 200);
    }
}
