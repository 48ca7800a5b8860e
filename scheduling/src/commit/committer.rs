//! The single committer: only it changes node records, list by list, in the order in which lists arrive.

use fdn_core::{Coded, ErrorCode, InstanceId, Millis, Resources};

use super::list::{Assignment, Container, List, Ticket};
use super::merge::Merge;
use super::record::{NodeIndex, Version};
use super::score::Scoring;
use super::serial;
use super::settings::{Settings, SettingsError};
use super::store::Store;
use super::table::{ContainerState, Table};

/// Why a container or node is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The bound on unplaced containers is reached.
    #[error("{max} containers wait to be placed, the most that may")]
    Unplaced {
        /// The bound.
        max: usize,
    },
    /// The bound on known containers is reached.
    #[error("{max} containers are known, the most that may be")]
    Containers {
        /// The bound.
        max: usize,
    },
    /// The bound on nodes is reached.
    #[error("{max} nodes are known, the most that may be")]
    Nodes {
        /// The bound.
        max: usize,
    },
}

impl Coded for Refusal {
    fn code(&self) -> ErrorCode {
        ErrorCode::Overloaded
    }
}

/// The result of submitting a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted {
    /// It is pending.
    Queued,
    /// It was submitted before, and this is its place.
    Known(ContainerState),
}

/// A container that was placed on a node; the node must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The container.
    pub container: Container,
    /// The node.
    pub node: NodeIndex,
    /// The node's version after the placement.
    pub version: Version,
}

/// The outcome of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The container is placed.
    Placed(Placed),
    /// No node of the list has room any more; the container is pending again.
    Returned,
    /// No node has room; the container waits for the first one that gains capacity.
    Waiting,
    /// The container is not handed out for this attempt: the list is late or a duplicate, and nothing was done.
    Ignored,
}

/// The outcome of a list, with figures for the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The outcome.
    pub verdict: Verdict,
    /// The number of entries whose node had changed: the length of list 3.
    pub changed: usize,
    /// Whether all nodes were scanned.
    pub scanned: bool,
}

/// The committer: see [`super`].
#[derive(Debug)]
pub struct Committer<S> {
    pub(super) settings: Settings,
    scoring: S,
    pub(super) store: Store,
    pub(super) table: Table,
    merge: Merge,
    /// Unused node indices, the smallest last.
    pub(super) absent: Vec<NodeIndex>,
    attempts: u64,
}

