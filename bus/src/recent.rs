//! A bounded memory of message ids, by which a consumer recognises a second delivery.

use std::collections::{BTreeSet, VecDeque};

use fdn_core::MessageId;

/// The last `capacity` message ids seen.
#[derive(Debug)]
pub struct Recent {
    capacity: usize,
    order: VecDeque<MessageId>,
    ids: BTreeSet<MessageId>,
}

impl Recent {
    /// Remembers up to `capacity` ids.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            order: VecDeque::new(),
            ids: BTreeSet::new(),
        }
    }

    /// Notes an id; `false` if it was known already.
    pub fn insert(&mut self, id: MessageId) -> bool {
        if !self.ids.insert(id) {
            return false;
        }
        self.order.push_back(id);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> MessageId {
        MessageId::from_uuid(uuid::Uuid::from_u128(n))
    }

    #[test]
    fn a_second_delivery_is_recognised_and_memory_is_bounded() {
        let mut recent = Recent::new(2);
        assert!(recent.insert(id(1)));
        assert!(!recent.insert(id(1)));
        assert!(recent.insert(id(2)));
        assert!(recent.insert(id(3)));
        assert_eq!(recent.ids.len(), 2);
        assert!(recent.insert(id(1)), "the oldest was forgotten");
        assert!(!recent.insert(id(3)));
    }
}
