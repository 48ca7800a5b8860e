//! Domain types, units, ids and messages shared by every process of the function delivery network.
//!
//! Nothing here does I/O, reads a clock or draws a random number: values come in as arguments, and decisions are returned as values.
//! Everything the three services exchange is defined here, because they never import one another: [`message`] and [`feed`] for state and
//! reports, [`api`] for HTTP bodies.

pub mod account;
pub mod address;
pub mod api;
pub mod app;
pub mod applied;
pub mod billing;
pub mod compiled;
pub mod device;
pub mod digest;
pub mod domain;
pub mod enrol;
pub mod error;
pub mod event;
pub mod feed;
pub mod figures;
pub mod fleet;
pub mod form;
pub mod geo;
pub mod id;
pub mod image;
pub mod invitation;
pub mod job;
pub mod label;
pub mod latency;
pub mod manifest;
pub mod message;
pub mod observe;
pub mod phases;
pub mod policy;
pub mod predicted;
pub mod prefix;
pub mod preview;
pub mod repository;
pub mod resources;
pub mod rights;
pub mod rollout;
pub mod runs;
pub mod serving;
pub mod trace;
pub mod txt;
pub mod unit;
pub mod usage;
pub mod weight;
pub mod what_if;
pub mod workflow;

pub use digest::Digest;
pub use error::{Coded, ErrorCode, Fault, ParseError, Problem, Retry};
pub use geo::GeoPoint;
pub use id::{
    ApiTokenId, AppName, BatchId, ClusterId, DataKeyId, DeviceId, EnrolmentId, FormName,
    FunctionName, HostName, InstanceId, InvocationId, JobId, JoinTokenId, KeyId, MessageId, NodeId,
    RecordName, RegionName, RunId, ScheduleName, SecretName, SessionId, SigningKeyName, StageName,
    TenantId, TenantName, TenantTag, UserName, VersionNumber,
};
pub use image::ImageReference;
pub use prefix::{ClientPrefix, PrefixMap};
pub use resources::Resources;
pub use rights::{NetworkRole, Right, TenantRole};
pub use unit::{ByteSize, DurationMs, MebiBytes, MilliCpu, Millis, Revision, Timestamp};
pub use weight::GatewayWeight;
