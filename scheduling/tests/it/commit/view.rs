//! Copies of the records.

use fdn_core::Resources;
use fdn_scheduling::commit::{Settings, View};
use proptest::prelude::*;
use rand::seq::SliceRandom;

use super::{committer, node, rng, size};

#[test]
fn reading_copies_what_has_changed_and_all_if_too_much_has() {
    let settings = Settings {
        history: 8,
        ..Settings::default()
    };
    let mut committer = committer(settings, &[size(4, 4); 20]);
    let mut view = View::default();
    assert_eq!(view.read(committer.store()), 20);
    assert_eq!(view.read(committer.store()), 0);
    for changes in [1, 8] {
        for n in 0..changes {
            committer.observe(node(n), size(1, u64::from(changes)), &mut Vec::new());
        }
        assert_eq!(view.read(committer.store()), changes as usize);
        assert_eq!(view.records(), committer.store().records());
    }
    for n in 0..9 {
        committer.observe(node(n), size(2, 2), &mut Vec::new());
    }
    assert_eq!(view.read(committer.store()), 20);
    committer
        .add_node(size(1, 1), &mut Vec::new())
        .expect("room");
    assert_eq!(view.read(committer.store()), 21);
    assert_eq!(view.records(), committer.store().records());
}

#[test]
fn a_view_of_another_store_is_copied_as_a_whole() {
    let mut old = committer(Settings::default(), &[size(4, 4); 3]);
    for _ in 0..5 {
        old.observe(node(0), size(1, 1), &mut Vec::new());
    }
    let mut view = View::default();
    view.read(old.store());
    let fresh = committer(Settings::default(), &[size(2, 2); 3]);
    view.read(fresh.store());
    assert_eq!(view.records(), fresh.store().records());
}

proptest! {
    /// Records as messages: shuffled, some twice, all but the newest of each node possibly lost.
    #[test]
    fn messages_in_any_order_lead_to_the_newest_records(
        changes in prop::collection::vec((0u32..6, 0u64..4, any::<bool>()), 1..60),
        seed in any::<u64>(),
    ) {
        let mut committer = committer(Settings::default(), &[size(4, 4); 6]);
        let mut messages: Vec<_> = (0..6).map(|n| (node(n), committer.store().records()[n as usize])).collect();
        for (n, used, doubled) in changes {
            let used = Resources { cpu_milli: size(used, 0).cpu_milli, ..Resources::default() };
            committer.observe(node(n), used, &mut Vec::new());
            let message = (node(n), committer.store().records()[n as usize]);
            messages.extend(std::iter::repeat_n(message, 1 + usize::from(doubled)));
        }
        messages.shuffle(&mut rng(seed));
        let mut view = View::default();
        for (node, record) in &messages {
            view.apply(*node, *record);
        }
        prop_assert_eq!(view.records(), committer.store().records());
        let again = messages.iter().any(|(node, record)| view.apply(*node, *record));
        prop_assert!(!again, "nothing is newer than the newest");
    }
}
