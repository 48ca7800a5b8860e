//! Turns of equal length for lists of unequal length.

/// The first of each list, then the second of each, and so on.
pub(super) fn in_turns<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(lists.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_does_not_delay_a_short_one() {
        let lists = vec![vec![1, 2, 3, 4], vec![], vec![10], vec![20, 21]];
        assert_eq!(in_turns(lists), [1, 10, 20, 2, 21, 3, 4]);
    }
}
