//! Compares two values by the lines of their YAML.

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::cases::DIFF;

/// The removed and added lines between two values; if there is no first value, all lines of the second.
#[must_use]
pub fn lines<B: Serialize, A: Serialize>(before: Option<&B>, after: Option<&A>) -> Vec<String> {
    let old = before.map(yaml).unwrap_or_default();
    let new = after.map(yaml).unwrap_or_default();
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    changed(&old, &new)
}

fn yaml<T: Serialize>(value: &T) -> String {
    serde_norway::to_string(value).unwrap_or_default()
}

/// The differing lines of both, in order.
fn changed(old: &[&str], new: &[&str]) -> Vec<String> {
    TextDiff::configure()
        .timeout(DIFF)
        .diff_slices(old, new)
        .iter_all_changes()
        .filter_map(|change| match change.tag() {
            ChangeTag::Delete => Some(format!("- {}", change.value())),
            ChangeTag::Insert => Some(format!("+ {}", change.value())),
            ChangeTag::Equal => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let (old, new) = (json!({ "a": 1, "b": 2 }), json!({ "a": 1, "b": 3, "c": 4 }));
        assert_eq!(
            lines(Some(&old), Some(&new)),
            ["- b: 2", "+ b: 3", "+ c: 4"]
        );
        assert!(lines(Some(&old), Some(&old)).is_empty());
        assert_eq!(lines(None::<&()>, Some(&json!({ "a": 1 }))), ["+ a: 1"]);
    }

    proptest! {
        #[test]
        fn the_lines_turn_one_into_the_other(old in prop::collection::vec("[a-c]", 0..12), new in prop::collection::vec("[a-c]", 0..12)) {
            let (old, new): (Vec<&str>, Vec<&str>) = (old.iter().map(String::as_str).collect(), new.iter().map(String::as_str).collect());
            let shown = changed(&old, &new);
            let of = |sign: &str| shown.iter().filter(|line| line.starts_with(sign)).count();
            prop_assert_eq!(old.len() - of("- "), new.len() - of("+ "), "what is in both is as long in each");
            prop_assert_eq!(shown.is_empty(), old == new);
        }
    }
}
