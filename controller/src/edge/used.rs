//! The calls counted towards quotas, as the nodes of each cluster are told: encoded once for all of them. No I/O.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use fdn_core::feed::{FeedError, Frame};
use fdn_core::message::Holders;
use fdn_core::policy::quota::{AppQuotaUsage, QuotaUsage};
use fdn_core::{AppName, ClusterId};

/// What the nodes of one cluster are told.
#[derive(Debug, Default)]
pub struct ClusterUsage {
    /// The calls, by app.
    pub used: Vec<AppQuotaUsage>,
    frame: OnceLock<Bytes>,
}

impl ClusterUsage {
    const fn new(used: Vec<AppQuotaUsage>) -> Self {
        Self {
            used,
            frame: OnceLock::new(),
        }
    }

    /// The frame, encoded at the first call.
    ///
    /// # Errors
    /// When it cannot be serialized, which would be a bug.
    pub fn frame(&self) -> Result<Bytes, FeedError> {
        if let Some(frame) = self.frame.get() {
            return Ok(frame.clone());
        }
        let frame: Bytes = Frame::Used(self.used.clone()).encode()?.into();
        // Another feed may have set the same frame first.
        drop(self.frame.set(frame.clone()));
        Ok(frame)
    }
}

/// What the nodes of every cluster are told.
#[derive(Debug, Default)]
pub(super) struct UsageByCluster {
    /// For clusters that are not in `by`.
    others: Arc<ClusterUsage>,
    by: BTreeMap<ClusterId, Arc<ClusterUsage>>,
}

impl UsageByCluster {
    /// The part for the nodes of `cluster`.
    pub(super) fn of(&self, cluster: &ClusterId) -> Arc<ClusterUsage> {
        Arc::clone(self.by.get(cluster).unwrap_or(&self.others))
    }

    /// The memory that it takes, in bytes, approximately.
    pub(super) fn bytes(&self) -> usize {
        let all = self.by.values().chain([&self.others]);
        all.map(|part| part.used.len() * 128).sum()
    }
}

/// A [`UsageByCluster`] under construction.
#[derive(Default)]
struct UsageDraft {
    everywhere: Vec<AppQuotaUsage>,
    by: BTreeMap<ClusterId, Vec<AppQuotaUsage>>,
}

impl UsageDraft {
    /// Adds the calls of an app for those of its holders that `wants` accepts; an app held everywhere is offered once, as `None`.
    fn add(
        &mut self,
        one: &AppQuotaUsage,
        holders: &Holders,
        wants: impl Fn(Option<&ClusterId>) -> bool,
    ) {
        let Some(named) = holders.named() else {
            if wants(None) {
                self.everywhere.push(one.clone());
            }
            return;
        };
        for cluster in named.iter().filter(|cluster| wants(Some(*cluster))) {
            let of = self.by.entry(cluster.clone()).or_default();
            of.push(one.clone());
        }
    }

    fn is_empty(&self) -> bool {
        self.everywhere.is_empty() && self.by.is_empty()
    }

    fn parts(self) -> UsageByCluster {
        let everywhere = self.everywhere;
        let by = self.by.into_iter().map(|(cluster, mut used)| {
            used.extend(everywhere.iter().cloned());
            (cluster, Arc::new(ClusterUsage::new(used)))
        });
        UsageByCluster {
            by: by.collect(),
            others: Arc::new(ClusterUsage::new(everywhere)),
        }
    }
}

/// What was last told of all apps.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    announced: BTreeMap<AppName, (QuotaUsage, Holders)>,
    /// All of it, for feeds that begin.
    all: UsageByCluster,
}

impl Quotas {
    /// Everything that the nodes of a cluster have to know.
    pub(super) fn of(&self, cluster: &ClusterId) -> Arc<ClusterUsage> {
        self.all.of(cluster)
    }

    /// Accepts the calls counted; returns what clusters do not know of them yet, `None` if nothing. `holders` returns the clusters that hold an app.
    pub(super) fn take<'a>(
        &mut self,
        used: Vec<AppQuotaUsage>,
        holders: impl Fn(&AppName) -> Option<&'a Holders>,
    ) -> Option<UsageByCluster> {
        let (mut all, mut changed) = (UsageDraft::default(), UsageDraft::default());
        let mut announced = BTreeMap::new();
        for one in used {
            let Some(holders) = holders(&one.app) else {
                continue;
            };
            let before = self.announced.get(&one.app);
            let before = before.filter(|(used, _)| *used == one.used);
            all.add(&one, holders, |_| true);
            changed.add(&one, holders, |cluster| {
                let knew = before.is_some_and(|(_, before)| match cluster {
                    Some(cluster) => before.has(cluster),
                    None => before.is_everywhere(),
                });
                !knew
            });
            announced.insert(one.app, (one.used, holders.clone()));
        }
        self.announced = announced;
        self.all = all.parts();
        (!changed.is_empty()).then(|| changed.parts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
        text.parse().expect("a name")
    }

    fn used(app: &str, calls: u64) -> AppQuotaUsage {
        AppQuotaUsage {
            app: name(app),
            used: QuotaUsage {
                day: calls,
                ..QuotaUsage::default()
            },
        }
    }

    fn apps(part: &ClusterUsage) -> Vec<&str> {
        part.used.iter().map(|one| one.app.as_str()).collect()
    }

    #[test]
    fn clusters_are_told_what_they_do_not_know_and_all_of_a_cluster_the_same_bytes() {
        let only =
            |clusters: &[&str]| Holders::only(clusters.iter().map(|one| name(one)).collect());
        let (west, both, all) = (
            only(&["west"]),
            only(&["west", "east"]),
            Holders::EVERYWHERE,
        );
        let (is_west, is_east): (ClusterId, ClusterId) = (name("west"), name("east"));
        let mut quotas = Quotas::default();
        let held = |app: &AppName| match app.as_str() {
            "one" => Some(&west),
            "two" => Some(&both),
            "all" => Some(&all),
            _ => None,
        };
        let first = vec![
            used("all", 1),
            used("gone", 1),
            used("one", 1),
            used("two", 1),
        ];
        let told = quotas.take(first.clone(), held).expect("all is new");
        assert_eq!(apps(&told.of(&is_west)), ["one", "two", "all"]);
        assert_eq!(apps(&told.of(&is_east)), ["two", "all"]);
        assert_eq!(apps(&told.of(&name("north"))), ["all"]);
        let (a, b) = (told.of(&is_west), told.of(&is_west));
        let (a, b) = (a.frame().expect("a frame"), b.frame().expect("a frame"));
        assert_eq!(a.as_ptr(), b.as_ptr(), "encoded once");
        assert!(
            quotas.take(first.clone(), held).is_none(),
            "nothing changed"
        );
        // One count differs: nothing else is sent, and only to its holders.
        let mut second = first;
        second[2] = used("one", 2);
        let told = quotas.take(second.clone(), held).expect("one is new");
        assert_eq!(apps(&told.of(&is_west)), ["one"]);
        assert!(told.of(&is_east).used.is_empty());
        // A new holder is told the count although it has not changed.
        let told = quotas.take(second, |app| match app.as_str() {
            "one" => Some(&both),
            _ => held(app),
        });
        let told = told.expect("new to one");
        assert_eq!(apps(&told.of(&is_east)), ["one"]);
        assert!(told.of(&is_west).used.is_empty());
        assert_eq!(apps(&quotas.of(&is_east)), ["one", "two", "all"]);
    }
}