impl<S: Scoring> Committer<S> {
    /// A committer without nodes.
    ///
    /// # Errors
    /// When a bound is out of its range.
    pub fn new(settings: Settings, scoring: S) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self {
            settings,
            scoring,
            store: Store::new(settings.history),
            table: Table::default(),
            merge: Merge::default(),
            absent: Vec::new(),
            attempts: 0,
        })
    }

    /// The node records, for pre-schedulers to read.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The lists of the last commit.
    #[must_use]
    pub const fn merge(&self) -> &Merge {
        &self.merge
    }

    /// The place of a container; `None` if it is not known.
    #[must_use]
    pub fn find(&self, id: InstanceId) -> Option<ContainerState> {
        Some(self.table.slot(self.table.find(id)?).at)
    }

    /// All containers and their places, by id.
    pub fn containers(&self) -> impl Iterator<Item = (Container, ContainerState)> {
        self.table.iter().map(|slot| (slot.container, slot.at))
    }

    /// The number of containers in such a place.
    #[must_use]
    pub fn count(&self, at: ContainerState) -> usize {
        self.table.count(at)
    }

    /// Accepts a container once; submitting it again has no effect.
    ///
    /// # Errors
    /// When a bound is reached; nothing is changed then.
    pub fn submit(&mut self, container: Container) -> Result<Submitted, Refusal> {
        if let Some(at) = self.find(container.id) {
            return Ok(Submitted::Known(at));
        }
        let max = self.settings.unplaced_max;
        let unplaced = [
            ContainerState::Pending,
            ContainerState::Out,
            ContainerState::Waiting,
        ];
        if unplaced.map(|at| self.count(at)).iter().sum::<usize>() >= max {
            return Err(Refusal::Unplaced { max });
        }
        let max = self.settings.containers_max;
        if self.table.len() >= max {
            return Err(Refusal::Containers { max });
        }
        self.table.insert(container);
        Ok(Submitted::Queued)
    }

    /// Hands the container that has been pending longest to a pre-scheduler; `None` if none is pending, or the bound on containers
    /// handed out is reached. Containers whose lease has ended become pending first.
    pub fn take(&mut self, now: Millis) -> Option<Assignment> {
        self.expire(now);
        if self.count(ContainerState::Out) >= self.settings.in_flight_max {
            return None;
        }
        let slot = self.table.first(ContainerState::Pending)?;
        self.table.move_to(slot, ContainerState::Out);
        self.attempts += 1;
        let taken = self.table.slot_mut(slot);
        taken.attempt = self.attempts;
        taken.taken = now;
        Some(Assignment {
            ticket: Ticket {
                slot,
                attempt: self.attempts,
            },
            container: taken.container,
        })
    }

    /// Makes containers pending again whose lease has ended, and returns their number. Time must not go back.
    pub fn expire(&mut self, now: Millis) -> usize {
        let mut expired = 0;
        while let Some(slot) = self.table.first(ContainerState::Out)
            && self.table.slot(slot).taken + self.settings.lease <= now
        {
            self.table.move_to(slot, ContainerState::Pending);
            expired += 1;
        }
        expired
    }

    /// Commits a list: the container goes to the first of its nodes, in the order of their present scores, that has room.
    ///
    /// O(h log h) for h entries; O(n) for n nodes when too many lists for this container have failed. Allocates nothing once the
    /// buffers have grown to the longest list.
    pub fn commit(&mut self, list: &List) -> Commit {
        let Some(slot) = self.table.out_for(list.ticket) else {
            return Commit {
                verdict: Verdict::Ignored,
                changed: 0,
                scanned: false,
            };
        };
        let container = self.table.slot(slot).container;
        let order = self.merge.run(
            &list.entries,
            self.store.records(),
            &container.demand,
            &self.scoring,
        );
        let mut placed = order.iter().find_map(|entry| {
            let version = self.store.reserve(entry.node, &container.demand)?;
            Some((entry.node, version))
        });
        let changed = self.merge.changed().len();
        let mut scanned = false;
        if placed.is_none() {
            let retries = &mut self.table.slot_mut(slot).retries;
            *retries += 1;
            if *retries <= self.settings.retries_max {
                self.table.move_to(slot, ContainerState::Pending);
                return Commit {
                    verdict: Verdict::Returned,
                    changed,
                    scanned,
                };
            }
            scanned = true;
            placed = self.scan(&container.demand);
        }
        let verdict = match placed {
            Some((node, version)) => {
                self.table.move_to(slot, ContainerState::On(node));
                Verdict::Placed(Placed {
                    container,
                    node,
                    version,
                })
            }
            None => {
                self.table.move_to(slot, ContainerState::Waiting);
                Verdict::Waiting
            }
        };
        Commit {
            verdict,
            changed,
            scanned,
        }
    }

    /// Places a container on the best of all nodes.
    fn scan(&mut self, demand: &Resources) -> Option<(NodeIndex, Version)> {
        let node = serial::best(self.store.records(), demand, &self.scoring)?;
        let version = self.store.reserve(node, demand)?;
        Some((node, version))
    }

    /// Forgets a container, wherever it is, and returns its place. The capacity that it frees goes to waiting containers.
    pub fn release(&mut self, id: InstanceId, placed: &mut Vec<Placed>) -> Option<ContainerState> {
        let slot = self.table.find(id)?;
        let gone = self.table.remove(slot);
        if let ContainerState::On(node) = gone.at {
            self.store.give_back(node, &gone.container.demand);
            self.serve(node, placed);
        }
        Some(gone.at)
    }
}
