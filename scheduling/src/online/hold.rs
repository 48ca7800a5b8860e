//! Resources that a job holds until it ends ([`Hold::Job`]).
//!
//! Containers are bound one after the other, and what one holds is not released before the last is done. Two jobs, each waiting for what
//! the other holds, would deadlock. So a job begins only when resources are reserved for each of its containers: its claim, on the
//! cluster that is fastest for it among those with room. A container may be bound elsewhere if resources there are unclaimed, or claimed
//! for containers of its own job that can go elsewhere; its claim moves with it, and so do theirs. Jobs whose claims cannot be reserved
//! now wait, in order of arrival. Whether all claims fit is a packing problem; each container in turn takes the fastest cluster with
//! room, which may miss a solution.

use fdn_core::{Millis, Resources};

use super::job::{Phase, State, Work};
use super::machine::Online;
use super::message::Action;
use crate::dag::TaskIndex;
use crate::place::{Exclusion, Hold, Infeasible};

impl<W: Work> Online<W> {
    /// Begins the waiting jobs whose resources can be reserved now.
    pub(super) fn admit_held(&mut self, now: Millis, actions: &mut Vec<Action>) {
        while let Some(place) = self.held.front().copied() {
            if !self.claim_all(place) {
                break;
            }
            self.held.pop_front();
            self.activate(now, place, actions);
        }
    }

    /// Checks whether resources for each container of a job could be reserved if nothing else ran.
    pub(super) fn could_claim_all(&mut self, place: u32) -> Result<(), Infeasible> {
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend(
            self.cluster_states
                .iter()
                .map(|cluster_state| cluster_state.capacity),
        );
        let found = self.find_claims(place, &mut room);
        self.forget_claims(place);
        let result = found.map_err(|task| {
            let job = &self.jobs[place as usize];
            let wanted = job.dag().task(task).demand;
            let why = |(p, free): (usize, &Resources)| {
                let distance = Millis::new(job.distance[p]);
                let why = self.exclusion(job.work(), distance, task, p);
                let short = Exclusion::Shortage {
                    wanted,
                    free: *free,
                };
                (self.cluster_states[p].id.clone(), why.unwrap_or(short))
            };
            Infeasible {
                task,
                name: job.dag().task(task).name.clone(),
                clusters: room.iter().enumerate().map(why).collect(),
            }
        });
        self.room = room;
        result
    }

    /// Reserves resources for every container of a job, or for none.
    fn claim_all(&mut self, place: u32) -> bool {
        let mut room = std::mem::take(&mut self.room);
        room.clear();
        room.extend(
            self.cluster_states
                .iter()
                .map(|cluster_state| cluster_state.free),
        );
        let found = self.find_claims(place, &mut room).is_ok();
        if found {
            for (cluster_state, room) in self.cluster_states.iter_mut().zip(&room) {
                cluster_state.free = *room;
            }
        } else {
            self.forget_claims(place);
        }
        self.room = room;
        found
    }

    pub(super) fn forget_claims(&mut self, place: u32) {
        for task in &mut self.jobs[place as usize].tasks {
            task.claim = None;
        }
    }

    /// Finds a claim for every container in turn; fails with the first one for which no cluster has room.
    pub(super) fn find_claims(
        &mut self,
        place: u32,
        room: &mut [Resources],
    ) -> Result<(), TaskIndex> {
        for at in 0..self.jobs[place as usize].tasks.len() {
            let task = TaskIndex::new(at);
            let p = self.fastest(place, task, room).ok_or(task)?;
            let job = &mut self.jobs[place as usize];
            let demand = job.dag().task(task).demand;
            room[p] = room[p].checked_sub(&demand).unwrap_or_default();
            job.tasks[at].claim = Some(p);
        }
        Ok(())
    }

    /// The cluster that is fastest for a container among those with room for it.
    fn fastest(&self, place: u32, task: TaskIndex, room: &[Resources]) -> Option<usize> {
        let job = &self.jobs[place as usize];
        let demand = &job.dag().task(task).demand;
        (0..self.cluster_states.len())
            .filter(|&p| self.is_usable(job, task, p) && demand.fits(&room[p]))
            .map(|p| (Millis::new(self.time(job, task, p)), p))
            .min()
            .map(|(_, p)| p)
    }

    /// Whether a container may be bound to a cluster if claims for others of its job are moved; with `really`, they are moved, and
    /// the container's claim is on that cluster.
    pub(super) fn make_way(&mut self, place: u32, task: TaskIndex, p: usize, really: bool) -> bool {
        let mut room = std::mem::take(&mut self.room);
        let mut moved = std::mem::take(&mut self.moved_claims);
        room.clear();
        room.extend(
            self.cluster_states
                .iter()
                .map(|cluster_state| cluster_state.free),
        );
        moved.clear();
        let found = self.find_way(place, task, p, &mut room, &mut moved);
        if found && really {
            for (cluster_state, room) in self.cluster_states.iter_mut().zip(&room) {
                cluster_state.free = *room;
            }
            for (task, claim) in &moved {
                self.jobs[place as usize].tasks[task.get()].claim = Some(*claim);
            }
        }
        (self.room, self.moved_claims) = (room, moved);
        found
    }

