//! Headers with which a gateway reports where a call ran and how long each part took.

/// The request id; the client's own if it sent a well-formed one.
pub const REQUEST_ID: &str = "x-request-id";
/// The cluster that served the call.
pub const CLUSTER: &str = "x-fdn-cluster";
/// The node that served the call.
pub const NODE: &str = "x-fdn-node";
/// The cluster and node to which a gateway forwarded the call, and which served it: `CLUSTER/NODE`.
pub const SERVED_BY: &str = "x-fdn-served-by";
/// The function version that served the call.
pub const VERSION: &str = "x-fdn-version";
/// `1` asks a gateway for the revision by which it serves the call: [`REVISION`] and [`PLAN`] in its answer.
pub const EXPLAIN: &str = "x-fdn-explain";
/// The revision of the app's desired state by which the gateway served the call; on request.
pub const REVISION: &str = "x-fdn-revision";
/// How the plans known to the gateway use its cluster: `used`, `leaving` or `unused`; on request.
pub const PLAN: &str = "x-fdn-plan";
/// The error code, on answers that the gateway itself generated.
pub const ERROR: &str = "x-fdn-error";
/// The stage of a workflow: on calls of functions that run as a stage, and on answers of gateways to stage calls.
pub const STAGE: &str = "x-fdn-stage";
/// The number of the attempt at the stage, from 1.
pub const ATTEMPT: &str = "x-fdn-attempt";
/// How the parents of the stage ended: `resize=done, text=failed, face=skipped`.
pub const PARENTS: &str = "x-fdn-parents";
/// The time left for the call, in milliseconds.
pub const DEADLINE: &str = "x-fdn-deadline";
/// The caller's identity as verified by the gateway: `key:NAME` or `jwt:SUBJECT`. Only a gateway sets it.
pub const IDENTITY: &str = "x-fdn-identity";
/// On calls from controllers to a node's gateway over its dedicated listener: the app's host. Without it, the node itself is addressed.
pub const CALL_HOST: &str = "fdn-call-host";
/// On the answers there: how the call ended. A controller sees it only where the node did not take its request, as [`NOT_STARTED`]; it is never a
/// function's own.
pub const CALL_OUTCOME: &str = "fdn-call-outcome";
/// The value of [`CALL_OUTCOME`] for a call that certainly did not reach a function.
pub const NOT_STARTED: &str = "not_started";
/// On such calls, the job that calls ([`crate::job::JobPass`]); functions see the job in `x-fdn-identity`.
pub const JOB: &str = "x-fdn-job";
/// The version to which a call must go, where the app's traffic split allows clients to choose it.
pub const PIN: &str = "x-fdn-pin";
/// The API key of an app's caller.
pub const API_KEY: &str = "x-api-key";
/// The phases of the call in the format of the Server-Timing specification (W3C): `start;dur=0.01, exec;dur=1.2`.
pub const TIMING: &str = "server-timing";
