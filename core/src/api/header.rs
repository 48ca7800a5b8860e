//! Headers by which a gateway tells where a call ran and how long each part took.

/// The request id, taken from the client if it sent a sane one.
pub const REQUEST_ID: &str = "x-request-id";
/// The cluster that served the call.
pub const CLUSTER: &str = "x-fdn-cluster";
/// The node that served the call.
pub const NODE: &str = "x-fdn-node";
/// The cluster and node that a gateway handed the call on to, which served it: `CLUSTER/NODE`.
pub const SERVED_BY: &str = "x-fdn-served-by";
/// The function version that served the call.
pub const VERSION: &str = "x-fdn-version";
/// `1` asks a gateway to say by which revision it serves the call: [`REVISION`] and [`PLAN`] in its answer.
pub const EXPLAIN: &str = "x-fdn-explain";
/// The revision of the app's desired state by which the gateway served the call; on request.
pub const REVISION: &str = "x-fdn-revision";
/// How the plans that the gateway knew stood to its cluster: `used`, `leaving` or `unused`; on request.
pub const PLAN: &str = "x-fdn-plan";
/// The error code, on answers the gateway made itself.
pub const ERROR: &str = "x-fdn-error";
/// The stage of a workflow: on calls of functions that run as one, and on answers of gateways to stage calls.
pub const STAGE: &str = "x-fdn-stage";
/// Which attempt of the stage it is, from 1 up.
pub const ATTEMPT: &str = "x-fdn-attempt";
/// How the parents of the stage ended: `resize=done, text=failed, face=skipped`.
pub const PARENTS: &str = "x-fdn-parents";
/// The milliseconds that are left to the call.
pub const DEADLINE: &str = "x-fdn-deadline";
/// Who called, as the gateway proved it: `key:NAME` or `jwt:SUBJECT`. Only ever set by a gateway.
pub const IDENTITY: &str = "x-fdn-identity";
/// On calls that controllers send to a node's gateway over its listener for them: the app's host. Without it, the node itself is asked.
pub const CALL_HOST: &str = "fdn-call-host";
/// On such calls, whose job it is ([`crate::job::JobPass`]); functions see the job in `x-fdn-identity`.
pub const JOB: &str = "x-fdn-job";
/// The version that a call is to go to, where the app's split allows to say so.
pub const PIN: &str = "x-fdn-pin";
/// The key of an app's caller.
pub const API_KEY: &str = "x-api-key";
/// RFC 9110-style timing list of the Server-Timing draft: `start;dur=0.01, exec;dur=1.2`.
pub const TIMING: &str = "server-timing";