    fn find_way(
        &self,
        place: u32,
        task: TaskIndex,
        p: usize,
        room: &mut [Resources],
        moved: &mut Vec<(TaskIndex, usize)>,
    ) -> bool {
        let job = &self.jobs[place as usize];
        let demand = |task: TaskIndex| &job.dag().task(task).demand;
        let open = || {
            let unbound = |task: &TaskIndex| {
                let phase = job.tasks[task.get()].phase;
                matches!(phase, Phase::Blocked | Phase::Ready)
            };
            job.dag().indices().filter(unbound)
        };
        for other in open() {
            if let Some(claim) = job.tasks[other.get()].claim {
                room[claim] = room[claim].saturating_add(demand(other));
            }
        }
        let claimed = open().filter(|other| job.tasks[other.get()].claim.is_some());
        for other in std::iter::once(task).chain(claimed.filter(|other| *other != task)) {
            let claim = job.tasks[other.get()].claim;
            let kept = claim.filter(|claim| demand(other).fits(&room[*claim]));
            let goes = match kept {
                _ if other == task => demand(task).fits(&room[p]).then_some(p),
                Some(claim) => Some(claim),
                None => self.fastest(place, other, room),
            };
            let Some(goes) = goes else {
                return false;
            };
            room[goes] = room[goes].checked_sub(demand(other)).unwrap_or_default();
            moved.push((other, goes));
        }
        true
    }

    /// Moves a container's claim to the cluster to which it is bound.
    pub(super) fn claim(&mut self, place: u32, task: TaskIndex, p: usize) {
        let job = &mut self.jobs[place as usize];
        let claim = job.tasks[task.get()].claim;
        if self.settings.hold == Hold::Task || claim == Some(p) {
            return;
        }
        let demand = job.dag().task(task).demand;
        if !demand.fits(&self.cluster_states[p].free) {
            let moved = self.make_way(place, task, p, true);
            debug_assert!(moved, "the cluster was found to have room");
            return;
        }
        job.tasks[task.get()].claim = Some(p);
        if let Some(old) = claim {
            self.cluster_states[old].free = self.cluster_states[old].free.saturating_add(&demand);
        }
        let cluster_state = &mut self.cluster_states[p];
        cluster_state.free = cluster_state.free.checked_sub(&demand).unwrap_or_default();
    }

    /// Releases all claims of a job.
    pub(super) fn drop_claims(&mut self, place: u32) {
        let job = &mut self.jobs[place as usize];
        for at in 0..job.tasks.len() {
            if let Some(p) = job.tasks[at].claim.take() {
                let demand = job.dag().task(TaskIndex::new(at)).demand;
                self.cluster_states[p].free = self.cluster_states[p].free.saturating_add(&demand);
            }
        }
    }

    /// Uses released resources: for stranded containers, then for containers that lost their claims, then for waiting jobs.
    pub(super) fn use_room(&mut self, now: Millis, actions: &mut Vec<Action>) {
        self.retry_stranded(now, actions);
        if self.settings.hold == Hold::Job && self.claim_again() {
            self.admit_held(now, actions);
        }
    }

    /// Reserves resources for containers that have lost their claims, in order of arrival; true if all have one.
    pub(super) fn claim_again(&mut self) -> bool {
        if !self.claims_lost {
            return true;
        }
        self.moved.clear();
        for (place, job) in (0u32..).zip(&self.jobs) {
            if job.state == State::Active {
                let open = |(_, task): &(usize, &super::job::Task)| {
                    task.claim.is_none() && task.phase != Phase::Done
                };
                let tasks = job.tasks.iter().enumerate().filter(open);
                self.moved
                    .extend(tasks.map(|(task, _)| (job.arrival, place, TaskIndex::new(task))));
            }
        }
        self.moved.sort_unstable();
        let mut all = true;
        for at in 0..self.moved.len() {
            let (_, place, task) = self.moved[at];
            let mut room = std::mem::take(&mut self.room);
            room.clear();
            room.extend(
                self.cluster_states
                    .iter()
                    .map(|cluster_state| cluster_state.free),
            );
            match self.fastest(place, task, &room) {
                Some(p) => self.claim(place, task, p),
                None => all = false,
            }
            self.room = room;
        }
        self.claims_lost = !all;
        all
    }
}
