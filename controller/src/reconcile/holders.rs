//! Which clusters hold an app: those of its plans, and some more, so that its clients have where to go when one dies while no controller is there.
//!
//! A cluster that does not hold an app is told nothing of it, neither of its code nor of its secrets, so the fewer the better; `planner.spread` says
//! how many there are at least. Which ones beside the plans' stays as it is for as long as it can, and else follows from the names alone, so that
//! apps spread over all clusters.

use std::collections::BTreeSet;

use fdn_core::message::Holders;
use fdn_core::{AppName, ClusterId, Digest};

use crate::store::app::AppRow;

/// The clusters that shall hold an app, of those that there are. `needed`: those of its plans, and those that clients are leaving.
#[must_use]
pub fn choose(
    app: &AppName,
    before: &Holders,
    needed: &BTreeSet<ClusterId>,
    clusters: &BTreeSet<ClusterId>,
    spread: usize,
) -> Holders {
    if spread == 0 || clusters.len() <= spread {
        return Holders::EVERYWHERE;
    }
    let mut chosen = needed.clone();
    let mut others: Vec<(bool, [u8; 32], &ClusterId)> = clusters
        .iter()
        .filter(|cluster| !chosen.contains(*cluster))
        .map(|cluster| {
            let held = before.named().is_some_and(|held| held.contains(cluster));
            (!held, weight(app, cluster), cluster)
        })
        .collect();
    others.sort_unstable();
    let lacking = spread.saturating_sub(chosen.len());
    chosen.extend(
        others
            .into_iter()
            .take(lacking)
            .map(|(.., one)| one.clone()),
    );
    Holders::only(chosen)
}

/// Who holds an app, and who of them clients may be sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The clusters that are told of it.
    pub holders: Holders,
    /// Those of them that DNS may answer with.
    pub answering: Holders,
}

impl Held {
    /// Whether clients may be sent to all of these.
    #[must_use]
    pub fn can_serve(&self, clusters: &BTreeSet<ClusterId>) -> bool {
        clusters.iter().all(|cluster| self.answering.has(cluster))
    }

    /// Whether it is what the app's row says.
    #[must_use]
    pub fn is_of(&self, app: &AppRow) -> bool {
        self.holders == app.holders && self.answering == app.answering
    }
}

/// The next step towards `wanted`: nobody is answered with before its nodes know the app (`knowing`), and nobody forgets it before
/// those who were answered with it are gone. `stays` adds to what is wanted those of the present that are still to wait.
#[must_use]
pub fn next(
    app: &AppRow,
    wanted: Holders,
    clusters: &BTreeSet<ClusterId>,
    knowing: &BTreeSet<ClusterId>,
    stays: impl FnOnce(&BTreeSet<ClusterId>, BTreeSet<ClusterId>) -> BTreeSet<ClusterId>,
) -> Held {
    let all = |holders: &Holders| holders.named().unwrap_or(clusters).clone();
    let known = |cluster: &ClusterId| app.holders.has(cluster) && knowing.contains(cluster);
    let old = |cluster: &ClusterId| app.answering.has(cluster);
    let ready: BTreeSet<ClusterId> = all(&wanted)
        .into_iter()
        .filter(|cluster| old(cluster) || known(cluster))
        .collect();
    let answering = match &wanted {
        everywhere if everywhere.is_everywhere() && ready == *clusters => Holders::EVERYWHERE,
        // Nobody is ready: as it was is better than nobody at all.
        _ if ready.is_empty() => app.answering.clone(),
        _ => Holders::only(ready),
    };
    let holders = match wanted.named() {
        None => Holders::EVERYWHERE,
        Some(named) => {
            let stay = stays(&all(&app.holders), named | &all(&answering));
            if app.holders.is_everywhere() && stay == *clusters {
                Holders::EVERYWHERE
            } else {
                Holders::only(stay)
            }
        }
    };
    Held { holders, answering }
}

/// Rendezvous hashing (Thaler and Ravishankar, 1998): each app has an order of all clusters that a change of the others does not change.
fn weight(app: &AppName, cluster: &ClusterId) -> [u8; 32] {
    *Digest::of(format!("{app}\n{cluster}").as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<ClusterId> {
        let name = |name: &&str| name.parse().expect("cluster");
        names.iter().map(name).collect()
    }

    fn all() -> BTreeSet<ClusterId> {
        set(&["a", "b", "c", "d", "e", "f"])
    }

    #[test]
    fn plans_come_first_and_then_what_there_was() {
        let app: AppName = "hello".parse().expect("app");
        let none = Holders::EVERYWHERE;
        let first = choose(&app, &none, &set(&["a"]), &all(), 3);
        let held = first.named().expect("not everywhere");
        assert!(held.len() == 3 && first.has(&"a".parse().expect("cluster")));
        // The plan moves: what was held and is not planned fills up before anything new does.
        let other = all().difference(held).next().cloned().expect("another");
        let needed = BTreeSet::from([other.clone()]);
        let next = choose(&app, &first, &needed, &all(), 3);
        let kept = next.named().expect("not everywhere");
        assert!(kept.len() == 3 && kept.contains(&other));
        assert_eq!(kept.intersection(held).count(), 2);
        // A cluster that is gone holds nothing; more are needed than the spread.
        let left: BTreeSet<ClusterId> = all().difference(held).cloned().collect();
        let after = choose(&app, &first, &BTreeSet::new(), &left, 2);
        assert!(after.named().is_some_and(|after| after.is_subset(&left)));
        let wide = choose(&app, &none, &set(&["a", "b", "c", "d"]), &all(), 2);
        assert_eq!(wide, Holders::only(set(&["a", "b", "c", "d"])));
    }

    #[test]
    fn few_clusters_hold_everything_and_many_share_it() {
        let app = |n: u32| -> AppName { format!("app-{n}").parse().expect("app") };
        let none = (Holders::EVERYWHERE, BTreeSet::new());
        let of = |n, clusters: &BTreeSet<ClusterId>, spread| {
            choose(&app(n), &none.0, &none.1, clusters, spread)
        };
        assert_eq!(of(1, &set(&["a", "b", "c"]), 3), Holders::EVERYWHERE);
        assert_eq!(of(1, &all(), 0), Holders::EVERYWHERE);
        assert_eq!(of(1, &all(), 2), of(1, &all(), 2));
        for cluster in all() {
            let many = (0..60).filter(|n| of(*n, &all(), 2).has(&cluster)).count();
            assert!((8..=32).contains(&many), "{cluster}: {many} of 60");
        }
    }
}
