//! The link of an edge machine to the controllers: one outgoing TLS connection to any controller.
//!
//! [`Link::start`] maintains that connection: it tries one controller after another until one answers, passes on the feed as [`FeedEvent`], and
//! lets the machine's components send requests over the same connection ([`ControllerLink::send`]). Both sides present certificates of the network's
//! authority: the controller is authenticated by that, whatever its address, and the machine is authorized by its own.
//!
//! Nothing is queued while no controller is reachable: a request then fails at once, and its sender repeats it later.

mod backoff;
pub mod disk;
mod error;
pub mod join;
mod link;
mod proxy;
mod request;
mod rotation;
mod settings;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::Revision;
use fdn_core::feed::Frame;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::{Notify, mpsc, watch};

pub use backoff::pause;
pub use error::LinkError;
pub use link::{Link, LinkMetrics};
pub use request::{post_json, read_body, report};
pub use settings::{ControllerLinkSettings, IdentityFiles};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The controllers, as the recipients of requests.
#[async_trait]
pub trait ControllerLink: Send + Sync + 'static {
    /// Sends a request whose URI is only a path; returns the answer's head, and its body as a stream.
    ///
    /// # Errors
    /// When there is no connection, it breaks, or the answer takes too long.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, LinkError>;
}

/// The controllers' side of the connection, shared by the components of a machine.
pub type SharedControllerLink = Arc<dyn ControllerLink>;

/// An event of the feed.
#[derive(Debug)]
pub enum FeedEvent {
    /// All state for this machine at a revision: whatever it holds at this revision or an older one and is not in the snapshot has been deleted.
    Snapshot(Revision, Vec<Frame>),
    /// A change.
    Change(Frame),
    /// Everything up to this revision has been sent.
    At(Revision),
    /// This machine was removed from the network: its certificate is no longer accepted.
    Removed,
}

/// The receiving side of the connection.
#[derive(Debug)]
pub struct Feed {
    /// The events of the feed, in order.
    pub events: mpsc::Receiver<FeedEvent>,
    /// Whether a controller is connected.
    pub connected: watch::Receiver<bool>,
    /// Requests a new snapshot, because something is missing on this machine.
    pub resync: Arc<Notify>,
}

/// A machine's handle to its connection.
pub struct Connection {
    /// For sending requests.
    pub controllers: SharedControllerLink,
    /// For receiving the feed.
    pub feed: Feed,
}
