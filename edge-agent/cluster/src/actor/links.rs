//! The streams to other processes, and the messages to be sent on them at the end of the turn.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdn_core::NodeId;
use rand::{Rng, RngExt};
use tokio_util::sync::CancellationToken;

use crate::identity::{Key, Tag};
use crate::link::outbox::Outbox;
use crate::link::{Links, Opened, SessionId, dial};
use crate::wire::proto::{Body, Item};

/// The first pause between two attempts to connect.
const RECONNECT_FIRST: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Link {
    session: SessionId,
    key: Key,
    /// The name of the node at the other end.
    node: NodeId,
    outbox: Arc<Outbox>,
    closer: CancellationToken,
    /// Whether the stream was opened by the side that should do so.
    proper: bool,
    pending: Vec<Item>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Attempts {
    under_way: bool,
    failed: u32,
    not_before: Option<Instant>,
}

/// All streams.
pub(super) struct Streams {
    links: Arc<Links>,
    by_tag: BTreeMap<Tag, Link>,
    by_session: BTreeMap<SessionId, Tag>,
    dials: BTreeMap<SocketAddr, Attempts>,
}

impl Streams {
    pub(super) const fn new(links: Arc<Links>) -> Self {
        Self {
            links,
            by_tag: BTreeMap::new(),
            by_session: BTreeMap::new(),
            dials: BTreeMap::new(),
        }
    }

    pub(super) fn shared(&self) -> &Links {
        &self.links
    }

    /// The process at the other end of a stream.
    pub(super) fn peer(&self, session: SessionId) -> Option<Key> {
        let link = self.by_tag.get(self.by_session.get(&session)?)?;
        (link.session == session).then_some(link.key)
    }

    /// The incarnation at the other end of the stream to a process.
    pub(super) fn key(&self, tag: Tag) -> Option<Key> {
        self.by_tag.get(&tag).map(|link| link.key)
    }

    /// The node at the other end of the stream to a process.
    pub(super) fn node(&self, tag: Tag) -> Option<&NodeId> {
        self.by_tag.get(&tag).map(|link| &link.node)
    }

    pub(super) fn is_connected(&self, tag: Tag) -> bool {
        self.by_tag.contains_key(&tag)
    }

    /// Adds a new stream. If there is another one to the same process, the stream opened by the right side is kept. `false` if the new one is closed.
    /// The tag must be that node's: a stream of another node under it is closed.
    pub(super) fn attach(&mut self, opened: Opened, proper: bool) -> bool {
        let key = opened.member.key;
        if let Some(other) = self.by_tag.get(&key.tag)
            && other.node == opened.member.node
            && (other.key.incarnation > key.incarnation
                || other.key == key && other.proper && !proper)
        {
            opened.closer.cancel();
            return false;
        }
        self.drop_link(key.tag);
        self.by_session.insert(opened.session, key.tag);
        self.by_tag.insert(
            key.tag,
            Link {
                session: opened.session,
                key,
                node: opened.member.node,
                outbox: opened.outbox,
                closer: opened.closer,
                proper,
                pending: Vec::new(),
            },
        );
        true
    }

    /// Closes the stream to a process.
    pub(super) fn drop_link(&mut self, tag: Tag) {
        if let Some(link) = self.by_tag.remove(&tag) {
            self.by_session.remove(&link.session);
            link.closer.cancel();
        }
    }

    /// Closes all streams to a node.
    pub(super) fn drop_node(&mut self, node: &NodeId) {
        let links = self.by_tag.iter().filter(|(_, link)| link.node == *node);
        let tags: Vec<Tag> = links.map(|(tag, _)| *tag).collect();
        for tag in tags {
            self.drop_link(tag);
        }
    }

    pub(super) fn drop_all(&mut self) {
        let tags: Vec<Tag> = self.by_tag.keys().copied().collect();
        for tag in tags {
            self.drop_link(tag);
        }
    }

    /// Removes a closed stream; returns its process if it was the stream in use.
    pub(super) fn closed(&mut self, session: SessionId) -> Option<Tag> {
        let tag = self.by_session.remove(&session)?;
        if self.by_tag.get(&tag)?.session == session {
            self.by_tag.remove(&tag);
            return Some(tag);
        }
        None
    }

    /// Queues a message until the end of the turn; `false` if there is no stream to that process.
    pub(super) fn send(&mut self, to: Tag, body: Body) -> bool {
        match self.by_tag.get_mut(&to) {
            Some(link) => {
                link.pending.push(body.into());
                true
            }
            None => {
                self.links.metrics.dropped.inc();
                false
            }
        }
    }

    /// Queues a message for all processes.
    pub(super) fn send_all(&mut self, body: &Body) {
        for link in self.by_tag.values_mut() {
            link.pending.push(body.clone().into());
        }
    }

    /// Sends what is queued, at the end of the turn.
    pub(super) fn flush(&mut self) {
        for link in self.by_tag.values_mut() {
            if !link.pending.is_empty() {
                link.outbox.push(&mut link.pending);
            }
        }
    }

    /// Connects to an address, unless an attempt is under way or its back-off has not passed.
    pub(super) fn dial(&mut self, address: SocketAddr) {
        let now = Instant::now();
        let attempts = self.dials.entry(address).or_default();
        if attempts.under_way || attempts.not_before.is_some_and(|at| now < at) {
            return;
        }
        attempts.under_way = true;
        tokio::spawn(dial::dial(Arc::clone(&self.links), address));
    }

    /// Handles the end of a connection to an address, or a failed attempt.
    pub(super) fn on_disconnected(&mut self, address: SocketAddr, rng: &mut impl Rng) {
        let most = self.links.settings.timing.reconnect_most.as_duration();
        let attempts = self.dials.entry(address).or_default();
        attempts.under_way = false;
        let pause = RECONNECT_FIRST
            .saturating_mul(1 << attempts.failed.min(10))
            .min(most);
        attempts.failed = attempts.failed.saturating_add(1);
        // Between half and all of it, so that nodes do not reconnect in step.
        let pause = pause.mul_f64(rng.random_range(0.5..=1.0));
        attempts.not_before = Some(Instant::now() + pause);
    }

    /// Resets the back-off of an address where a member has answered. That a stream was opened is not enough: a node that refuses this one
    /// opens streams, too, and would be asked again and again without a pause.
    pub(super) fn reset_backoff(&mut self, address: SocketAddr) {
        if let Some(attempts) = self.dials.get_mut(&address) {
            attempts.failed = 0;
        }
    }

    /// Before when no further attempt is made.
    #[cfg(test)]
    pub(super) fn next_attempt(&self, address: SocketAddr) -> Option<Instant> {
        self.dials.get(&address)?.not_before
    }

    /// Forgets addresses that are no longer wanted.
    pub(super) fn forget_addresses(&mut self, is_wanted: impl Fn(&SocketAddr) -> bool) {
        self.dials
            .retain(|address, attempts| attempts.under_way || is_wanted(address));
    }
}
