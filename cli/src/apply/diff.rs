//! Two values side by side, line by line of their YAML.

use serde::Serialize;

/// Lines beyond which a difference is shown as all that goes and all that comes: a policy has some dozens.
const LINES_MAX: usize = 500;

/// What goes and what comes between two values; all of the second one, if there is no first.
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

/// The lines that are not in both, in order, by the longest common subsequence.
fn changed(old: &[&str], new: &[&str]) -> Vec<String> {
    let minus = |line: &&str| format!("- {line}");
    let plus = |line: &&str| format!("+ {line}");
    if old.len().max(new.len()) > LINES_MAX {
        return old.iter().map(minus).chain(new.iter().map(plus)).collect();
    }
    // common[i][j]: how many lines the rests from i and j have in common.
    let mut common = vec![vec![0usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1] {
            lines.push(minus(&old[i]));
            i += 1;
        } else {
            lines.push(plus(&new[j]));
            j += 1;
        }
    }
    lines
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
