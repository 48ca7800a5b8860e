//! What became of recent tasks, so that a message that arrives twice or late does nothing new.
//!
//! A task is remembered until some time after its deadline. Nobody acts on a task after its deadline, so forgetting it then is
//! safe; that is what bounds the memory. At the bound on its size a new task is refused rather than an old one forgotten.

use std::collections::VecDeque;

use fdn_core::Millis;

use super::message::TaskId;
use super::table::Table;

/// The memory of one scheduler.
#[derive(Clone, Debug)]
pub(super) struct Memory<V> {
    table: Table<(Millis, V)>,
    /// By the time of remembering, which is nearly the order of the deadlines.
    order: VecDeque<(Millis, TaskId)>,
    beyond: Millis,
    limit: usize,
}

/// There is no room for another task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl<V: Copy> Memory<V> {
    /// Remembers `limit` tasks at most, each until `beyond` after its deadline.
    pub(super) fn new(beyond: Millis, limit: usize) -> Self {
        Self {
            table: Table::default(),
            order: VecDeque::new(),
            beyond,
            limit,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    pub(super) fn get(&self, id: TaskId) -> Option<V> {
        self.table.get(id).map(|(_, value)| value)
    }

    /// Remembers a task, or what else became of it.
    pub(super) fn put(&mut self, id: TaskId, deadline: Millis, value: V) -> Result<(), Full> {
        if let Some((until, known)) = self.table.get_mut(id) {
            *until = deadline.max(*until);
            *known = value;
            return Ok(());
        }
        if self.table.len() >= self.limit {
            return Err(Full);
        }
        self.table.put(id, (deadline, value));
        self.order.push_back((deadline, id));
        Ok(())
    }

    /// What else became of a task that is remembered.
    pub(super) fn change(&mut self, id: TaskId, value: V) {
        if let Some((_, known)) = self.table.get_mut(id) {
            *known = value;
        }
    }

    /// Forgets the first task whose time has come, and says what became of it.
    pub(super) fn forget(&mut self, now: Millis) -> Option<V> {
        while let Some(&(deadline, id)) = self.order.front() {
            if deadline + self.beyond >= now {
                return None;
            }
            self.order.pop_front();
            match self.table.get(id) {
                // A later attempt has a later deadline.
                Some((until, _)) if until + self.beyond >= now => {
                    self.order.push_back((until, id));
                }
                Some(_) => return self.table.remove(id).map(|(_, value)| value),
                None => {}
            }
        }
        None
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
        assert_eq!(memory.put(TaskId(2), ms(1.0), 4), Ok(()), "known already");
        memory.change(TaskId(1), 7);
        assert_eq!(
            (memory.get(TaskId(1)), memory.get(TaskId(2))),
            (Some(7), Some(4))
        );
        while memory.forget(ms(2.0)).is_some() {}
        assert_eq!(memory.put(TaskId(3), ms(3.0), 3), Ok(()));
    }
}
