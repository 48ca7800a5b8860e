//! Why a machine is not let in, or a node not changed; each says what to do.

use fdn_core::enrol::Role;
use fdn_core::fleet::NodeState;
use fdn_core::{ClusterId, Coded, ErrorCode, NodeId, RegionName};

/// Why a machine is not let in, or a node not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// Nobody made such a token, or its secret differs.
    #[error(
        "the join token is not known here; give the whole line that `fdn node token` printed, to the controller that made it"
    )]
    Unknown,
    /// The token's time is over.
    #[error(
        "the join token ended {ago_s} s ago; make another one: fdn node token --cluster {cluster}"
    )]
    Expired {
        /// How long ago, in seconds.
        ago_s: u64,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// It let in as many machines as it may.
    #[error(
        "the join token was for {uses} machines and has let them in; make another one: fdn node token --cluster {cluster} --uses N"
    )]
    UsedUp {
        /// How many.
        uses: u32,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// Somebody took it back.
    #[error("the join token was taken back; make another one: fdn node token --cluster {cluster}")]
    Revoked {
        /// Its cluster.
        cluster: ClusterId,
    },
    /// The token is for machines of another kind.
    #[error(
        "the join token lets in a {}, and a {} asked; make another one: fdn {asked} token --cluster {cluster}", .token.noun(), .asked.noun()
    )]
    Role {
        /// What the token is for.
        token: Role,
        /// What asked.
        asked: Role,
        /// Its cluster.
        cluster: ClusterId,
    },
    /// The machine is meant for another place.
    #[error(
        "the join token is for cluster {cluster} in region {region}, this machine is meant for {meant}; \
         make a token for that, or leave --cluster and --region out"
    )]
    Elsewhere {
        /// The token's cluster.
        cluster: ClusterId,
        /// Its region.
        region: RegionName,
        /// What the machine says.
        meant: String,
    },
    /// The name is another node's.
    #[error(
        "there is a node {node} that {why}; choose another name with --node, or stop that machine and `fdn node remove {node}`"
    )]
    NameTaken {
        /// The name.
        node: NodeId,
        /// Why it cannot be taken over.
        why: String,
    },
    /// The signing request is no good.
    #[error(
        "the certificate signing request cannot be used; it must be PEM, for an ECDSA key on P-256, and signed by that key"
    )]
    Request(#[source] fdn_service::ServiceError),
    /// The certificate shown for renewal does not count.
    #[error(
        "{0}; join the machine again (--again) with a new join token: fdn node token, or fdn dns token"
    )]
    Certificate(&'static str),
    /// The next certificate is asked for another address.
    #[error(
        "the machine's gateway or admin address has another host than it joined with; join it again (--again) with a new join token: \
         fdn node token, or fdn dns token"
    )]
    Moved,
    /// The next certificate is there already, or not due.
    #[error(
        "the certificate is not due for renewal, or was renewed already; ask again in {wait_s} s"
    )]
    TooSoon {
        /// How long to wait, in seconds.
        wait_s: u64,
    },
    /// The clocks differ.
    #[error(
        "the node's clock is {off_s} s away from the controller's; set it right, certificates are renewed within {window_s} s"
    )]
    Clock {
        /// By how much.
        off_s: u64,
        /// How far is allowed.
        window_s: u64,
    },
    /// The node still takes or does work.
    #[error(
        "node {node} is {}; drain it first: fdn node drain {node} (or remove it at once, with calls that run there, by --force)", .state.as_str()
    )]
    AtWork {
        /// The node.
        node: NodeId,
        /// How it is.
        state: NodeState,
    },
}

impl Coded for EnrolError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Unknown => ErrorCode::JoinTokenUnknown,
            Self::Expired { .. } => ErrorCode::JoinTokenExpired,
            Self::UsedUp { .. } => ErrorCode::JoinTokenUsedUp,
            Self::Revoked { .. } => ErrorCode::JoinTokenRevoked,
            Self::Elsewhere { .. } | Self::Role { .. } => ErrorCode::JoinElsewhere,
            Self::NameTaken { .. } => ErrorCode::NodeNameTaken,
            Self::Request(_) => ErrorCode::CsrInvalid,
            Self::Certificate(_) | Self::Moved | Self::TooSoon { .. } | Self::Clock { .. } => {
                ErrorCode::CertificateRefused
            }
            Self::AtWork { .. } => ErrorCode::NodeAtWork,
        }
    }
}
