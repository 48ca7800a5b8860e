//! Tells secondaries that the zone has a new serial number (RFC 1996): at the start, and whenever it changed.
//!
//! A secondary gets one notice at a time, again after twice the time as long as it does not answer, and so often only: it looks for itself from
//! time to time (SOA refresh). The answer to a notice that was signed is signed too, or it is none.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, Query};
use hickory_proto::rr::{LowerName, Name, RecordType};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::handler::transfer::soa;
use crate::handler::tsig::{Key, Session};
use crate::handler::wire;
use crate::metrics::TransferMetrics;
use crate::published::Published;

/// The largest answer to a notice.
const ANSWER: usize = 4096;

/// A secondary.
#[derive(Clone, Debug)]
pub struct Secondary {
    /// Where it listens.
    pub address: SocketAddr,
    /// What its notices are signed with.
    pub key: Option<Arc<Key>>,
}

/// How notices are sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How often a notice is sent that is not answered.
    pub attempts: u32,
    /// How long the first of them may take to be answered; each next one twice as long.
    pub timeout: Duration,
    /// Pause between two notices of different changes.
    pub pause: Duration,
}

/// What notices are about, and where they come from.
#[derive(Clone)]
pub struct Notices {
    /// The zone's name.
    pub apex: LowerName,
    /// The address that secondaries know this server by, if it is one of theirs.
    pub from: IpAddr,
    /// How they are sent.
    pub pace: Pace,
    /// The zone.
    pub published: Arc<Published>,
    /// What counts them.
    pub metrics: TransferMetrics,
}

impl Notices {
    /// Keeps a secondary informed until `shutdown`.
    pub async fn run(self, secondary: Secondary, shutdown: CancellationToken) {
        let mut serials = self.published.serials();
        let work = async {
            loop {
                serials.borrow_and_update();
                self.tell(&secondary).await;
                sleep(self.pace.pause).await;
                // The sender lives as long as the zone, which is held here.
                if serials.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn tell(&self, secondary: &Secondary) {
        let mut patience = self.pace.timeout;
        for _ in 0..self.pace.attempts {
            match timeout(patience, self.exchange(secondary)).await {
                Ok(Ok(())) => {
                    self.metrics.answered.inc();
                    return debug!(secondary = %secondary.address, "the secondary knows of the zone's serial number");
                }
                Ok(Err(cause)) => {
                    debug!(secondary = %secondary.address, %cause, "a notice could not be sent");
                    sleep(patience).await;
                }
                Err(_) => {}
            }
            patience = patience.saturating_mul(2);
        }
        self.metrics.unanswered.inc();
        warn!(secondary = %secondary.address, attempts = self.pace.attempts,
            "a secondary does not answer notices; it learns of changes when it next looks itself");
    }

    /// Sends a notice and waits for its answer.
    async fn exchange(&self, secondary: &Secondary) -> std::io::Result<()> {
        // The names are not held while an answer is waited for: those that were replaced would be kept for as long.
        let notice = notice(&self.apex, |apex| soa(&self.published.names(), apex));
        let (id, mut notice) =
            notice.ok_or_else(|| std::io::Error::other("the zone has no SOA record"))?;
        let mut session = secondary.key.clone().map(Session::begin);
        if let Some(session) = &mut session {
            session.sign(&mut notice, seconds());
        }
        let socket = UdpSocket::bind((source(self.from, secondary.address), 0)).await?;
        socket.connect(secondary.address).await?;
        socket.send(&notice).await?;
        let mut answer = vec![0; ANSWER];
        loop {
            let len = socket.recv(&mut answer).await?;
            if is_answer(&answer[..len], id, session.as_ref()) {
                return Ok(());
            }
        }
    }
}

/// The message (RFC 1996, section 3.7), and its id.
fn notice(
    apex: &LowerName,
    soa: impl FnOnce(&LowerName) -> Option<hickory_proto::rr::Record>,
) -> Option<([u8; 2], Vec<u8>)> {
    let id: u16 = rand::random();
    let mut message = Message::new(id, MessageType::Query, OpCode::Notify);
    message.metadata.authoritative = true;
    message.add_query(Query::query(Name::from(apex), RecordType::SOA));
    message.add_answer(soa(apex)?);
    Some((id.to_be_bytes(), message.to_vec().ok()?))
}

/// Whether this answers the notice: whatever its code is, the secondary has heard (RFC 1996, section 3.8).
fn is_answer(answer: &[u8], id: [u8; 2], session: Option<&Session>) -> bool {
    // QR set, and the opcode of a notice.
    let fits = answer.len() >= wire::HEADER && answer[..2] == id && answer[2] & 0xf8 == 0xa0;
    fits && session.is_none_or(|session| {
        wire::signature(answer).is_some_and(|tsig| session.answered_by(&tsig, seconds()).is_ok())
    })
}

/// The address that a notice comes from: `own` if it is of the secondary's family.
fn source(own: IpAddr, secondary: SocketAddr) -> IpAddr {
    if own.is_ipv4() == secondary.is_ipv4() {
        own
    } else if secondary.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}

/// Seconds since 1970.
fn seconds() -> u64 {
    fdn_service::now().get() / 1000
}
