//! What nodes say, copied unless it is old.

use fdn_core::InstanceId;

use super::instances::{Instance, Lost};
use super::lifecycle::State;
use super::profile::FunctionIndex;
use super::stamp::{News, NodeReport, Stamp};
use super::{Node, Registry, RegistryError};
use crate::NodeIndex;

/// What a node says of one of its instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// The instance.
    pub id: InstanceId,
    /// Whose it is.
    pub function: FunctionIndex,
    /// What it does; a node has none that are pending.
    pub state: State,
    /// When it began to do so.
    pub stamp: Stamp,
}

impl Registry {
    /// A node says how it is. With the first report of a new start, what was on it before is appended to `lost`, by id.
    ///
    /// # Errors
    /// When the node's place is beyond the bound.
    pub fn observe_node(
        &mut self,
        node: NodeIndex,
        stamp: Stamp,
        report: NodeReport,
        lost: &mut Vec<Lost>,
    ) -> Result<News, RegistryError> {
        let max = self.limits.nodes;
        if node.get() >= max {
            return Err(RegistryError::Full { what: "nodes", max });
        }
        if node.get() >= self.nodes.len() {
            self.nodes.resize(node.get() + 1, None);
        }
        let Some(held) = self.nodes[node.get()] else {
            self.nodes[node.get()] = Some(Node {
                report: Some(report),
                stamp,
                floor: stamp,
            });
            return Ok(News::Taken);
        };
        if stamp <= held.stamp {
            return Ok(News::Stale);
        }
        if stamp.epoch > held.stamp.epoch {
            self.lose_all(node, lost);
        }
        // A node that comes back may have ended instances in the meantime.
        let floor = match held.report {
            Some(_) => held.floor,
            None => stamp,
        };
        self.nodes[node.get()] = Some(Node {
            report: Some(report),
            stamp,
            floor,
        });
        Ok(News::Taken)
    }

    /// A node says what one of its instances does.
    ///
    /// # Errors
    /// When the node is not there, the function is not registered, another node has confirmed this instance, it cannot be in this
    /// state on a node, or there are too many instances.
    pub fn observe_instance(
        &mut self,
        node: NodeIndex,
        report: InstanceReport,
        lost: &mut Vec<Lost>,
    ) -> Result<News, RegistryError> {
        let Some(held) = self.present(node) else {
            return Err(RegistryError::UnknownNode(node));
        };
        if report.stamp.epoch < held.stamp.epoch {
            return Ok(News::Stale);
        }
        let from = lost.len();
        if report.stamp.epoch > held.stamp.epoch {
            self.lose_all(node, lost);
            let start = Stamp::new(report.stamp.epoch, 0);
            let started = self.present_mut(node);
            (started.stamp, started.floor) = (start, start);
        }
        let floor = self.present_mut(node).floor;
        let news = self.copy(node, report, report.stamp > floor);
        self.spare(lost, from);
        news
    }

    /// A node says how it is and which instances it has, all of them, as of `stamp`. What it no longer has is appended to `lost`;
    /// what it has kept over a restart is not lost.
    ///
    /// # Errors
    /// As [`Registry::observe_node`]; and the first instance that could not be taken in, the others being taken all the same.
    pub fn reconcile(
        &mut self,
        node: NodeIndex,
        stamp: Stamp,
        report: NodeReport,
        instances: &[InstanceReport],
        lost: &mut Vec<Lost>,
    ) -> Result<News, RegistryError> {
        let from = lost.len();
        let news = self.observe_node(node, stamp, report, lost)?;
        // A report of the same stamp without the instances may have come before.
        let fresh = self.present(node).is_some_and(|held| held.stamp == stamp);
        if news == News::Stale && !fresh {
            return Ok(News::Stale);
        }
        let unknown_allowed = stamp >= self.present_mut(node).floor;
        let mut refused = None;
        for &instance in instances {
            if instance.stamp.epoch != stamp.epoch || instance.stamp > stamp {
                continue;
            }
            if let Err(error) = self.copy(node, instance, unknown_allowed) {
                refused.get_or_insert(error);
            }
        }
        let mut listed: Vec<InstanceId> = instances.iter().map(|instance| instance.id).collect();
        listed.sort_unstable();
        let is_over = |id: &InstanceId| {
            let said = self.instances.get(*id).and_then(|held| held.stamp);
            said.is_some_and(|said| said <= stamp) && listed.binary_search(id).is_err()
        };
        let over: Vec<InstanceId> = self.instances.on(node).filter(is_over).collect();
        for id in over {
            lost.extend(self.instances.remove(id));
        }
        self.spare(lost, from);
        let held = self.present_mut(node);
        held.floor = held.floor.max(stamp);
        refused.map_or(Ok(News::Taken), Err)
    }

