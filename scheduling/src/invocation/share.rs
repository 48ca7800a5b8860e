//! Shares: bounds on what the functions of one group, and all groups of one owner, hold together, so that none can take everything.
//!
//! **Problem.** Containers whose invocations wait for something slow stay busy for long, and busy ones are never released. The functions
//! of one group, or the groups of one owner together, could thus occupy all memory, so that nobody else gets a container.
//!
//! **Rule.** With [`Bounds`] set, a container is loaded only if its group's holdings stay within the group's share of the total, and its
//! owner's holdings within the owner's share of what other owners leave ([`most_of`]). Others leave whatever their busy containers do not
//! hold: idle ones are released for anybody who needs their memory. Idle containers of the group, then of the owner's other groups, are
//! released to stay within the shares, in order of eviction. A group or owner that holds nothing else may have one container, however
//! large. An owner that is the only one with functions here has no bound.
//!
//! A function that would exceed a share is left out of the order like one at its limit of containers: it blocks nobody, and is considered
//! again when that may have changed. Nothing is released because a share has shrunk. Adopted containers are accepted beyond the share.
//!
//! **Complexity.** O(log G + S) for each container that is added, removed or turns idle, with G groups and S owners of left-out
//! functions; O(functions and idle containers of the owner) for each one that is released for a share.
//!
//! **Invariant.** A group's holdings grow beyond its share only by its first container, or by an adopted one; the same holds for an
//! owner's, by its share at that moment, if there is another owner.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::Millis;
use fdn_core::device::Percent;

use super::event::{Action, ReleaseReason};
use super::id::FunctionIndex;
use super::order::Rank;
use super::refusal::Refusal;
use super::scheduler::Scheduler;
use super::weight::Weight;

/// `share` percent of `all`, rounded down.
#[must_use]
pub fn part_of(all: u64, share: Percent) -> u64 {
    let part = u128::from(all) * u128::from(share.get()) / 100;
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// The owner's bound: `share` percent of what others leave, rounded down so that something remains for them, but at least 1 if anything is left.
#[must_use]
pub fn most_of(left: u64, share: Percent) -> u64 {
    part_of(left, share).max(left.min(1))
}

/// The shares of groups and owners, in the unit of [`Scheduler::join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The total to be shared.
    pub all: Weight,
    /// The share of `all` that the containers of one group may hold; 100 % means no bound.
    pub group: Percent,
    /// The share of what other owners leave that the containers of all groups of one owner may hold; 100 % means no bound.
    pub owner: Percent,
}

/// A function's group, and what one of its containers counts towards the shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    group: u64,
    memory: u64,
}

/// The owner of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupOwner {
    /// Not named: the group is its owner's only one.
    Unknown(u64),
    Owner(u128),
}

/// The holdings of containers.
#[derive(Clone, Copy, Debug, Default)]
struct Holdings {
    all: u64,
    /// The part of `all` that idle containers hold.
    idle: u64,
}

impl Holdings {
    const fn busy(self) -> u64 {
        self.all - self.idle
    }

    fn add(&mut self, other: Self) {
        self.all += other.all;
        self.idle += other.idle;
    }

    fn take(&mut self, other: Self) {
        self.all -= other.all;
        self.idle -= other.idle;
    }
}

#[derive(Clone, Debug)]
struct Group {
    whose: GroupOwner,
    held: Holdings,
    functions: BTreeSet<u32>,
    /// Whether a function of it is left out because of the group's share.
    is_short: bool,
    /// Whether a function of it is left out because of its owner's share.
    is_short_of_owner: bool,
}

