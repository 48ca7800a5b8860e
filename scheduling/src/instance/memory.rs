//! What happened to recent tasks, so that a message that arrives twice or late has no new effect.
//!
//! A task is remembered until some time after its deadline. Nobody acts on a task after its deadline, so forgetting it then is safe; that
//! bounds the memory in time. At the size limit a new task is refused rather than an old one forgotten. All memory is allocated at the
//! start.

use fdn_core::Millis;

use super::index::{Index, Vacancy};
use super::message::TaskId;
use super::slab::Slab;

#[derive(Clone, Copy, Debug)]
struct Remembered<V> {
    id: TaskId,
    deadline: Millis,
    value: V,
}

/// The memory of one scheduler, by task id.
#[derive(Clone, Debug)]
pub(super) struct Memory<V> {
    index: Index,
    /// In the order of insertion, which is nearly the order of the deadlines.
    tasks: Slab<Remembered<V>>,
    beyond: Millis,
    /// No entry can be forgotten before this time.
    quiet_until: Millis,
}

/// The slot of a remembered task, which saves a look-up; valid until the task is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// The size limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl<V: Copy> Memory<V> {
    /// A memory for `limit` tasks, each kept until `beyond` after its deadline.
    pub(super) fn new(beyond: Millis, limit: usize) -> Self {
        Self {
            index: Index::new(limit),
            tasks: Slab::new(limit),
            beyond,
            quiet_until: Millis::INFINITY,
        }
    }

    /// See [`Index::touch`].
    pub(super) fn touch(&mut self) {
        self.index.touch();
    }

    pub(super) const fn len(&self) -> usize {
        self.tasks.len()
    }

    #[inline]
    fn find(&self, id: TaskId) -> Result<u32, Vacancy> {
        let is = |slot| self.tasks.get(slot).is_some_and(|task| task.id == id);
        self.index.find(id, is)
    }

    /// The record of a task and its place; `None` if it is not remembered.
    #[inline]
    pub(super) fn find_value(&self, id: TaskId) -> Option<(Place, V)> {
        let slot = self.find(id).ok()?;
        self.tasks.get(slot).map(|task| (Place(slot), task.value))
    }

    pub(super) fn get(&self, id: TaskId) -> Option<V> {
        self.find_value(id).map(|(_, value)| value)
    }

    /// The record at a task's place, unless the task was forgotten.
    #[inline]
    pub(super) fn at(&self, place: Place, id: TaskId) -> Option<V> {
        let task = self.tasks.get(place.0)?;
        (task.id == id).then_some(task.value)
    }

    /// Replaces the record at a task's place, unless the task was forgotten.
    #[inline]
    pub(super) fn change(&mut self, place: Place, id: TaskId, value: V) {
        if let Some(task) = self.tasks.get_mut(place.0).filter(|task| task.id == id) {
            task.value = value;
        }
    }

    /// Inserts or replaces the record of a task.
    pub(super) fn put(&mut self, id: TaskId, deadline: Millis, value: V) -> Result<Place, Full> {
        match self.find(id) {
            Ok(slot) => {
                self.renew(slot, deadline, value);
                Ok(Place(slot))
            }
            Err(vacancy) => self.add(vacancy, id, deadline, value),
        }
    }

    /// Inserts or replaces the record of a task if `may` accepts the present one; otherwise returns that and its place.
    #[inline]
    pub(super) fn put_if(
        &mut self,
        id: TaskId,
        deadline: Millis,
        value: V,
        may: impl FnOnce(V) -> bool,
    ) -> Result<Result<Place, Full>, V> {
        match self.find(id) {
            Ok(slot) => {
                let known = self.tasks.get(slot).map(|task| task.value);
                if let Some(known) = known.filter(|known| !may(*known)) {
                    return Err(known);
                }
                self.renew(slot, deadline, value);
                Ok(Ok(Place(slot)))
            }
            Err(vacancy) => Ok(self.add(vacancy, id, deadline, value)),
        }
    }

    fn add(
        &mut self,
        vacancy: Vacancy,
        id: TaskId,
        deadline: Millis,
        value: V,
    ) -> Result<Place, Full> {
        let task = Remembered {
            id,
            deadline,
            value,
        };
        let slot = self.tasks.push(task).ok_or(Full)?;
        self.index.fill(vacancy, slot);
        if self.tasks.len() == 1 {
            self.quiet_until = deadline + self.beyond;
        }
        Ok(Place(slot))
    }

    fn renew(&mut self, slot: u32, deadline: Millis, value: V) {
        if let Some(task) = self.tasks.get_mut(slot) {
            task.value = value;
            if deadline > task.deadline {
                task.deadline = deadline;
                self.tasks.renew(slot);
            }
        }
    }

    /// Forgets the first task whose retention has ended and returns its record; `None` if there is none.
    #[inline]
    pub(super) fn forget(&mut self, now: Millis) -> Option<V> {
        if self.quiet_until >= now {
            return None;
        }
        self.forget_first(now)
    }

    fn forget_first(&mut self, now: Millis) -> Option<V> {
        self.quiet_until = Millis::INFINITY;
        let (slot, task) = self.tasks.first()?;
        let (id, until) = (task.id, task.deadline + self.beyond);
        if until >= now {
            self.quiet_until = until;
            return None;
        }
        self.index.remove(id, slot);
        let forgotten = self.tasks.remove(slot);
        // The next entry is examined by the next call.
        self.quiet_until = self
            .tasks
            .first()
            .map_or(Millis::INFINITY, |(_, next)| next.deadline + self.beyond);
        forgotten.map(|task| task.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: f64) -> Millis {
        Millis::new(value)
    }

    #[test]
    fn a_task_is_remembered_until_some_time_after_its_last_deadline() {
        let mut memory = Memory::new(ms(5.0), 10);
        memory.put(TaskId(1), ms(10.0), 'a').unwrap();
        memory.put(TaskId(2), ms(11.0), 'b').unwrap();
        memory.put(TaskId(1), ms(20.0), 'c').unwrap();
        assert_eq!(memory.forget(ms(15.0)), None, "not before its time");
        assert_eq!(memory.forget(ms(16.5)), Some('b'));
        assert_eq!(memory.get(TaskId(1)), Some('c'), "it has a later deadline");
        assert_eq!(memory.forget(ms(25.0)), None);
        assert_eq!(memory.forget(ms(25.1)), Some('c'));
        assert_eq!(memory.len(), 0);
    }

    #[test]
    fn at_the_bound_nothing_is_forgotten() {
        let mut memory = Memory::new(ms(0.0), 2);
        memory.put(TaskId(1), ms(1.0), 1).unwrap();
        memory.put(TaskId(2), ms(1.0), 2).unwrap();
        assert_eq!(memory.put(TaskId(3), ms(1.0), 3), Err(Full));
        let (place, _) = memory.find_value(TaskId(2)).unwrap();
        assert_eq!(
            memory.put(TaskId(2), ms(1.0), 4),
            Ok(place),
            "known already"
        );
        let (place, _) = memory.find_value(TaskId(1)).unwrap();
        memory.change(place, TaskId(1), 7);
        memory.change(place, TaskId(2), 8);
        assert_eq!(
            (memory.get(TaskId(1)), memory.get(TaskId(2))),
            (Some(7), Some(4))
        );
        while memory.forget(ms(2.0)).is_some() {}
        assert_eq!(memory.at(place, TaskId(1)), None, "it was forgotten");
        assert!(memory.put(TaskId(3), ms(3.0), 3).is_ok());
        assert_eq!(memory.at(place, TaskId(1)), None, "its place has another");
    }

    #[test]
    fn only_what_may_be_is_replaced() {
        let mut memory = Memory::new(ms(0.0), 2);
        let newer = |value: i32| move |known: i32| known < value;
        let put = |memory: &mut Memory<i32>, value| {
            memory.put_if(TaskId(1), ms(1.0), value, newer(value))
        };
        let place = put(&mut memory, 5).unwrap().unwrap();
        assert_eq!(put(&mut memory, 4), Err(5));
        assert_eq!(put(&mut memory, 6), Ok(Ok(place)));
        assert_eq!(memory.at(place, TaskId(1)), Some(6));
        memory.put(TaskId(2), ms(1.0), 1).unwrap();
        assert_eq!(
            memory.put_if(TaskId(3), ms(1.0), 1, newer(1)),
            Ok(Err(Full))
        );
    }
}
