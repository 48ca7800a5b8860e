//! What the functions of one group may hold together, so that the containers of one never take everything.
//!
//! **Problem.** Containers whose invocations wait for something slow stay busy for long, and busy ones are never released. The functions
//! of one owner could so come to hold all memory, and nobody else would have a container.
//!
//! **Rule.** With a share set, a container is loaded only if what its group holds stays within the share; idle containers of the group are
//! released for it, in the order in which they would be evicted. A group that holds nothing else may have one container, however large. A
//! function that would pass the share is left out as one that has as many containers as it may: it blocks nobody, and is looked at again
//! when a container of its group is gone or turns idle. Nothing is released because the share became less. What was found running is taken
//! in beyond it.
//!
//! **Complexity.** O(1) for each container that comes, goes or turns idle; O(functions and idle containers of the group) for each one that is
//! released for the share.
//!
//! **Invariant.** What a group holds grows beyond the share only by its first container, or by one that was found running.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::Millis;

use super::event::{Action, Why};
use super::id::FunctionIndex;
use super::order::Rank;
use super::refusal::Refusal;
use super::scheduler::Scheduler;
use super::weight::Weight;

/// To which group a function belongs, and what one of its containers takes of the share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    group: u64,
    memory: u64,
}

#[derive(Clone, Debug, Default)]
struct Group {
    held: u64,
    /// Of it, what idle containers hold.
    idle: u64,
    functions: BTreeSet<u32>,
    /// A function of it was left out for the share.
    is_short: bool,
}

/// All groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    share: Option<u64>,
    groups: BTreeMap<u64, Group>,
}

impl Shares {
    fn group_mut(&mut self, part: Option<Part>) -> Option<(&mut Group, u64)> {
        let part = part?;
        Some((self.groups.get_mut(&part.group)?, part.memory))
    }

    /// A container is there.
    pub(super) fn hold(&mut self, part: Option<Part>) {
        if let Some((group, memory)) = self.group_mut(part) {
            group.held += memory;
        }
    }

    /// A container is gone, which was not idle any more.
    pub(super) fn give_back(&mut self, part: Option<Part>) {
        if let Some((group, memory)) = self.group_mut(part) {
            group.held -= memory;
        }
    }

    /// A container became idle, or no longer is.
    pub(super) fn turn_idle(&mut self, part: Option<Part>, idle: bool) {
        if let Some((group, memory)) = self.group_mut(part) {
            if idle {
                group.idle += memory;
            } else {
                group.idle -= memory;
            }
        }
    }
}

impl Scheduler {
    /// What the containers of each group may hold together from now on, in the measure of [`Self::join`].
    pub fn set_share(&mut self, now: Millis, share: Weight, actions: &mut Vec<Action>) {
        let before = self.shares.share.replace(share.get());
        if before == Some(share.get()) {
            return;
        }
        self.advance(now);
        let groups: Vec<u64> = self.shares.groups.keys().copied().collect();
        for group in groups {
            self.reopen(group);
        }
        self.dispatch(actions);
    }

    /// Counts the containers of a function towards a group, each with this much. To be said before it has any.
    ///
    /// # Errors
    /// When the function is not known, or has containers.
    pub fn join(
        &mut self,
        function: FunctionIndex,
        group: u64,
        memory: Weight,
    ) -> Result<(), Refusal> {
        self.check_function(function)?;
        let row = &mut self.functions[function.get()];
        if row.containers > 0 || row.part.is_some() {
            return Err(Refusal::InUse { function });
        }
        let memory = memory.get();
        row.part = Some(Part { group, memory });
        let group = self.shares.groups.entry(group).or_default();
        group.functions.insert(function.raw());
        Ok(())
    }

    /// A function is forgotten, and so is its group with the last one.
    pub(super) fn leave_group(&mut self, function: FunctionIndex) {
        let Some(part) = self.functions[function.get()].part.take() else {
            return;
        };
        if let Some(group) = self.shares.groups.get_mut(&part.group) {
            group.functions.remove(&function.raw());
            if group.functions.is_empty() {
                self.shares.groups.remove(&part.group);
            }
        }
    }

    /// What a group's containers hold, in the measure of [`Self::join`].
    #[must_use]
    pub fn held_by_group(&self, group: u64) -> Weight {
        Weight(self.shares.groups.get(&group).map_or(0, |group| group.held))
    }

    /// How many groups have invocations that wait because the group holds its share.
    #[must_use]
    pub fn groups_at_share(&self) -> usize {
        let waits = |function: &u32| self.queue.len_of(FunctionIndex::from_raw(*function)) > 0;
        let groups = self.shares.groups.values();
        let short = groups.filter(|group| group.is_short && group.functions.iter().any(waits));
        short.count()
    }

    /// Whether one more container of a function stays within the share of its group, once this much of what it holds is released.
    fn within_share(&self, function: FunctionIndex, released: impl Fn(&Group) -> u64) -> bool {
        let part = self.functions[function.get()].part;
        let (Some(part), Some(share)) = (part, self.shares.share) else {
            return true;
        };
        let Some(group) = self.shares.groups.get(&part.group) else {
            return true;
        };
        let held = group.held.saturating_sub(released(group));
        held == 0 || held.saturating_add(part.memory) <= share
    }

    /// Whether a container of a function fits the share as it is.
    pub(super) fn fits_share(&self, function: FunctionIndex) -> bool {
        self.within_share(function, |_| 0)
    }

    /// Whether a container of a function can fit the share; if not, the function is to be left out until that may have changed.
    pub(super) fn can_fit_share(&mut self, function: FunctionIndex) -> bool {
        let can = self.within_share(function, |group| group.idle);
        if !can && let Some((group, _)) = self.shares.group_mut(self.functions[function.get()].part)
        {
            group.is_short = true;
        }
        can
    }

    /// Releases idle containers of a function's group until one more fits the share.
    pub(super) fn make_share(&mut self, function: FunctionIndex, actions: &mut Vec<Action>) {
        while !self.fits_share(function)
            && let Some(victim) = self.victim_of_group(function)
        {
            let rank = self.containers.get(victim).rank;
            self.release(victim, Why::Evicted, actions);
            self.keep_alive.evicted(rank);
        }
    }

    fn victim_of_group(&self, function: FunctionIndex) -> Option<u32> {
        let part = self.functions[function.get()].part?;
        let functions = &self.shares.groups.get(&part.group)?.functions;
        let idle = functions
            .iter()
            .flat_map(|function| self.functions[*function as usize].idle.iter());
        let standing = |row: &u32| {
            let container = self.containers.get(*row);
            (Rank(container.rank), container.used)
        };
        idle.map(|(_, row)| row).min_by_key(standing)
    }

    /// A container of the group of this function is gone or idle: those that were left out are looked at again.
    pub(super) fn reopen_of(&mut self, function: FunctionIndex) {
        if let Some(part) = self.functions[function.get()].part {
            self.reopen(part.group);
        }
    }

    fn reopen(&mut self, group: u64) {
        let Some(group) = self.shares.groups.get_mut(&group) else {
            return;
        };
        if !std::mem::take(&mut group.is_short) {
            return;
        }
        for &function in &group.functions {
            let row = &self.functions[function as usize];
            if row.containers < row.limit {
                self.queue.uncap(FunctionIndex::from_raw(function));
            }
        }
    }
}