impl Group {
    fn new(whose: GroupOwner) -> Self {
        Self {
            whose,
            held: Holdings::default(),
            functions: BTreeSet::new(),
            is_short: false,
            is_short_of_owner: false,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Owner {
    held: Holdings,
    groups: BTreeSet<u64>,
}

/// All groups and owners.
#[derive(Clone, Debug, Default)]
pub(super) struct Shares {
    bounds: Option<Bounds>,
    groups: BTreeMap<u64, Group>,
    owners: BTreeMap<GroupOwner, Owner>,
    held: Holdings,
    /// Owners with functions left out because of the owner's share, and the smallest container among those.
    short: BTreeMap<GroupOwner, u64>,
}

impl Shares {
    /// Applies a change to the holdings of a group, of its owner and of all.
    fn change(&mut self, part: Option<Part>, change: impl Fn(&mut Holdings, u64)) {
        let Some(Part { group, memory }) = part else {
            return;
        };
        let Some(group) = self.groups.get_mut(&group) else {
            return;
        };
        change(&mut group.held, memory);
        if let Some(owner) = self.owners.get_mut(&group.whose) {
            change(&mut owner.held, memory);
        }
        change(&mut self.held, memory);
    }

    /// Adds a container.
    pub(super) fn hold(&mut self, part: Option<Part>) {
        self.change(part, |held, memory| held.all += memory);
    }

    /// Removes a container that is not idle.
    pub(super) fn give_back(&mut self, part: Option<Part>) {
        self.change(part, |held, memory| held.all -= memory);
    }

    /// Marks a container as idle, or as no longer idle.
    pub(super) fn turn_idle(&mut self, part: Option<Part>, idle: bool) {
        self.change(part, |held, memory| {
            if idle {
                held.idle += memory;
            } else {
                held.idle -= memory;
            }
        });
    }

    /// The group with this number, without an owner if it is new.
    fn group_or_new(&mut self, number: u64) -> &mut Group {
        let (whose, owners) = (GroupOwner::Unknown(number), &mut self.owners);
        self.groups.entry(number).or_insert_with(|| {
            owners.entry(whose).or_default().groups.insert(number);
            Group::new(whose)
        })
    }

    /// Subtracts a group's holdings from its owner, who is removed with the last group.
    fn disown(&mut self, number: u64, whose: GroupOwner, held: Holdings) {
        let Some(owner) = self.owners.get_mut(&whose) else {
            return;
        };
        owner.held.take(held);
        owner.groups.remove(&number);
        if owner.groups.is_empty() {
            self.owners.remove(&whose);
            self.short.remove(&whose);
        }
    }

    /// Whether a group may hold this much more, as it is or (`once_released`) after its idle containers are released.
    fn fits_group(&self, part: Part, once_released: bool) -> bool {
        let (Some(bounds), Some(group)) = (self.bounds, self.groups.get(&part.group)) else {
            return true;
        };
        let held = match once_released {
            true => group.held.busy(),
            false => group.held.all,
        };
        let is_bound = bounds.group != Percent::WHOLE && held > 0;
        !is_bound || held.saturating_add(part.memory) <= part_of(bounds.all.get(), bounds.group)
    }

    /// Whether an owner may hold this much more, as it is or (`once_released`) after its idle containers are released.
    fn fits_owner(&self, whose: GroupOwner, memory: u64, once_released: bool) -> bool {
        let (Some(bounds), Some(owner)) = (self.bounds, self.owners.get(&whose)) else {
            return true;
        };
        let held = match once_released {
            true => owner.held.busy(),
            false => owner.held.all,
        };
        let is_bound = bounds.owner != Percent::WHOLE && self.owners.len() > 1 && held > 0;
        let others = self.held.busy() - owner.held.busy();
        let left = bounds.all.get().saturating_sub(others);
        !is_bound || held.saturating_add(memory) <= most_of(left, bounds.owner)
    }

    fn whose(&self, part: Part) -> Option<GroupOwner> {
        Some(self.groups.get(&part.group)?.whose)
    }

    /// Whether one more container of this part fits its owner's share.
    fn fits_its_owner(&self, part: Part, once_released: bool) -> bool {
        let whose = self.whose(part);
        whose.is_none_or(|whose| self.fits_owner(whose, part.memory, once_released))
    }

    /// All groups with the same owner as this part's group.
    fn groups_of_owner(&self, part: Part) -> Vec<u64> {
        let owner = self.whose(part).and_then(|whose| self.owners.get(&whose));
        owner.map_or_else(Vec::new, |owner| owner.groups.iter().copied().collect())
    }
}

impl Scheduler {
    /// Sets the bounds of groups and owners.
    pub fn set_bounds(&mut self, now: Millis, bounds: Bounds, actions: &mut Vec<Action>) {
        let before = self.shares.bounds.replace(bounds);
        if before == Some(bounds) {
            return;
        }
        self.advance(now);
        let groups: Vec<u64> = self.shares.groups.keys().copied().collect();
        for group in groups {
            self.reopen(group);
        }
        self.reopen_owners();
        self.dispatch(actions);
    }

    /// Assigns a function to a group; each of its containers counts with `memory`. Call it before the function has any.
    ///
    /// # Errors
    /// When the function is not registered, has containers, or belongs to a group already.
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
        let group = self.shares.group_or_new(group);
        group.functions.insert(function.raw());
        Ok(())
    }

    /// Sets the owner of a group; before, the group is its owner's only one. Unknown groups are ignored.
    pub fn set_owner(&mut self, now: Millis, group: u64, owner: u128, actions: &mut Vec<Action>) {
        let whose = GroupOwner::Owner(owner);
        let shares = &mut self.shares;
        let Some(known) = shares.groups.get_mut(&group) else {
            return;
        };
        let before = std::mem::replace(&mut known.whose, whose);
        if before == whose {
            return;
        }
        let held = known.held;
        let was_short = std::mem::take(&mut known.is_short_of_owner);
        shares.disown(group, before, held);
        let owner = shares.owners.entry(whose).or_default();
        owner.held.add(held);
        owner.groups.insert(group);
        self.advance(now);
        if was_short {
            self.uncap_group(group);
        }
        self.reopen_owners();
        self.dispatch(actions);
    }

    /// Removes a retired function from its group, and the group with the last one.
    pub(super) fn leave_group(&mut self, function: FunctionIndex) {
        let Some(part) = self.functions[function.get()].part.take() else {
            return;
        };
        let number = part.group;
        let Some(group) = self.shares.groups.get_mut(&number) else {
            return;
        };
        group.functions.remove(&function.raw());
        if group.functions.is_empty() {
            let (whose, held) = (group.whose, group.held);
            self.shares.groups.remove(&number);
            self.shares.disown(number, whose, held);
            // A remaining owner may be the only one now.
            self.reopen_owners();
        }
    }

    /// The holdings of a group's containers, in the unit of [`Self::join`]; zero for an unknown group.
    #[must_use]
    pub fn held_by_group(&self, group: u64) -> Weight {
        let group = self.shares.groups.get(&group);
        Weight(group.map_or(0, |group| group.held.all))
    }

    /// The number of groups with invocations that wait because the group, or its owner, is at its share.
    #[must_use]
    pub fn groups_at_share(&self) -> usize {
        let waits = |function: &u32| self.queue.len_of(FunctionIndex::from_raw(*function)) > 0;
        let groups = self.shares.groups.values();
        let short = groups.filter(|group| {
            (group.is_short || group.is_short_of_owner) && group.functions.iter().any(waits)
        });
        short.count()
    }

    /// Whether one more container of a function fits the shares at present.
    pub(super) fn fits_share(&self, function: FunctionIndex) -> bool {
        let (part, shares) = (self.functions[function.get()].part, &self.shares);
        part.is_none_or(|part| shares.fits_group(part, false) && shares.fits_its_owner(part, false))
    }

    /// Whether one more container of a function can fit the shares; if not, marks it to be left out until that may have changed.
    pub(super) fn can_fit_share(&mut self, function: FunctionIndex) -> bool {
        let Some(part) = self.functions[function.get()].part else {
            return true;
        };
        let shares = &mut self.shares;
        let fits = (
            shares.fits_group(part, true),
            shares.fits_its_owner(part, true),
        );
        let Some(group) = shares.groups.get_mut(&part.group) else {
            return true;
        };
        match fits {
            (true, true) => true,
            (false, _) => {
                group.is_short = true;
                false
            }
            (true, false) => {
                group.is_short_of_owner = true;
                let least = shares.short.entry(group.whose).or_insert(part.memory);
                *least = part.memory.min(*least);
                false
            }
        }
    }

    /// Releases idle containers, of a function's group and of its owner's groups, until one more fits the shares.
    pub(super) fn make_share(&mut self, function: FunctionIndex, actions: &mut Vec<Action>) {
        let Some(part) = self.functions[function.get()].part else {
            return;
        };
        while !self.shares.fits_group(part, false)
            && let Some(victim) = self.victim_of(&[part.group])
        {
            self.evict_for_share(victim, actions);
        }
        if self.shares.fits_its_owner(part, false) {
            return;
        }
        let groups = self.shares.groups_of_owner(part);
        while !self.shares.fits_its_owner(part, false)
            && let Some(victim) = self.victim_of(&groups)
        {
            self.evict_for_share(victim, actions);
        }
    }

    fn evict_for_share(&mut self, victim: u32, actions: &mut Vec<Action>) {
        let rank = self.containers.get(victim).rank;
        self.release(victim, ReleaseReason::Evicted, actions);
        self.keep_alive.evicted(rank);
    }

    fn victim_of(&self, groups: &[u64]) -> Option<u32> {
        let groups = groups
            .iter()
            .filter_map(|group| self.shares.groups.get(group));
        let functions = groups.flat_map(|group| &group.functions);
        let idle = functions.flat_map(|function| self.functions[*function as usize].idle.iter());
        let standing = |row: &u32| {
            let container = self.containers.get(*row);
            (Rank(container.rank), container.used)
        };
        idle.map(|(_, row)| row).min_by_key(standing)
    }

    /// Reconsiders left-out functions after a container of this function's group is gone or idle.
    pub(super) fn reopen_of(&mut self, function: FunctionIndex) {
        if let Some(part) = self.functions[function.get()].part {
            self.reopen(part.group);
            self.reopen_owners();
        }
    }

    fn reopen(&mut self, number: u64) {
        let group = self.shares.groups.get_mut(&number);
        if group.is_some_and(|group| std::mem::take(&mut group.is_short)) {
            self.uncap_group(number);
        }
    }

    /// Reconsiders left-out functions of owners that may hold more now, whoever released something.
    fn reopen_owners(&mut self) {
        let shares = &self.shares;
        let short = shares.short.iter();
        let may = short.filter(|(whose, least)| shares.fits_owner(**whose, **least, true));
        let may: Vec<GroupOwner> = may.map(|(whose, _)| *whose).collect();
        for whose in may {
            self.shares.short.remove(&whose);
            let owner = self.shares.owners.get(&whose);
            let groups: Vec<u64> =
                owner.map_or_else(Vec::new, |owner| owner.groups.iter().copied().collect());
            for number in groups {
                let group = self.shares.groups.get_mut(&number);
                if group.is_some_and(|group| std::mem::take(&mut group.is_short_of_owner)) {
                    self.uncap_group(number);
                }
            }
        }
    }

    fn uncap_group(&mut self, number: u64) {
        let Some(group) = self.shares.groups.get(&number) else {
            return;
        };
        for &function in &group.functions {
            let row = &self.functions[function as usize];
            if row.containers < row.limit {
                self.queue.uncap(FunctionIndex::from_raw(function));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_what_others_leave_and_something_is_left_of_it() {
        let percent = |share| Percent::try_from(share).expect("a share");
        let of = |share| move |left| most_of(left, percent(share));
        assert_eq!([256, 156, 26, 1, 0].map(of(90)), [230, 140, 23, 1, 0]);
        assert_eq!([8, 2, 1].map(of(50)), [4, 1, 1]);
        assert_eq!(most_of(7, Percent::WHOLE), 7);
        assert_eq!(most_of(u64::MAX, percent(100)), u64::MAX, "no overflow");
        assert_eq!(part_of(1, percent(99)), 0, "of one who has nothing yet");
        assert_eq!(part_of(u64::MAX, percent(50)), u64::MAX / 2);
    }
}
