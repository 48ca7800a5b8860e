//! Lines of functions' logs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::{AppName, FunctionName, InstanceId, NodeId, StageName, VersionNumber};
use crate::unit::Timestamp;

/// The origin of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogStream {
    /// The function's standard output.
    Stdout,
    /// The function's standard error.
    Stderr,
    /// Written by the node, for example why a call failed.
    System,
}

/// One line of a function's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogLine {
    /// When the node captured the line.
    pub at: Timestamp,
    /// The app's name.
    pub app: AppName,
    /// The function's name.
    pub function: FunctionName,
    /// The function's version.
    pub version: VersionNumber,
    /// The node on which it was written.
    pub node: NodeId,
    /// The id of the instance that wrote it.
    pub instance: InstanceId,
    /// The request id of the call during which it was written.
    pub request: String,
    /// The stage of the workflow for which the function ran; absent for a plain function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageName>,
    /// The origin of the line.
    pub stream: LogStream,
    /// The text of the line, without the newline.
    pub text: String,
}
