//! Exit codes, for scripts. Their meanings never change.

use std::process::ExitCode;

use fdn_core::ErrorCode;

/// The result of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Exit {
    /// Everything asked for was done.
    Ok = 0,
    /// It failed for a reason without an exit code of its own.
    Failed = 1,
    /// Wrong arguments, configuration, data directory, address, or a file that is not accepted.
    Usage = 2,
    /// Not logged in, or not allowed.
    Denied = 3,
    /// There is no such app, version or host.
    NotFound = 4,
    /// The request conflicts with the current state.
    Conflict = 5,
    /// It was not completed in time.
    Timeout = 6,
    /// The controller, the DNS server or a gateway could not be reached, or one of them cannot reach what it needs.
    Unreachable = 7,
    /// `fdn invoke`: the call was answered with a status of 400 or above.
    CallFailed = 8,
}

/// The table of exit codes, as `fdn --help` prints it.
pub const TABLE: &str = "\
Exit codes:
  0  done
  1  failed for a reason without a number of its own
  2  wrong arguments, configuration or data directory, or a file that is not accepted
  3  not logged in, or not allowed
  4  no such app, version or host
  5  the present state stands against it
  6  not done in time
  7  controller, DNS server or gateway not reachable
  8  fdn invoke: the call was answered with a status of 400 or above";

impl Exit {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The exit code for an error code of the network.
    #[must_use]
    pub const fn of(code: ErrorCode) -> Self {
        match code {
            ErrorCode::UploadEmpty
            | ErrorCode::UploadNotWasm
            | ErrorCode::UploadCoreModule
            | ErrorCode::UploadMalformed
            | ErrorCode::UploadNoHandler
            | ErrorCode::UploadForeignImport
            | ErrorCode::UploadTooLarge
            | ErrorCode::ImageInvalid
            | ErrorCode::UploadNotCompilable
            | ErrorCode::UploadProbeFailed
            | ErrorCode::ManifestInvalid
            | ErrorCode::BadRequest
            | ErrorCode::BodyTooLarge
            | ErrorCode::ConfigInvalid
            | ErrorCode::AddressTaken
            | ErrorCode::DataDirectory
            | ErrorCode::InputInvalid
            | ErrorCode::CsrInvalid
            | ErrorCode::JoinInsecure
            | ErrorCode::WorkflowInvalid
            | ErrorCode::FilesInvalid
            | ErrorCode::PriceListInvalid
            | ErrorCode::BudgetInvalid => Self::Usage,
            ErrorCode::Unauthenticated
            | ErrorCode::Forbidden
            | ErrorCode::InvitationUnknown
            | ErrorCode::InvitationExpired
            | ErrorCode::JoinTokenUnknown
            | ErrorCode::JoinTokenExpired
            | ErrorCode::JoinTokenUsedUp
            | ErrorCode::JoinTokenRevoked
            | ErrorCode::JoinElsewhere
            | ErrorCode::CertificateRefused => Self::Denied,
            ErrorCode::NotFound | ErrorCode::UnknownHost => Self::NotFound,
            ErrorCode::Conflict
            | ErrorCode::PreconditionFailed
            | ErrorCode::NodeNameTaken
            | ErrorCode::NodeAtWork
            | ErrorCode::PriceListOverlaps
            | ErrorCode::PriceListInUse => Self::Conflict,
            ErrorCode::FunctionTimeout => Self::Timeout,
            ErrorCode::UploadIncomplete
            | ErrorCode::DatabaseFailed
            | ErrorCode::BrokerFailed
            | ErrorCode::ArtifactStoreFailed
            | ErrorCode::ControllerUnreachable
            | ErrorCode::ArtifactCorrupt => Self::Unreachable,
            ErrorCode::FunctionTrapped
            | ErrorCode::FunctionCpuLimit
            | ErrorCode::FunctionMemoryLimit
            | ErrorCode::ResponseTooLarge
            | ErrorCode::Overloaded
            | ErrorCode::NotReady
            | ErrorCode::NoResponse => Self::CallFailed,
            // Codes added in the future, and those without an exit code of their own.
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_stands_in_the_table() {
        for exit in [
            Exit::Ok,
            Exit::Failed,
            Exit::Usage,
            Exit::Denied,
            Exit::NotFound,
            Exit::Conflict,
            Exit::Timeout,
            Exit::Unreachable,
            Exit::CallFailed,
        ] {
            assert!(
                TABLE.contains(&format!("\n  {}  ", exit.number())),
                "{exit:?}"
            );
        }
    }

    #[test]
    fn what_a_caller_can_correct_is_told_apart_from_what_is_away() {
        assert_eq!(Exit::of(ErrorCode::UploadCoreModule), Exit::Usage);
        assert_eq!(Exit::of(ErrorCode::Unauthenticated), Exit::Denied);
        assert_eq!(Exit::of(ErrorCode::BrokerFailed), Exit::Unreachable);
        assert_eq!(Exit::of(ErrorCode::UnknownHost), Exit::NotFound);
        assert_eq!(Exit::of(ErrorCode::Internal), Exit::Failed);
    }
}
