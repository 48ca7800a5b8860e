//! Why a machine is not admitted, or a node not changed. Each message says what to do.

use fdn_core::enrol::Role;
use fdn_core::fleet::NodeState;
use fdn_core::{ClusterId, Coded, ErrorCode, NodeId, RegionName};

/// A machine is not admitted, or a node not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnrolError {
    /// There is no such join token, or its secret differs.
    #[error(
        "the join token is not known here; give the whole line that `fdn node token` printed, to the controller that made it"
    )]
    Unknown,
    /// The join token has expired.
    #[error(
        "the join token ended {ago_s} s ago; make another one: fdn node token --cluster {cluster}"
    )]
    Expired {
        /// The time since it expired, in seconds.
        ago_s: u64,
        /// The token's cluster.
        cluster: ClusterId,
    },
    /// All uses of the join token are consumed.
    #[error(
        "the join token was for {uses} machines and has let them in; make another one: fdn node token --cluster {cluster} --uses N"
    )]
    UsedUp {
        /// The number of machines it was for.
        uses: u32,
        /// The token's cluster.
        cluster: ClusterId,
    },
    /// The join token has been revoked.
    #[error("the join token was taken back; make another one: fdn node token --cluster {cluster}")]
    Revoked {
        /// The token's cluster.
        cluster: ClusterId,
    },
    /// The token is for machines of another role.
    #[error(
        "the join token lets in a {}, and a {} asked; make another one: fdn {asked} token --cluster {cluster}", .token.noun(), .asked.noun()
    )]
    Role {
        /// The token's role.
        token: Role,
        /// The role that the machine requested.
        asked: Role,
        /// The token's cluster.
        cluster: ClusterId,
    },
    /// The machine requested another cluster or region than the token's.
    #[error(
        "the join token is for cluster {cluster} in region {region}, this machine is meant for {meant}; \
         make a token for that, or leave --cluster and --region out"
    )]
    Elsewhere {
        /// The token's cluster.
        cluster: ClusterId,
        /// The token's region.
        region: RegionName,
        /// The cluster or region that the machine requested.
        meant: String,
    },
    /// Another node has the name.
    #[error(
        "there is a node {node} that {why}; choose another name with --node, or stop that machine and `fdn node remove {node}`"
    )]
    NameTaken {
        /// The name.
        node: NodeId,
        /// What that node is or does, which keeps its name from being taken over.
        why: String,
    },
    /// The certificate signing request cannot be used.
    #[error(
        "the certificate signing request cannot be used; it must be PEM, for an ECDSA key on P-256, and signed by that key"
    )]
    Request(#[source] fdn_service::ServiceError),
    /// The certificate presented for renewal is not valid.
    #[error(
        "{0}; join the machine again (--again) with a new join token: fdn node token, or fdn dns token"
    )]
    Certificate(&'static str),
    /// The renewal names another host than the machine joined with.
    #[error(
        "the machine's gateway or admin address has another host than it joined with; join it again (--again) with a new join token: \
         fdn node token, or fdn dns token"
    )]
    Moved,
    /// The next certificate has been issued already, or is not due.
    #[error(
        "the certificate is not due for renewal, or was renewed already; ask again in {wait_s} s"
    )]
    TooSoon {
        /// The time to wait, in seconds.
        wait_s: u64,
    },
    /// The clocks of node and controller differ too much.
    #[error(
        "the node's clock is {off_s} s away from the controller's; set it right, certificates are renewed within {window_s} s"
    )]
    Clock {
        /// The difference, in seconds.
        off_s: u64,
        /// The largest difference allowed, in seconds.
        window_s: u64,
    },
    /// The node still accepts or does work.
    #[error(
        "node {node} is {}; drain it first: fdn node drain {node} (or remove it at once, with calls that run there, by --force)", .state.as_str()
    )]
    AtWork {
        /// The node.
        node: NodeId,
        /// The node's state.
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
