//! What can go wrong in a controller.

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
    /// The metadata store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The artifact store.
    #[error(transparent)]
    Artifacts(#[from] ArtifactError),
    /// The artifact store, with an object of a job.
    #[error(transparent)]
    Object(#[from] crate::artifacts::ObjectError),
    /// A backup cannot be made or restored.
    #[error(transparent)]
    Backup(#[from] crate::backup::BackupError),
    /// A job or schedule cannot be had as it is asked for.
    #[error(transparent)]
    Job(#[from] crate::app::job::JobError),
    /// An app cannot be tried.
    #[error(transparent)]
    Try(#[from] crate::app::try_call::TryError),
    /// The shell of the process.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// The broker.
    #[error(transparent)]
    Broker(#[from] fdn_bus::BusError),
    /// The WebAssembly engine that judges uploads.
    #[error(transparent)]
    Engine(#[from] fdn_runtime::EngineError),
    /// An upload did not arrive.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// An upload was judged and refused.
    #[error(transparent)]
    Validate(#[from] ValidateError),
    /// An uploaded image was refused.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The signature of an upload, or a key to check it with, is refused.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The code repository refuses.
    #[error(transparent)]
    Repository(#[from] crate::app::repository::RepositoryError),
    /// A manifest is not valid.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// A workflow is not valid.
    #[error(transparent)]
    Workflow(#[from] fdn_core::workflow::DeclarationError),
    /// A name or number of a request is not valid.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The policy of an app is not valid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Placement.
    #[error(transparent)]
    Placement(#[from] fdn_scheduling::Error),
    /// A machine cannot be let in, or a node not be changed.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// Usage, prices or a budget do not add up.
    #[error(transparent)]
    Billing(#[from] fdn_core::billing::BillingError),
    /// A master key that something is wrapped under is not known here.
    #[error(
        "master key {id} is not in the ring of this controller; put it back into the file of secrets.master_key_file"
    )]
    MasterKey {
        /// Which key.
        id: fdn_service::master::MasterKeyId,
    },
    /// The value of a secret cannot be used. Never quotes it.
    #[error("{0}")]
    Secret(&'static str),
    /// An objective cannot work.
    #[error(transparent)]
    Objective(#[from] fdn_core::rollout::ObjectiveError),
    /// A host name cannot be an app's.
    #[error(transparent)]
    Domain(#[from] fdn_core::domain::DomainError),
    /// Text records cannot be had as they are asked for.
    #[error(transparent)]
    Txt(#[from] crate::app::txt::TxtError),
    /// A time to live that DNS answers cannot have.
    #[error(transparent)]
    Ttl(#[from] crate::app::dns::TtlError),
    /// Another app answers to a host name.
    #[error("another app answers to {0}; its owner must let it go first")]
    DomainTaken(fdn_core::HostName),
    /// The proof of a host name is not there.
    #[error("{0}; records may take a while to be seen everywhere")]
    DomainUnproven(String),
    /// No resolver could say whether a proof is there.
    #[error("{0}")]
    Resolver(String),
    /// A setting is not valid.
    #[error("configuration: {0}")]
    Config(String),
    /// What was asked for does not exist.
    #[error("{what} does not exist; {hint}")]
    NotFound {
        /// What.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// The present state stands against it.
    #[error("{0}")]
    Conflict(String),
    /// The request cannot be understood.
    #[error("{0}")]
    BadRequest(String),
    /// The body of a request is larger than allowed.
    #[error("the request body is larger than {0}; send less")]
    BodyTooLarge(fdn_core::ByteSize),
    /// No credentials, or wrong ones.
    #[error("{0}")]
    Unauthenticated(&'static str),
    /// Credentials without the right.
    #[error("{who} may not do this: it needs the right to {right}")]
    Forbidden {
        /// Whose credentials they are.
        who: String,
        /// The right.
        right: &'static str,
    },
    /// The tenant is suspended.
    #[error("the tenant is suspended, its members may only look; ask the network's administrator")]
    Suspended,
    /// Nobody said which tenant is meant, and it does not follow.
    #[error("{0}")]
    TenantNotNamed(&'static str),
    /// A change from a browser that does not come from its own page.
    #[error("the header x-fdn-csrf must have the value of csrf from GET /v1/session")]
    Csrf,
    /// What was to be changed is no longer what the caller has read.
    #[error("it is at {present} now; read it again before you change it")]
    Precondition {
        /// The present tag.
        present: String,
    },
    /// A request with an idempotency key that cannot be answered as the first one was.
    #[error(transparent)]
    Idempotency(#[from] crate::app::idempotency::Refusal),
    /// A password that is not accepted.
    #[error("{0}")]
    Password(String),
    /// A login with the identity provider.
    #[error(transparent)]
    Oidc(#[from] crate::app::oidc::OidcError),
    /// An invitation is not accepted.
    #[error(transparent)]
    Invitation(#[from] crate::app::invitation::InvitationError),
    /// The last one who may undo something.
    #[error("{0}")]
    LastOfItsKind(String),
    /// Too many requests of a kind.
    #[error("{what}; try again in {} s", .after.as_secs().max(1))]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How long to wait.
        after: Duration,
    },
    /// The controller has begun only just.
    #[error("{0}; try again in a moment")]
    Unready(&'static str),
    /// We have a bug.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// A setting that is not valid.
    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self::Config(text.into())
    }

    /// A cluster that does not exist.
    pub(crate) fn no_cluster(cluster: &fdn_core::ClusterId) -> Self {
        Self::NotFound {
            what: format!("cluster {cluster}"),
            hint: "`fdn cluster list` shows what exists, `fdn cluster create` makes one",
        }
    }

    /// A node that does not exist.
    pub(crate) fn no_node(node: &fdn_core::NodeId) -> Self {
        Self::NotFound {
            what: format!("node {node}"),
            hint: "`fdn node list` shows what exists",
        }
    }

    /// A tenant that does not exist, or that the caller must not know of.
    pub(crate) fn no_tenant(tenant: &fdn_core::account::TenantRef) -> Self {
        Self::NotFound {
            what: format!("tenant {tenant}"),
            hint: "`fdn tenant list` shows yours",
        }
    }

    /// An app whose name another tenant has.
    pub(crate) fn name_taken(app: &fdn_core::AppName) -> Self {
        Self::Conflict(format!(
            "the name {app} is taken in this network; choose another one"
        ))
    }

    /// A user that does not exist.
    pub(crate) fn no_user(user: &fdn_core::UserName) -> Self {
        Self::NotFound {
            what: format!("user {user}"),
            hint: "`fdn user list` shows who exists, `fdn user create` makes one",
        }
    }

    /// A job that does not exist, or that the caller must not know of.
    pub(crate) fn no_job(job: fdn_core::JobId) -> Self {
        Self::NotFound {
            what: format!("job {job}"),
            hint: "`fdn job list APP` shows what is kept",
        }
    }

    /// An app that does not exist, or that the caller must not know of.
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

/// The error and all its causes, for the log.
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
