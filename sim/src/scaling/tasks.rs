//! The tasks of a run: what became of each, and whether any was started twice.

use fdn_core::Millis;
use fdn_scheduling::instance::{NodeIndex, Settled, Slots, TaskId, ToGlobal, ToNode};

use super::outcome::{Recorder, Stage};
use super::setup::Setup;
use crate::Error;

/// Where no node is.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Fate {
    submitted: Millis,
    node: u32,
    failed_locally: bool,
    reached_global: bool,
    refused: bool,
    started: bool,
}

#[derive(Debug)]
pub(super) struct Tasks {
    fates: Vec<Fate>,
    recorder: Recorder,
    nodes_lost: Vec<bool>,
    expected: u64,
    ended: u64,
}

impl Tasks {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            fates: Vec::with_capacity(setup.tasks as usize),
            recorder: Recorder::new(setup),
            nodes_lost: vec![false; setup.nodes as usize],
            expected: setup.tasks,
            ended: 0,
        }
    }

    pub(super) fn submitted(&mut self, now: Millis) {
        self.fates.push(Fate {
            submitted: now,
            node: NOWHERE,
            failed_locally: false,
            reached_global: false,
            refused: false,
            started: false,
        });
    }

    /// Whether every task was started or refused.
    pub(super) const fn are_settled(&self) -> bool {
        self.ended == self.expected
    }

    pub(super) const fn are_too_late(&self) -> bool {
        self.recorder.is_beyond_limit()
    }

    pub(super) fn started(
        &mut self,
        id: TaskId,
        node: NodeIndex,
        stage: fdn_scheduling::instance::Stage,
        now: Millis,
    ) -> Result<(), Error> {
        let fate = &mut self.fates[id.0 as usize];
        if fate.node != NOWHERE && !self.nodes_lost[fate.node as usize] {
            let twice = format!(
                "{id} was started twice, on nodes {} and {}",
                fate.node, node.0
            );
            return Err(Error::Broken(twice));
        }
        fate.node = node.0;
        if fate.started || fate.refused {
            return Ok(());
        }
        fate.started = true;
        self.ended += 1;
        let stage = match stage {
            fdn_scheduling::instance::Stage::Local => Stage::Local,
            fdn_scheduling::instance::Stage::Probe => Stage::Probe,
            fdn_scheduling::instance::Stage::Hint => Stage::Hint,
            fdn_scheduling::instance::Stage::Global => Stage::Global,
        };
        let latency = now - fate.submitted;
        self.recorder.started(id.0, stage, latency);
        Ok(())
    }

    pub(super) fn settled(&mut self, settled: Settled) {
        match settled {
            Settled::Refused(id, _) => {
                let fate = &mut self.fates[id.0 as usize];
                if !fate.started && !fate.refused {
                    fate.refused = true;
                    self.ended += 1;
                    self.recorder.refused();
                }
            }
            Settled::Started(..) | Settled::Unresolved(_) => {}
        }
    }

    /// The instances of a node are gone with it.
    pub(super) fn lost(&mut self, node: NodeIndex) {
        self.nodes_lost[node.get()] = true;
    }

    /// So many slots were busy from then until now, while tasks that count arrived.
    pub(super) fn pass(&mut self, busy: u64, from: Millis, to: Millis) {
        let arrived = self.fates.len() as u64;
        if self.recorder.counts(arrived) && arrived < self.expected {
            self.recorder.busy(busy as f64, to - from);
        }
    }

    pub(super) fn sent_to_node(&mut self, message: &ToNode<Slots>) {
        match message {
            ToNode::Submit(_) | ToNode::Fence(_) => {}
            ToNode::Hint(task, _) => self.passed_on(task.id),
            ToNode::Probe(probe) => self.passed_on(probe.id),
            ToNode::Reply { id, .. } | ToNode::Release { id, .. } => self.recorder.message(id.0),
            ToNode::Assign(task) | ToNode::Place(task, ..) => self.recorder.message(task.id.0),
        }
    }

    pub(super) fn sent_to_global(&mut self, message: &ToGlobal<Slots>) {
        match message {
            ToGlobal::Forward(task, _) => {
                // The first leg comes from the submitter itself.
                if task.leg > 0 {
                    self.passed_on(task.id);
                }
                let fate = &mut self.fates[task.id.0 as usize];
                if !fate.reached_global {
                    fate.reached_global = true;
                    self.recorder.reached_global(task.id.0);
                }
            }
            ToGlobal::Bounce(task, _) => self.recorder.message(task.id.0),
            ToGlobal::Notice(_) | ToGlobal::Fence(_) => {}
        }
    }

    /// The task goes on from a node that had no room.
    fn passed_on(&mut self, id: TaskId) {
        self.recorder.message(id.0);
        let fate = &mut self.fates[id.0 as usize];
        if !fate.failed_locally {
            fate.failed_locally = true;
            self.recorder.local_failed(id.0);
        }
    }

    pub(super) fn into_recorder(self) -> Recorder {
        self.recorder
    }
}
