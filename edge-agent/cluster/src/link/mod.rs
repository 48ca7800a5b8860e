//! Streams between nodes: connecting, accepting, sending queued messages, and passing received frames to the node's task.
//!
//! There is one stream per pair of nodes; both sides begin with a hello that names the process, its incarnation and its cluster. With
//! certificates, the name must be the certificate's. Outgoing messages wait in a bounded [`outbox`]; draining it takes all waiting messages as one
//! frame, so frames grow with the load and an idle stream sends at once. Received frames wait in one bounded channel; when that is
//! full, streams are not read, and HTTP/2's flow control holds the senders back until their outboxes are full and drop messages.

pub(crate) mod accept;
pub(crate) mod cut;
pub(crate) mod delay;
pub(crate) mod dial;
pub(crate) mod outbox;
pub(crate) mod tls;

use std::fmt;
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
use crate::peer::{Peers, StillWelcome};
use crate::settings::ClusterSettings;
use crate::wire::proto::{Body, Frame, Hello};
use crate::wire::{self, proto};
use fdn_core::enrol::NodeIdentity;

/// The flow-control window of one stream: the bytes that may be in flight before the receiver has read them.
pub(crate) const WINDOW: u32 = 1 << 20;
/// The window of one connection, large enough that the unread bodies of some calls do not delay those of others.
pub(crate) const CONNECTION_WINDOW: u32 = 32 << 20;

/// How often it is asked whether the node at the other end of an open connection is still to be talked to.
const ASK: Duration = Duration::from_secs(1);

/// The id of a stream, unique in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SessionId(pub(crate) u64);

/// Who is at the other end of a connection with certificates.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) identity: NodeIdentity,
    /// `None` if every node with a certificate of the authority is welcome.
    pub(crate) still_welcome: Option<StillWelcome>,
}

impl Peer {
    /// Whether it is still to be talked to.
    pub(crate) fn is_welcome(&self) -> bool {
        self.still_welcome.as_ref().is_none_or(|ask| ask())
    }
}

/// Resolves once the node at the other end of a connection is no longer to be talked to.
pub(crate) async fn unwelcome(peer: Option<&Peer>) {
    let Some(peer) = peer.filter(|peer| peer.still_welcome.is_some()) else {
        return std::future::pending().await;
    };
    while peer.is_welcome() {
        tokio::time::sleep(ASK).await;
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Peer").field(&self.identity).finish()
    }
}

/// A newly opened stream.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Who opened it, or was connected to; `None` without certificates.
    pub(crate) peer: Option<Peer>,
    pub(crate) session: SessionId,
    pub(crate) member: Member,
    /// Whether the other side is already a member.
    pub(crate) joined: bool,
    /// Whether this side has connected.
    pub(crate) dialed: bool,
    pub(crate) outbox: Arc<Outbox>,
    /// Closes the stream when cancelled.
    pub(crate) closer: CancellationToken,
}

/// An event of a stream, for the node's task.
#[derive(Debug)]
pub(crate) enum LinkEvent {
    Opened(Box<Opened>),
    Frame(SessionId, Frame),
    Closed(SessionId),
    /// No node could be reached at this address, or the connection to it has ended.
    Unreached(std::net::SocketAddr),
}

/// State shared by all streams of a node.
pub(crate) struct Links {
    pub(crate) settings: Arc<ClusterSettings>,
    /// Answers other requests of other nodes.
    pub(crate) peers: Option<Arc<dyn Peers>>,
    pub(crate) cluster: ClusterId,
    pub(crate) tls: Option<TlsSource>,
    /// This node's present hello.
    pub(crate) hello: Mutex<Hello>,
    pub(crate) events: mpsc::Sender<LinkEvent>,
    pub(crate) cuts: Cuts,
    pub(crate) delay: Option<DelayLine>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
    pub(crate) sessions: AtomicU64,
}

impl Links {
    /// A new outbox that contains the hello.
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

    /// The node that a certificate chain names; `None` if there is none or it is not to be talked to.
    pub(crate) fn identify(&self, chain: Option<&[CertificateDer<'_>]>) -> Option<Peer> {
        let first = chain?.first()?;
        let identity = tls::identity(chain)?;
        let still_welcome = match &self.peers {
            Some(peers) => Some(peers.welcome(&identity, first)?),
            None => None,
        };
        Some(Peer {
            identity,
            still_welcome,
        })
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.settings.timing.connect.as_duration()
    }

    /// Runs a stream until it ends: checks the hello, then passes on the frames.
    async fn run(
        &self,
        mut frames: Streaming<Frame>,
        outbox: Arc<Outbox>,
        peer: Option<Peer>,
        dialed: bool,
    ) {
        let session = SessionId(self.sessions.fetch_add(1, Ordering::Relaxed));
        let closer = self.stop.child_token();
        let opened = timeout(self.connect_timeout(), frames.message()).await;
        let identity = peer.as_ref().map(|peer| &peer.identity);
        let first = match opened {
            Ok(Ok(Some(frame))) => self.greeted(frame, identity),
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
                let (node, shown) = (member.node.clone(), peer.clone());
                let opened = Opened {
                    peer,
                    session,
                    member,
                    joined,
                    dialed,
                    outbox: Arc::clone(&outbox),
                    closer: closer.clone(),
                };
                if self.emit(LinkEvent::Opened(Box::new(opened))).await
                    && self.emit(LinkEvent::Frame(session, rest)).await
                {
                    self.metrics.streams.inc();
                    let read = async {
                        while let Ok(Some(frame)) = frames.message().await {
                            if self.cuts.is_cut(&node) {
                                continue;
                            }
                            if !self.emit(LinkEvent::Frame(session, frame)).await {
                                return;
                            }
                        }
                    };
                    tokio::select! {
                        () = read => {}
                        () = closer.cancelled() => {}
                        () = unwelcome(shown.as_ref()) => {}
                    }
                    self.metrics.streams.dec();
                }
                self.emit(LinkEvent::Closed(session)).await;
            }
        }
        outbox.close();
    }

    async fn emit(&self, event: LinkEvent) -> bool {
        self.events.send(event).await.is_ok()
    }

    /// Checks the first frame: returns the other side's member, whether it has joined, and the rest of the frame.
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