    /// A node is lost, or counts as such: its instances are forgotten and appended to `lost`, by id. What it says later, and has not
    /// said before, brings it back. Says whether it was there.
    pub fn lose_node(&mut self, node: NodeIndex, lost: &mut Vec<Lost>) -> bool {
        if self.present(node).is_none() {
            return false;
        }
        self.lose_all(node, lost);
        self.present_mut(node).report = None;
        true
    }

    /// A node leaves for good, and its place may be another's: as [`Registry::lose_node`], and nothing of it is remembered.
    pub fn remove_node(&mut self, node: NodeIndex, lost: &mut Vec<Lost>) -> bool {
        let was_there = self.lose_node(node, lost);
        if let Some(held) = self.nodes.get_mut(node.get()) {
            *held = None;
        }
        was_there
    }

    fn present(&self, node: NodeIndex) -> Option<&Node> {
        let held = self.nodes.get(node.get())?.as_ref();
        held.filter(|held| held.report.is_some())
    }

    fn present_mut(&mut self, node: NodeIndex) -> &mut Node {
        self.nodes[node.get()]
            .as_mut()
            .expect("the caller has looked it up")
    }

    fn lose_all(&mut self, node: NodeIndex, lost: &mut Vec<Lost>) {
        let ids: Vec<InstanceId> = self.instances.on(node).collect();
        for id in ids {
            lost.extend(self.instances.remove(id));
        }
    }

    /// What a node has kept over its restart, or what went to another, is not lost.
    fn spare(&self, lost: &mut Vec<Lost>, from: usize) {
        let mut at = 0;
        lost.retain(|lost| {
            at += 1;
            at <= from || self.instances.get(lost.id).is_none()
        });
    }

    /// Holds what a node says of an instance, if it is newer; one that is not known only if `unknown_allowed`.
    fn copy(
        &mut self,
        node: NodeIndex,
        report: InstanceReport,
        unknown_allowed: bool,
    ) -> Result<News, RegistryError> {
        let InstanceReport {
            id,
            function,
            state,
            stamp,
        } = report;
        if state == State::Pending {
            return Err(RegistryError::NotOnNode(id));
        }
        match self.instances.get(id) {
            Some(held) => {
                let confirmed_elsewhere = held.node != Some(node) && held.stamp.is_some();
                if held.function != function || confirmed_elsewhere {
                    return Err(RegistryError::Elsewhere(id));
                }
                if held.stamp.is_some_and(|held| held >= stamp) {
                    return Ok(News::Stale);
                }
            }
            None if state == State::Gone || !unknown_allowed => {
                self.forget_below(node, state, stamp);
                return Ok(News::Stale);
            }
            None => self.admit(function)?,
        }
        self.instances.set(
            id,
            Instance {
                function,
                state,
                node: Some(node),
                stamp: Some(stamp),
            },
        );
        self.forget_below(node, state, stamp);
        Ok(News::Taken)
    }

    /// An instance that is gone: older messages about instances that are not known may be about it.
    fn forget_below(&mut self, node: NodeIndex, state: State, stamp: Stamp) {
        if state == State::Gone {
            let held = self.present_mut(node);
            held.floor = held.floor.max(stamp);
        }
    }
}
