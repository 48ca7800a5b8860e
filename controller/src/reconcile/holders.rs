//! Which clusters hold an app: those of its plans, and some more, so that its clients have an alternative when a cluster fails while no
//! controller is available.
//!
//! A cluster that does not hold an app receives neither its code nor its secrets, so the fewer the better; `planner.spread` sets the
//! minimum number. The clusters beside those of the plans stay the same as long as possible, and otherwise follow from the names alone,
//! so that apps spread evenly over all clusters.

use std::collections::{BTreeMap, BTreeSet};

use fdn_core::message::Holders;
use fdn_core::workflow::Workflow;
use fdn_core::{AppName, ClusterId, Digest};

use super::serving::running;
use super::world::{Profiles, World};
use crate::store::app::AppRow;

/// The clusters among which apps are distributed: those with nodes; if these are too few, also those that were `created` and have
/// no nodes yet.
#[must_use]
pub fn known(
    mut live: BTreeSet<ClusterId>,
    created: impl IntoIterator<Item = ClusterId>,
    spread: usize,
) -> BTreeSet<ClusterId> {
    if live.len() < spread {
        live.extend(created);
    }
    live
}

/// The clusters that cannot be chosen, because none of their nodes could ever hold an instance of the app while others can. Empty for an
/// app of several stages: any holder accepts its calls, wherever the stages run.
#[must_use]
pub fn unfit(world: &World, workflow: &Workflow, profiles: &Profiles) -> BTreeSet<ClusterId> {
    match workflow.stages() {
        [only] => {
            let (_, gpu) = running(profiles.get(&only.name));
            world.phases.without_gpu(gpu)
        }
        _ => BTreeSet::new(),
    }
}

/// The clusters that must hold an app, chosen among the existing ones. `needed` are those of its plans, and those that clients are leaving.
///
/// The result is always an explicit list, even if it contains all clusters: a cluster that joins later receives an app only once it is to hold it.
#[must_use]
pub fn choose(
    app: &AppName,
    before: &Holders,
    needed: &BTreeSet<ClusterId>,
    clusters: &BTreeSet<ClusterId>,
    spread: usize,
) -> Holders {
    if spread == 0 {
        return Holders::EVERYWHERE;
    }
    let mut chosen = needed.clone();
    let is_held = |cluster: &ClusterId| before.named().is_some_and(|held| held.contains(cluster));
    // Excluded clusters are not ranked, since each rank costs a digest.
    for held in [true, false] {
        let there = chosen.intersection(clusters).count();
        let lacking = spread.saturating_sub(there);
        if lacking == 0 {
            break;
        }
        let others = clusters.difference(&chosen);
        let others = others.filter(|cluster| is_held(cluster) == held);
        let mut others: Vec<([u8; 32], ClusterId)> = others
            .map(|cluster| (weight(app, cluster), cluster.clone()))
            .collect();
        others.sort_unstable();
        chosen.extend(others.into_iter().take(lacking).map(|(_, one)| one));
    }
    Holders::only(chosen)
}

/// The state of all clusters in one pass.
#[derive(Clone, Debug, Default)]
pub struct Clusters {
    /// The clusters among which apps are distributed ([`known`]).
    pub all: BTreeSet<ClusterId>,
    /// By app: the clusters whose nodes have received it.
    pub informed: BTreeMap<AppName, BTreeSet<ClusterId>>,
}

/// The holders of an app, and those of them to which clients may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderState {
    /// The clusters that receive the app.
    pub holders: Holders,
    /// The holders that DNS may answer with.
    pub answering: Holders,
}

impl HolderState {
    /// Whether clients may be sent to all of these clusters.
    #[must_use]
    pub fn can_serve(&self, clusters: &BTreeSet<ClusterId>) -> bool {
        clusters.iter().all(|cluster| self.answering.has(cluster))
    }

    /// Whether this equals the state in the app's row.
    #[must_use]
    pub fn is_of(&self, app: &AppRow) -> bool {
        self.holders == app.holders && self.answering == app.answering
    }
}

