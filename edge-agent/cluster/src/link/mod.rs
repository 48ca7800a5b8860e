//! Streams between nodes: connecting, being connected to, sending what is queued, and telling the node's task what comes in.
//!
//! One stream per pair of nodes; both sides begin with a hello that names the process, its incarnation and its cluster. With
//! certificates the name must be the certificate's. What is to be sent waits in a bounded [`outbox`]; whoever drains it takes all that waits as one
//! frame, so frames grow with the load and an idle stream sends at once. What comes in waits in one bounded channel; when that is
//! full, streams are not read, and HTTP/2's flow control holds the senders back until their outboxes are full and drop.

pub(crate) mod accept;
pub(crate) mod cut;
pub(crate) mod delay;
pub(crate) mod dial;
pub(crate) mod outbox;
pub(crate) mod tls;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fdn_core::ClusterId;
use rustls::pki_types::CertificateDer;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tracing::debug;

use crate::identity::Member;
use crate::link::cut::Cuts;
use crate::link::delay::DelayLine;
use crate::link::outbox::Outbox;
use crate::link::tls::TlsSource;
use crate::metrics::Metrics;
use crate::peer::Peers;
use crate::settings::ClusterSettings;
use crate::wire::proto::{Body, Frame, Hello};
use crate::wire::{self, proto};
use fdn_core::enrol::NodeIdentity;

/// The window of one stream: what may be under way before the receiver has read it.
pub(crate) const WINDOW: u32 = 1 << 20;
/// The window of one connection, so that the unread bodies of some calls do not hold up those of others.
pub(crate) const CONNECTION_WINDOW: u32 = 32 << 20;

/// A stream, unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(u64);

/// A stream that has begun.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) session: SessionId,
    pub(crate) member: Member,
    /// Whether the other side is a member already.
    pub(crate) joined: bool,
    /// Whether this side has connected.
    pub(crate) dialed: bool,
    pub(crate) outbox: Arc<Outbox>,
    /// Ends it.
    pub(crate) closer: CancellationToken,
}

/// What streams tell the node's task.
#[derive(Debug)]
pub(crate) enum FromLink {
    Opened(Box<Opened>),
    Frame(SessionId, Frame),
    Closed(SessionId),
    /// Nobody could be reached there.
    Unreached(std::net::SocketAddr),
}

/// What all streams of a node share.
pub(crate) struct Links {
    pub(crate) settings: Arc<ClusterSettings>,
    /// What answers other requests of other nodes.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    pub(crate) cluster: ClusterId,
    pub(crate) tls: Option<TlsSource>,
    /// What this node says first.
    pub(crate) hello: Mutex<Hello>,
    pub(crate) events: mpsc::Sender<FromLink>,
    pub(crate) cuts: Cuts,
    pub(crate) delay: Option<DelayLine>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
    pub(crate) sessions: AtomicU64,
}

impl Links {
    /// A new outbox, the hello in it.
    fn outbox(&self) -> Arc<Outbox> {
        let outbox = Arc::new(Outbox::new(
            self.settings.limits.send_queue,
            self.settings.limits.frame,
            self.delay.clone(),
            self.cuts.clone(),
            self.metrics.clone(),
        ));
        let hello = self.hello.lock().unwrap_or_else(PoisonError::into_inner);
        outbox.push(&mut vec![Body::Hello(hello.clone()).into()]);
        outbox
    }

    /// Who showed these certificates, if that is somebody to talk with.
    pub(crate) fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<NodeIdentity> {
        let first = chain?.first()?;
        let identity = tls::identity(chain)?;
        let is_welcome = |peers: &Arc<dyn Peers>| peers.is_welcome(&identity, first);
        self.peers
            .as_ref()
            .is_none_or(is_welcome)
            .then_some(identity)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.settings.timing.connect.as_duration()
    }

    /// Reads a stream until it ends.
    async fn run(
        &self,
        mut frames: Streaming<Frame>,
        outbox: Arc<Outbox>,
        identity: Option<NodeIdentity>,
        dialed: bool,
    ) {
        let session = SessionId(self.sessions.fetch_add(1, Ordering::Relaxed));
        let closer = self.stop.child_token();
        let opened = timeout(self.connect_timeout(), frames.message()).await;
        let first = match opened {
            Ok(Ok(Some(frame))) => self.greeted(frame, identity.as_ref()),
            Ok(Ok(None)) => Err("it ended before the hello".to_owned()),
            Ok(Err(status)) => Err(status.message().to_owned()),
            Err(_) => Err("no hello came in time".to_owned()),
        };
        match first {
            Err(reason) => {
                debug!(reason, "a stream between nodes was refused");
                self.metrics.streams_refused.inc();
            }
            Ok((member, joined, rest)) => {
                outbox.to(&member.node);
                let node = member.node.clone();
                let opened = Opened {
                    session,
                    member,
                    joined,
                    dialed,
                    outbox: Arc::clone(&outbox),
                    closer: closer.clone(),
                };
                if self.tell(FromLink::Opened(Box::new(opened))).await
                    && self.tell(FromLink::Frame(session, rest)).await
                {
                    self.metrics.streams.inc();
                    let read = async {
                        while let Ok(Some(frame)) = frames.message().await {
                            if self.cuts.is_cut(&node) {
                                continue;
                            }
                            if !self.tell(FromLink::Frame(session, frame)).await {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = read => {}
                        () = closer.cancelled() => {}
                    }
                    self.metrics.streams.dec();
                }
                self.tell(FromLink::Closed(session)).await;
            }
        }
        outbox.close();
    }

    async fn tell(&self, event: FromLink) -> bool {
        self.events.send(event).await.is_ok()
    }

    /// The first frame: its hello, and what came with it.
    fn greeted(
        &self,
        mut frame: Frame,
        identity: Option<&NodeIdentity>,
    ) -> Result<(Member, bool, Frame), String> {
        if frame.items.is_empty() {
            return Err("the first frame is empty".to_owned());
        }
        let Some(Body::Hello(hello)) = frame.items.remove(0).body else {
            return Err("the first message is not a hello".to_owned());
        };
        if hello.version != wire::VERSION {
            return Err(format!("version {} is spoken there", hello.version));
        }
        if hello.cluster != self.cluster.as_str() {
            return Err(format!("the cluster there is {}", hello.cluster));
        }
        let member = Member::try_from(&hello.member).map_err(|error| error.to_string())?;
        match identity {
            Some(identity) if identity.node != member.node || identity.cluster != self.cluster => {
                return Err(format!("{} says that it is {}", identity, member.node));
            }
            None if self.tls.is_some() => return Err("it showed no certificate".to_owned()),
            Some(_) | None => {}
        }
        if self.cuts.is_cut(&member.node) {
            return Err("the link is cut".to_owned());
        }
        Ok((member, hello.joined, frame))
    }
}

/// This node's hello.
pub(crate) fn hello(cluster: &ClusterId, member: &Member, joined: bool) -> Hello {
    Hello {
        version: wire::VERSION,
        cluster: cluster.to_string(),
        member: proto::Member::from(member),
        joined,
    }
}
