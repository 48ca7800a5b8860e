//! Domain types, units, ids and messages shared by every process of the function delivery network.
//!
//! Nothing here does I/O, reads a clock or draws a random number: values come in as arguments, decisions come out as
//! values. What the three services tell each other is defined in [`message`] (through the broker) and in [`api`]
//! (over HTTP) and nowhere else, because the services never import one another.

pub mod api;
pub mod device;
pub mod digest;
pub mod enrol;
pub mod error;
pub mod fleet;
pub mod geo;
pub mod id;
pub mod latency;
pub mod manifest;
pub mod message;
pub mod prefix;
pub mod resources;
pub mod unit;
pub mod usage;
pub mod workflow;

pub use digest::Digest;
pub use error::{Coded, ErrorCode, Fault, ParseError, Problem, Retry};
pub use geo::GeoPoint;
pub use id::{
    AppName, BatchId, ClusterId, DeviceId, EnrolmentId, FunctionName, HostName, InstanceId,
    InvocationId, JoinTokenId, MessageId, NodeId, RegionName, SecretName, StageName, TenantId,
    VersionNumber,
};
pub use prefix::{ClientPrefix, PrefixMap};
pub use resources::Resources;
pub use unit::{ByteSize, DurationMs, MebiBytes, MilliCpu, Millis, Revision, Timestamp};