/// The next step towards `wanted`: DNS answers with a cluster only once its nodes have received the app (`informed`), and a cluster loses
/// the app only after the clients sent to it have gone. `stays` adds to the wanted holders those of the present ones that must wait.
#[must_use]
pub fn next(
    app: &AppRow,
    wanted: Holders,
    clusters: &BTreeSet<ClusterId>,
    informed: &BTreeSet<ClusterId>,
    stays: impl FnOnce(&BTreeSet<ClusterId>, BTreeSet<ClusterId>) -> BTreeSet<ClusterId>,
) -> HolderState {
    let all = |holders: &Holders| holders.named().unwrap_or(clusters).clone();
    let known = |cluster: &ClusterId| app.holders.has(cluster) && informed.contains(cluster);
    let old = |cluster: &ClusterId| app.answering.has(cluster);
    let ready: BTreeSet<ClusterId> = all(&wanted)
        .into_iter()
        .filter(|cluster| old(cluster) || known(cluster))
        .collect();
    let answering = match &wanted {
        everywhere if everywhere.is_everywhere() && ready == *clusters => Holders::EVERYWHERE,
        // No cluster is ready: keep the present answers, which is better than none; if there are none, answer with those that will be ready.
        _ if ready.is_empty() => {
            let coming = all(&wanted);
            if coming.is_empty() || clusters.iter().any(old) {
                app.answering.clone()
            } else {
                Holders::only(coming)
            }
        }
        _ => Holders::only(ready),
    };
    let holders = match wanted.named() {
        None => Holders::EVERYWHERE,
        Some(named) => Holders::only(stays(&all(&app.holders), named | &all(&answering))),
    };
    HolderState { holders, answering }
}

/// Rendezvous hashing (Thaler and Ravishankar, 1998): the rank of a cluster for an app does not depend on the other clusters.
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
    fn few_clusters_hold_everything_by_name_and_many_share_it() {
        let app = |n: u32| -> AppName { format!("app-{n}").parse().expect("app") };
        let none = (Holders::EVERYWHERE, BTreeSet::new());
        let of = |n, clusters: &BTreeSet<ClusterId>, spread| {
            choose(&app(n), &none.0, &none.1, clusters, spread)
        };
        let three = set(&["a", "b", "c"]);
        assert_eq!(of(1, &three, 3), Holders::only(three.clone()));
        let none_yet = of(1, &BTreeSet::new(), 3);
        assert!(
            !none_yet.has(&"a".parse().expect("cluster")),
            "that comes later"
        );
        assert_eq!(of(1, &all(), 0), Holders::EVERYWHERE);
        assert_eq!(of(1, &all(), 2), of(1, &all(), 2));
        for cluster in all() {
            let many = (0..60).filter(|n| of(*n, &all(), 2).has(&cluster)).count();
            assert!((8..=32).contains(&many), "{cluster}: {many} of 60");
        }
    }
    /// An app that these clusters hold and answer for.
    fn row(held: &Holders) -> AppRow {
        let version = fdn_core::VersionNumber::FIRST;
        AppRow {
            name: "hello".parse().expect("app"),
            tenant: fdn_core::TenantId::from_uuid(uuid::Uuid::from_u128(1)),
            host: "hello.fn.test".parse().expect("host"),
            workflow: fdn_core::workflow::Workflow::single(
                "hello".parse().expect("function"),
                version,
            ),
            definition: None,
            version,
            previous: None,
            primaries: BTreeSet::new(),
            revision: fdn_core::Revision(1),
            bindings_revision: fdn_core::Revision(1),
            deployed_at: fdn_core::Timestamp(1),
            ttl: None,
            holders: held.clone(),
            answering: held.clone(),
            forms: Default::default(),
        }
    }

    #[test]
    fn clusters_without_nodes_count_while_there_are_too_few() {
        let created = || set(&["a", "x"]);
        assert_eq!(known(BTreeSet::new(), created(), 3), created());
        assert_eq!(
            known(set(&["a", "b", "c"]), created(), 3),
            set(&["a", "b", "c"])
        );
        assert_eq!(known(set(&["b"]), created(), 2), set(&["a", "b", "x"]));
    }

    #[test]
    fn who_joins_holds_an_app_by_name_and_is_answered_with_once_it_knows_it() {
        let step = |app: &AppRow, wanted: &[&str], clusters: &[&str], informed: &[&str]| {
            let wanted = Holders::only(set(wanted));
            next(app, wanted, &set(clusters), &set(informed), |_, wanted| {
                wanted
            })
        };
        let two = Holders::only(set(&["a", "b"]));
        let joins = step(&row(&two), &["a", "b", "c"], &["a", "b", "c"], &["a", "b"]);
        assert_eq!(joins.holders, Holders::only(set(&["a", "b", "c"])));
        assert_eq!(joins.answering, two);
        // Apps from before, that everybody was told of, get names too.
        let named = step(&row(&Holders::EVERYWHERE), &["a", "b"], &["a", "b"], &[]);
        assert_eq!((&named.holders, &named.answering), (&two, &two));
        // The first of all is answered with at once: there is nobody else.
        let nobody = row(&Holders::only(BTreeSet::new()));
        let first = step(&nobody, &["a"], &["a"], &[]);
        let one = Holders::only(set(&["a"]));
        assert_eq!((&first.holders, &first.answering), (&one, &one));
        // While nobody is there, all stays as it was.
        assert_eq!(step(&row(&two), &[], &[], &[]).answering, two);
    }
}
