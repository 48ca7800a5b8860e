//! `fdn sim paper` as a whole.

use std::collections::BTreeSet;

use fdn_sim::paper::ALL;

#[test]
fn every_experiment_has_a_name_of_its_own_that_can_be_a_file() {
    let names: BTreeSet<&str> = ALL.iter().map(|experiment| experiment.name()).collect();
    assert_eq!(names.len(), ALL.len());
    let plain = |name: &&str| {
        name.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    assert!(names.iter().all(plain), "{names:?}");
}
