//! The feed of one machine: a response body that is produced as fast as its reader takes it.
//!
//! A feed has no queue of its own. It holds the number of the last change that it sent, and looks up the following ones in the change log when its
//! connection has room; if a slow reader has missed changes that are gone from the log, it gets a snapshot instead.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use fdn_core::Revision;
use fdn_core::enrol::Machine;
use fdn_core::feed::{Frame, Hello};
use fdn_service::CancellationToken;
use futures::Stream;
use tokio::sync::watch;

use super::change::encode;
use super::change_log::{FeedPiece, FeedStart, NextPieces};
use super::load::encoding_error;
use super::machines::GaugeGuard;
use crate::Error;
use crate::state::{State, lock};

/// The most changes looked up at once.
const BATCH: usize = 32;

/// A feed.
struct Feed {
    state: Arc<State>,
    machine: Machine,
    /// The number of the last change sent.
    sent: u64,
    /// The revision up to which another controller has told the machine everything, while this one may not have everything up to there.
    ahead: Option<Revision>,
    /// Whether a frame `At` is due.
    due: bool,
    pending: VecDeque<FeedPiece>,
    changed: watch::Receiver<u64>,
    beat: watch::Receiver<()>,
    end: CancellationToken,
    _counted: GaugeGuard,
}

/// The body of a feed for a machine that has been told everything up to `since`. It ends with `end`, or when its reader does.
///
/// # Errors
/// When a frame cannot be serialized, which would be a bug.
pub(super) fn body(
    state: Arc<State>,
    machine: Machine,
    since: Revision,
    end: CancellationToken,
) -> Result<impl Stream<Item = Result<Bytes, Error>> + Send + 'static, Error> {
    let every = state.settings.edge.heartbeat;
    let hello = Frame::Hello(Hello { heartbeat: every });
    let hello = Bytes::from(hello.encode().map_err(encoding_error)?);
    let changed = state.edge.feed_waker.of(machine.role).subscribe();
    let beat = state.edge.heartbeat.join();
    let counted = GaugeGuard::feed(&state.metrics, machine.role);
    let mut feed = Feed {
        machine,
        sent: 0,
        ahead: None,
        // A machine that resumes is told at once how far it is.
        due: true,
        pending: VecDeque::from([FeedPiece::Frame(hello)]),
        changed,
        beat,
        end,
        state,
        _counted: counted,
    };
    let (start, unversioned) = {
        let change_log = lock(&feed.state.edge.change_log);
        feed.ahead = (since > change_log.complete_revision()).then_some(since);
        (
            change_log.start(since),
            change_log.unversioned_change(&feed.machine),
        )
    };
    match start {
        FeedStart::Resume(sent) => {
            feed.sent = sent;
            feed.pending.extend(unversioned.map(FeedPiece::Change));
        }
        FeedStart::Snapshot if since == Revision::NONE => feed.snapshot("first")?,
        FeedStart::Snapshot => feed.snapshot("gap")?,
    }
    Ok(futures::stream::unfold(feed, |mut feed| async move {
        let next = feed.next().await?;
        Some((next, feed))
    }))
}

impl Feed {
    /// Queues a snapshot.
    fn snapshot(&mut self, why: &str) -> Result<(), Error> {
        let snapshots = &self.state.metrics.edge.snapshots;
        snapshots.with_label_values(&[why]).inc();
        let (all, revision) = {
            let change_log = lock(&self.state.edge.change_log);
            self.sent = change_log.last();
            (
                change_log.snapshot(&self.machine),
                change_log.complete_revision(),
            )
        };
        (self.ahead, self.due) = (None, false);
        self.push(&Frame::Snapshot(revision))?;
        self.pending.extend(all.into_iter().map(FeedPiece::Change));
        self.push(&Frame::At(revision))
    }

    /// The next bytes; `None` when the feed ends.
    async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            if self.end.is_cancelled() {
                return None;
            }
            match self.pending.pop_front() {
                Some(FeedPiece::Frame(bytes)) => {
                    self.state.metrics.edge.frames.inc();
                    return Some(Ok(bytes));
                }
                Some(FeedPiece::Change(change)) => {
                    self.state.metrics.edge.frames.inc();
                    return Some(encode(&self.machine, &change).map_err(encoding_error));
                }
                None => {}
            }
            match self.find_changes() {
                Ok(true) => {}
                Ok(false) => self.wait().await,
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn push(&mut self, frame: &Frame) -> Result<(), Error> {
        let bytes = frame.encode().map_err(encoding_error)?;
        self.pending.push_back(FeedPiece::Frame(bytes.into()));
        Ok(())
    }

    /// Looks for changes; returns whether there is something to send.
    fn find_changes(&mut self) -> Result<bool, Error> {
        self.changed.mark_unchanged();
        let (next, last, revision, floor) = {
            let change_log = lock(&self.state.edge.change_log);
            let next = change_log.next(&self.machine, self.sent, BATCH);
            (
                next,
                change_log.last(),
                change_log.complete_revision(),
                change_log.floor(),
            )
        };
        if self.ahead.is_some_and(|since| since < floor) {
            // Things that another controller told it may have come and gone before this controller received them.
            self.snapshot("ahead")?;
            return Ok(true);
        }
        self.ahead = self.ahead.filter(|since| *since > revision);
        match next {
            NextPieces::Behind => {
                self.snapshot("slow")?;
                Ok(true)
            }
            NextPieces::Pieces(pieces, sent) => {
                self.sent = sent;
                let any = !pieces.is_empty();
                self.due |= any;
                self.pending.extend(pieces);
                // A machine without a change gets `At` only with the next heartbeat: most changes are for few machines.
                let whole = sent == last && self.due;
                if whole {
                    self.due = false;
                    self.push(&Frame::At(revision))?;
                }
                Ok(any || whole || sent < last)
            }
        }
    }

    /// Waits for a change, the next heartbeat, or the end.
    async fn wait(&mut self) {
        tokio::select! {
            // The senders live as long as the state.
            _ = self.changed.changed() => {}
            // The heartbeat is an `At`, which says that everything up to there was sent; so it comes only after all other frames.
            _ = self.beat.changed() => self.due = true,
            () = self.end.cancelled() => {}
        }
    }
}
