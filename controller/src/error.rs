//! Errors of the controller.

use std::time::Duration;

use fdn_core::manifest::ManifestError;
use fdn_core::policy::PolicyError;
use fdn_core::{Coded, ErrorCode, Fault, ParseError, Retry};
use fdn_runtime::validate::ValidateError;
use fdn_service::ServiceError;

use crate::app::enrol::EnrolError;
use crate::artifacts::ArtifactError;
use crate::store::{MaybeContended, StoreError};
use crate::upload::UploadError;
use crate::upload::image::ImageError;
use crate::upload::signature::SignatureError;

/// An error of the controller.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The metadata store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The artifact store failed.
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    /// The artifact store failed with an object of a job.
    #[error(transparent)]
    Object(#[from] crate::artifacts::ObjectError),
    /// A backup cannot be made or restored.
    #[error(transparent)]
    Backup(#[from] crate::backup::BackupError),
    /// A request about a job or schedule is refused.
    #[error(transparent)]
    Job(#[from] crate::app::job::JobError),
    /// A test call of an app failed.
    #[error(transparent)]
    Try(#[from] crate::app::try_call::TryError),
    /// The service framework of the process failed.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The broker failed.
    #[error(transparent)]
    Broker(#[from] fdn_bus::BusError),
    /// The WebAssembly engine that validates uploads failed.
    #[error(transparent)]
    Engine(#[from] fdn_runtime::EngineError),
    /// An upload did not arrive.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// An upload was rejected by validation.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// An uploaded image was rejected.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The signature of an upload, or a key to verify it, is rejected.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The code repository refused.
    #[error(transparent)]
    Repository(#[from] crate::app::repository::RepositoryError),
    /// A manifest is not valid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A workflow is not valid.
    #[error(transparent)]
    Workflow(#[from] fdn_core::workflow::DeclarationError),
    /// A name or number in a request is not valid.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The policy of an app is not valid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The placement failed.
    #[error(transparent)]
    Placement(#[from] fdn_scheduling::Error),
    /// A machine is not admitted, or a node not changed.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// Usage, prices or a budget are not valid.
    #[error(transparent)]
    Billing(#[from] fdn_core::billing::BillingError),
    /// A master key that something is wrapped under is not known to this controller.
    #[error(
        "master key {id} is not in the ring of this controller; put it back into the file of secrets.master_key_file"
    )]
    MasterKey {
        /// The key's id.
        id: fdn_service::master::MasterKeyId,
    },
    /// The value of a secret is not allowed. The text never quotes it.
    #[error("{0}")]
    Secret(&'static str),
    /// An objective is not valid.
    #[error(transparent)]
    Objective(#[from] fdn_core::rollout::ObjectiveError),
    /// A host name is not allowed for an app.
    #[error(transparent)]
    Domain(#[from] fdn_core::domain::DomainError),
    /// TXT records cannot be set.
    #[error(transparent)]
    Txt(#[from] crate::app::txt::TxtError),
    /// A time to live of DNS answers is not allowed.
    #[error(transparent)]
    Ttl(#[from] crate::app::dns::TtlError),
    /// Another app answers to the host name.
    #[error("another app answers to {0}; its owner must let it go first")]
    DomainTaken(fdn_core::HostName),
    /// The proof of a host name is missing.
    #[error("{0}; records may take a while to be seen everywhere")]
    DomainUnproven(String),
    /// No resolver could tell whether a proof is there.
    #[error("{0}")]
    Resolver(String),
    /// A setting is not valid.
    #[error("configuration: {0}")]
    Config(String),
    /// Something in the request does not exist.
    #[error("{what} does not exist; {hint}")]
    NotFound {
        /// What does not exist.
        what: String,
        /// A hint for the caller.
        hint: &'static str,
    },
    /// The request conflicts with the present state.
    #[error("{0}")]
    Conflict(String),
    /// The request is malformed.
    #[error("{0}")]
    BadRequest(String),
    /// The body of a request is larger than allowed.
    #[error("the request body is larger than {0}; send less")]
    BodyTooLarge(fdn_core::ByteSize),
    /// The body of a request arrived too slowly.
    #[error(
        "the request body stood still, or came slower than 256 kbit/s on the whole; nothing was done, send it again"
    )]
    SlowBody,
    /// The credentials are missing or wrong.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// The credentials lack the right.
    #[error("{who} may not do this: it needs the right to {right}")]
    Forbidden {
        /// The caller.
        who: String,
        /// The right that is missing.
        right: &'static str,
    },
    /// The tenant is suspended.
    #[error("the tenant is suspended, its members may only look; ask the network's administrator")]
    Suspended,
    /// The request does not name a tenant, and the tenant is not implied.
    #[error("{0}")]
    TenantNotNamed(&'static str),
    /// A change from a browser without the session's CSRF token.
    #[error("the header x-fdn-csrf must have the value of csrf from GET /v1/session")]
    Csrf,
    /// The resource has changed since the caller read it.
    #[error("it is at {present} now; read it again before you change it")]
    Precondition {
        /// The present ETag.
        present: String,
    },
    /// A retry under an idempotency key cannot get the first response.
    #[error(transparent)]
    Idempotency(#[from] crate::app::idempotency::Refusal),
    /// A password is not acceptable.
    #[error("{0}")]
    Password(String),
    /// A login with the identity provider failed.
    #[error(transparent)]
    Oidc(#[from] crate::app::oidc::OidcError),
    /// An invitation is not accepted.
    #[error(transparent)]
    Invitation(#[from] crate::app::invitation::InvitationError),
    /// The last owner or admin would be removed.
    #[error("{0}")]
    LastOfItsKind(String),
    /// Too many requests of a kind.
    #[error("{what}; try again in {} s", .after.as_secs().max(1))]
    TooMany {
        /// What there is too much of, as a text.
        what: &'static str,
        /// The time to wait before the next try.
        after: Duration,
    },
    /// The controller has just started and is not ready.
    #[error("{0}; try again in a moment")]
    Unready(&'static str),
    /// A bug in this program.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// The error that a setting is not valid.
    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self::Config(text.into())
    }

    /// The error that a cluster does not exist.
    pub(crate) fn no_cluster(cluster: &fdn_core::ClusterId) -> Self {
        Self::NotFound {
            what: format!("cluster {cluster}"),
            hint: "`fdn cluster list` shows what exists, `fdn cluster create` makes one",
        }
    }

    /// The error that a node does not exist.
    pub(crate) fn no_node(node: &fdn_core::NodeId) -> Self {
        Self::NotFound {
            what: format!("node {node}"),
            hint: "`fdn node list` shows what exists",
        }
    }

    /// The error that a tenant does not exist, or that the caller must not know of it.
    pub(crate) fn no_tenant(tenant: &fdn_core::account::TenantRef) -> Self {
        Self::NotFound {
            what: format!("tenant {tenant}"),
            hint: "`fdn tenant list` shows yours",
        }
    }

    /// The error that another tenant has an app of this name.
    pub(crate) fn name_taken(app: &fdn_core::AppName) -> Self {
        Self::Conflict(format!(
            "the name {app} is taken in this network; choose another one"
        ))
    }

    /// The error that a user does not exist.
    pub(crate) fn no_user(user: &fdn_core::UserName) -> Self {
        Self::NotFound {
            what: format!("user {user}"),
            hint: "`fdn user list` shows who exists, `fdn user create` makes one",
        }
    }

    /// The error that a job does not exist, or that the caller must not know of it.
    pub(crate) fn no_job(job: fdn_core::JobId) -> Self {
        Self::NotFound {
            what: format!("job {job}"),
            hint: "`fdn job list APP` shows what is kept",
        }
    }

    /// The error that an app does not exist, or that the caller must not know of it.
    pub(crate) fn no_app(app: &fdn_core::AppName) -> Self {
        Self::NotFound {
            what: format!("app {app}"),
            hint: "`fdn list` shows what exists",
        }
    }
}

impl Coded for Error {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Store(error) => error.code(),
            Self::Artifacts(error) => error.code(),
            Self::Object(error) => error.code(),
            Self::Backup(error) => error.code(),
            Self::Job(error) => error.code(),
            Self::Try(error) => error.code(),
            Self::Service(error) => error.code(),
            Self::Broker(error) => error.code(),
            Self::Engine(error) => error.code(),
            Self::Upload(error) => error.code(),
            Self::Validate(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::Signature(error) => error.code(),
            Self::Repository(error) => error.code(),
            Self::Manifest(error) => error.code(),
            Self::Workflow(error) => error.code(),
            Self::Parse(error) => error.code(),
            Self::Policy(error) => error.code(),
            Self::Placement(error) => error.code(),
            Self::Enrol(error) => error.code(),
            Self::Billing(error) => error.code(),
            Self::MasterKey { .. } => ErrorCode::MasterKeyMissing,
            Self::Secret(_) => ErrorCode::SecretInvalid,
            Self::Objective(error) => error.code(),
            Self::Domain(error) => error.code(),
            Self::Txt(error) => error.code(),
            Self::Ttl(error) => error.code(),
            Self::DomainTaken(_) => ErrorCode::DomainTaken,
            Self::DomainUnproven(_) => ErrorCode::DomainUnproven,
            Self::Resolver(_) => ErrorCode::ResolverFailed,
            Self::Config(_) => ErrorCode::ConfigInvalid,
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Conflict(_) => ErrorCode::Conflict,
            Self::BadRequest(_) => ErrorCode::BadRequest,
            Self::BodyTooLarge(_) => ErrorCode::BodyTooLarge,
            Self::SlowBody => ErrorCode::UploadIncomplete,
            Self::Unauthenticated(_) => ErrorCode::Unauthenticated,
            Self::Forbidden { .. } => ErrorCode::Forbidden,
            Self::Suspended => ErrorCode::TenantSuspended,
            Self::TenantNotNamed(_) => ErrorCode::TenantNotNamed,
            Self::Csrf => ErrorCode::CsrfRefused,
            Self::Precondition { .. } => ErrorCode::PreconditionFailed,
            Self::Idempotency(refusal) => refusal.code(),
            Self::Password(_) => ErrorCode::PasswordRefused,
            Self::Oidc(error) => error.code(),
            Self::Invitation(error) => error.code(),
            Self::LastOfItsKind(_) => ErrorCode::LastOfItsKind,
            Self::TooMany { .. } => ErrorCode::TooManyRequests,
            Self::Unready(_) => ErrorCode::DatabaseFailed,
            Self::Internal(_) => ErrorCode::Internal,
        }
    }

    fn fault(&self) -> Fault {
        self.code().fault()
    }

    fn retry(&self) -> Retry {
        self.code().retry()
    }
}

impl From<Error> for MaybeContended<Error> {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(StoreError::Contended(_)) => Self::Yes(error),
            _ => Self::No(error),
        }
    }
}

/// The error with all its causes, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let line = next.to_string();
        if !text.ends_with(&line) {
            text.push_str(": ");
            text.push_str(&line);
        }
        cause = next.source();
    }
    text
}
