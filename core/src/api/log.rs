//! Lines of functions' logs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{AppName, FunctionName, InstanceId, NodeId, StageName, VersionNumber};
use crate::unit::Timestamp;

/// Where a log line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// The function's standard output.
    Stdout,
    /// The function's standard error.
    Stderr,
    /// The node: why a call ended badly.
    System,
}

/// One line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// When it was captured.
    pub at: Timestamp,
    /// The app.
    pub app: AppName,
    /// The function.
    pub function: FunctionName,
    /// The version.
    pub version: VersionNumber,
    /// The node.
    pub node: NodeId,
    /// The instance that wrote it.
    pub instance: InstanceId,
    /// The call's request id.
    pub request: String,
    /// The stage of the workflow that it ran for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// Which stream.
    pub stream: LogStream,
    /// The text, without the newline.
    pub text: String,
}
