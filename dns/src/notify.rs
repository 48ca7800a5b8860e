//! Notifies secondaries that the zone has a new serial number (RFC 1996): at the start, and after every change.
//!
//! A secondary gets one notice at a time. While it does not answer, the notice is repeated, with the timeout doubled each time, up to a maximum
//! number of attempts: the secondary also polls by itself (SOA refresh). The answer to a signed notice must be signed too, or it is ignored.

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

/// The largest answer to a notice, in bytes.
const ANSWER: usize = 4096;

/// A secondary.
#[derive(Clone, Debug)]
pub struct Secondary {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The TSIG key that its notices are signed with, if any.
    pub key: Option<Arc<Key>>,
}

/// The timing of notices.
#[derive(Clone, Copy, Debug)]
pub struct NotifyTiming {
    /// How often a notice is sent at most.
    pub attempts: u32,
    /// The timeout of the first attempt; it doubles with each further one.
    pub timeout: Duration,
    /// The pause between the notices of two changes.
    pub pause: Duration,
}

/// What notices are about, and where they are sent from.
#[derive(Clone)]
pub struct Notices {
    /// The zone's name.
    pub apex: LowerName,
    /// The source address of notices to secondaries of its family: the address that they know this server by.
    pub from: IpAddr,
    /// The timing of notices.
    pub timing: NotifyTiming,
    /// The published zone.
    pub published: Arc<Published>,
    /// The counters of notices.
    pub metrics: TransferMetrics,
}

impl Notices {
    /// Notifies a secondary of changes until `shutdown`.
    pub async fn run(self, secondary: Secondary, shutdown: CancellationToken) {
        let mut serials = self.published.serials();
        let work = async {
            loop {
                serials.borrow_and_update();
                self.notify(&secondary).await;
                sleep(self.timing.pause).await;
                // Fails only once the sender is gone, which lives as long as the zone that is held here.
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

    async fn notify(&self, secondary: &Secondary) {
        let mut attempt_timeout = self.timing.timeout;
        for _ in 0..self.timing.attempts {
            match timeout(attempt_timeout, self.exchange(secondary)).await {
                Ok(Ok(())) => {
                    self.metrics.answered.inc();
                    return debug!(secondary = %secondary.address, "the secondary knows of the zone's serial number");
                }
                Ok(Err(cause)) => {
                    debug!(secondary = %secondary.address, %cause, "a notice could not be sent");
                    sleep(attempt_timeout).await;
                }
                Err(_) => {}
            }
            attempt_timeout = attempt_timeout.saturating_mul(2);
        }
        self.metrics.unanswered.inc();
        warn!(secondary = %secondary.address, attempts = self.timing.attempts,
            "a secondary does not answer notices; it learns of changes when it next looks itself");
    }

    /// Sends a notice and waits for its answer.
    async fn exchange(&self, secondary: &Secondary) -> std::io::Result<()> {
        // Do not hold the names while waiting for an answer: that would keep replaced ones in memory for as long.
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

/// The NOTIFY message (RFC 1996, section 3.7), and its id.
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

/// Whether this message answers the notice. Its response code does not matter: the secondary has received the notice (RFC 1996, section 3.8).
fn is_answer(answer: &[u8], id: [u8; 2], session: Option<&Session>) -> bool {
    // QR is set, and the opcode is NOTIFY.
    let fits = answer.len() >= wire::HEADER && answer[..2] == id && answer[2] & 0xf8 == 0xa0;
    fits && session.is_none_or(|session| {
        wire::signature(answer).is_some_and(|tsig| session.answered_by(&tsig, seconds()).is_ok())
    })
}

/// The source address of a notice: `own` if it is of the secondary's address family, otherwise unspecified.
fn source(own: IpAddr, secondary: SocketAddr) -> IpAddr {
    if own.is_ipv4() == secondary.is_ipv4() {
        own
    } else if secondary.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    }
}

/// The current time in seconds since 1970.
fn seconds() -> u64 {
    fdn_service::now().get() / 1000
}
