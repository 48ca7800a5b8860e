//! A machine at the edge and the centre: one outgoing TLS connection to any controller.
//!
//! [`Link::start`] keeps that connection: it goes from one controller to the next until one answers, hands out what the feed tells as [`Told`], and
//! lets the machine's parts ask over the same connection ([`Centre::ask`]). Both sides show certificates of the network's authority: the controller is
//! known by that, whatever its address, and everything that the machine says is judged by its own.
//!
//! Nothing is kept for a controller that is away: whoever asks is told so at once, and says it again later.

mod ask;
mod backoff;
pub mod disk;
mod error;
pub mod join;
mod link;
mod proxy;
mod settings;
mod turns;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use fdn_core::Revision;
use fdn_core::feed::Frame;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::{Notify, mpsc, watch};

pub use ask::{ask_json, read_body, report};
pub use backoff::pause;
pub use error::LinkError;
pub use link::{Link, LinkMetrics};
pub use settings::{CentreSettings, IdentityFiles};

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Whoever answers for the controllers.
#[async_trait]
pub trait Centre: Send + Sync + 'static {
    /// Asks over the connection, with the path alone as the address; the answer's head, and its body as it comes.
    ///
    /// # Errors
    /// When there is no connection, or it broke.
    async fn ask(&self, request: Request<Bytes>) -> Result<Response<Body>, LinkError>;
}

/// The centre, as the parts of a machine share it.
pub type SharedCentre = Arc<dyn Centre>;

/// What the feed tells.
#[derive(Debug)]
pub enum Told {
    /// All there is for this machine at a revision: what it holds at an older or equal one and is not here is gone.
    Snapshot(Revision, Vec<Frame>),
    /// A change.
    Change(Frame),
    /// All up to this revision was told.
    At(Revision),
    /// This machine was removed from the network: its certificate no longer counts.
    Removed,
}

/// What a machine hears.
#[derive(Debug)]
pub struct Feed {
    /// What is told, in order.
    pub told: mpsc::Receiver<Told>,
    /// Whether a controller is connected.
    pub connected: watch::Receiver<bool>,
    /// Asks for a snapshot: something is missing here.
    pub again: Arc<Notify>,
}

/// A machine's end of its connection.
pub struct Connection {
    /// For asking.
    pub centre: SharedCentre,
    /// For hearing.
    pub feed: Feed,
}
