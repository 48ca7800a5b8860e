//! The bindings of client prefixes to clusters: the table of one app, or of several apps with equal tables.
//!
//! A table numbers the clusters that it names in sorted order, so that tables with the same content are equal byte for byte, however they were
//! built. [`TablePool`] keeps one copy of each.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::sync::{Arc, Weak};

use fdn_core::{ClientPrefix, ClusterId};
use serde::de::{DeserializeSeed, Deserializer, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::ranges::raw::PrefixCounts;
use super::ranges::{CollectedChanges, Id, Span, Table};

/// A table names more clusters than it can number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bindings name more than 65535 clusters")]
pub struct TooManyClusters;

/// A change of one prefix: its new cluster, or `None` if it is no longer bound.
pub type Change = (ClientPrefix, Option<ClusterId>);

/// Bindings of prefixes to clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// The clusters that are named, sorted.
    clusters: Box<[ClusterId]>,
    table: Table<u16>,
}

/// Assigns numbers to clusters while a table is built.
#[derive(Default)]
struct Numbers {
    clusters: Vec<ClusterId>,
    by_name: HashMap<ClusterId, u16>,
    /// The number that was used last: neighbouring prefixes often have the same cluster.
    last: Option<u16>,
}

impl Numbers {
    fn of(clusters: &[ClusterId]) -> Self {
        let numbered = clusters.iter().cloned().zip(0..);
        Self {
            clusters: clusters.to_vec(),
            by_name: numbered.collect(),
            last: None,
        }
    }

    fn number(&mut self, name: &str, make: impl FnOnce() -> Option<ClusterId>) -> Option<u16> {
        let same = |number: &u16| self.clusters[usize::from(*number)].as_str() == name;
        if let Some(last) = self.last.filter(same) {
            return Some(last);
        }
        let id = make()?;
        let number = match self.by_name.get(&id) {
            Some(known) => *known,
            None => {
                let new = u16::try_from(self.clusters.len())
                    .ok()
                    .filter(|n| *n != u16::NONE)?;
                self.clusters.push(id.clone());
                self.by_name.insert(id, new);
                new
            }
        };
        self.last = Some(number);
        Some(number)
    }
}

impl Bindings {
    /// Bindings of these prefixes; if a prefix occurs several times, the last occurrence wins.
    ///
    /// # Errors
    /// When they name too many clusters.
    pub fn new(
        bindings: impl IntoIterator<Item = (ClientPrefix, ClusterId)>,
    ) -> Result<Self, TooManyClusters> {
        Self::default().with(bindings.into_iter().map(|(prefix, id)| (prefix, Some(id))))
    }

    /// The bindings after changes; if a prefix occurs several times, the last change wins.
    ///
    /// # Errors
    /// When they name too many clusters.
    pub fn with<C: Borrow<ClusterId>>(
        &self,
        changes: impl IntoIterator<Item = (ClientPrefix, Option<C>)>,
    ) -> Result<Self, TooManyClusters> {
        let mut numbers = Numbers::of(&self.clusters);
        let mut collected = CollectedChanges::default();
        for (prefix, cluster) in changes {
            let value = match cluster.as_ref().map(Borrow::borrow) {
                None => None,
                Some(id) => Some(
                    numbers
                        .number(id.as_str(), || Some(id.clone()))
                        .ok_or(TooManyClusters)?,
                ),
            };
            collected.push((prefix, value));
        }
        Ok(Self::canonical(
            self.table.after(collected),
            &numbers.clusters,
        ))
    }

    /// Renumbers the clusters in sorted order, without those that no prefix names.
    fn canonical(table: Table<u16>, clusters: &[ClusterId]) -> Self {
        let mut used = vec![false; clusters.len()];
        for value in table.values() {
            used[usize::from(value)] = true;
        }
        let mut order: Vec<usize> = (0..clusters.len()).filter(|i| used[*i]).collect();
        order.sort_by_key(|i| &clusters[*i]);
        let mut renumbered = vec![u16::NONE; clusters.len()];
        for (new, old) in (0u16..).zip(&order) {
            renumbered[*old] = new;
        }
        if order.iter().copied().eq(0..clusters.len()) {
            return Self {
                clusters: clusters.into(),
                table,
            };
        }
        Self {
            clusters: order.iter().map(|i| clusters[*i].clone()).collect(),
            table: table.mapped(|value| {
                renumbered
                    .get(usize::from(value))
                    .copied()
                    .unwrap_or(u16::NONE)
            }),
        }
    }

    /// The cluster bound to an address, and the run of addresses around it with the same binding.
    #[must_use]
    pub fn at(&self, addr: u128, is_v4: bool) -> (Option<&ClusterId>, Span) {
        let (value, span) = self.table.piece(addr, is_v4);
        (value.and_then(|value| self.named(value)), span)
    }

    /// The cluster and the length of the longest prefix that contains all of `client`.
    #[must_use]
    pub fn covering(&self, client: ClientPrefix) -> Option<(&ClusterId, u8)> {
        let (value, len) = self.table.covering(client)?;
        Some((self.named(value)?, len))
    }

    fn named(&self, value: u16) -> Option<&ClusterId> {
        self.clusters.get(usize::from(value))
    }

    /// The clusters that are named, sorted.
    #[must_use]
    pub fn clusters(&self) -> &[ClusterId] {
        &self.clusters
    }

    /// The number of bound prefixes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no prefix is bound.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// All bindings, IPv4 before IPv6, by address and then length.
    pub fn entries(&self) -> impl Iterator<Item = (ClientPrefix, &ClusterId)> {
        self.table
            .entries()
            .filter_map(|(prefix, value)| Some((prefix, self.named(value)?)))
    }

    /// The number of prefixes of each family, for [`Bindings::read`].
    pub(crate) const fn counts(&self) -> PrefixCounts {
        self.table.counts()
    }

    /// Writes the arrays of the table; the caller writes clusters and counts.
    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.table.write(out)
    }

    /// Reads what [`Bindings::write`] wrote.
    pub(crate) fn read(
        input: &mut impl Read,
        counts: PrefixCounts,
        clusters: &[ClusterId],
    ) -> io::Result<Self> {
        let table = Table::read(input, counts, clusters.len().min(usize::from(u16::NONE)))?;
        Ok(Self::canonical(table, clusters))
    }
}

impl Serialize for Bindings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

/// Reads a list of pairs without allocating a string for each: a snapshot has millions.
impl<'de> Deserialize<'de> for Bindings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = Bindings;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of pairs of prefix and cluster")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Bindings, A::Error> {
                let (mut numbers, mut list) = (Numbers::default(), CollectedChanges::default());
                while let Some((prefix, value)) = seq.next_element_seed(Pair(&mut numbers))? {
                    list.push((prefix, Some(value)));
                }
                let table = Table::default().after(list);
                Ok(Bindings::canonical(table, &numbers.clusters))
            }
        }

        deserializer.deserialize_seq(List)
    }
}

struct Pair<'a>(&'a mut Numbers);

impl<'de> DeserializeSeed<'de> for Pair<'_> {
    type Value = (ClientPrefix, u16);

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_tuple(2, self)
    }
}

impl<'de> Visitor<'de> for Pair<'_> {
    type Value = (ClientPrefix, u16);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a prefix and a cluster")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let missing = || A::Error::custom("a pair of prefix and cluster has two parts");
        let prefix = |text: &str| text.parse::<ClientPrefix>().map_err(|e| e.to_string());
        let prefix = seq.next_element_seed(Text(prefix))?.ok_or_else(missing)?;
        let cluster = |text: &str| {
            let mut wrong = TooManyClusters.to_string();
            self.0
                .number(text, || {
                    text.parse().map_err(|e| wrong = format!("{e}")).ok()
                })
                .ok_or(wrong)
        };
        let cluster = seq.next_element_seed(Text(cluster))?.ok_or_else(missing)?;
        Ok((prefix, cluster))
    }
}

/// Deserializes a value from a string without keeping the string.
struct Text<F>(F);

impl<'de, T, F: FnOnce(&str) -> Result<T, String>> DeserializeSeed<'de> for Text<F> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> Result<T, String>> Visitor<'_> for Text<F> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        (self.0)(text).map_err(E::custom)
    }
}

/// A pool that holds one copy of each distinct table, for as long as it is referenced.
#[derive(Debug, Default)]
pub struct TablePool {
    tables: HashMap<u64, Vec<Weak<Bindings>>>,
    /// The number of digests after dropped tables were last removed.
    swept: usize,
}

impl TablePool {
    /// Returns the pooled table equal to this one, or adds this one to the pool.
    pub fn intern(&mut self, bindings: Arc<Bindings>) -> Arc<Bindings> {
        if self.tables.len() > 2 * self.swept + 64 {
            self.tables.retain(|_, same| {
                same.retain(|table| table.strong_count() > 0);
                !same.is_empty()
            });
            self.swept = self.tables.len();
        }
        let same = self.tables.entry(digest(&bindings)).or_default();
        same.retain(|table| table.strong_count() > 0);
        if let Some(known) = same
            .iter()
            .filter_map(Weak::upgrade)
            .find(|known| *known == bindings)
        {
            return known;
        }
        same.push(Arc::downgrade(&bindings));
        bindings
    }
}

/// A hash that is the same for equal tables.
fn digest(bindings: &Bindings) -> u64 {
    let mut hasher = DefaultHasher::new();
    bindings.clusters.hash(&mut hasher);
    bindings.table.len().hash(&mut hasher);
    bindings.table.digest().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bindings(list: &[(&str, &str)]) -> Bindings {
        let entry =
            |(p, c): &(&str, &str)| (p.parse().expect("prefix"), c.parse().expect("cluster"));
        Bindings::new(list.iter().map(entry)).expect("few clusters")
    }

    fn change(prefix: &str, cluster: Option<&str>) -> Change {
        let cluster = cluster.map(|c| c.parse().expect("cluster"));
        (prefix.parse().expect("prefix"), cluster)
    }

    #[test]
    fn tables_that_say_the_same_are_equal_however_they_came_to_be() {
        let there = bindings(&[("10.0.0.0/8", "us"), ("2001:db8::/32", "eu")]);
        let before = bindings(&[("2001:db8::/32", "ap"), ("192.0.2.0/24", "zz")]);
        let changes = [
            change("10.0.0.0/8", Some("us")),
            change("2001:db8::/32", Some("eu")),
            change("192.0.2.0/24", None),
        ];
        assert_eq!(before.with(changes).expect("few"), there);
        assert_eq!(there.clusters().len(), 2);
        let mut pool = TablePool::default();
        let (one, two) = (
            pool.intern(Arc::new(there.clone())),
            pool.intern(Arc::new(there)),
        );
        assert!(Arc::ptr_eq(&one, &two));
        assert!(!Arc::ptr_eq(&one, &pool.intern(Arc::new(before))));
    }

    #[test]
    fn what_nobody_holds_is_not_kept() {
        let mut pool = TablePool::default();
        for third in 0..=255u8 {
            let prefix = format!("10.0.{third}.0/24");
            drop(pool.intern(Arc::new(bindings(&[(prefix.as_str(), "eu")]))));
        }
        assert!(pool.tables.len() < 130, "{}", pool.tables.len());
    }

    #[test]
    fn it_reads_what_the_controller_writes() {
        let text = r#"[["192.0.2.7/24","eu"],["2001:db8::/32","us"],["192.0.2.0/24","us"]]"#;
        let read: Bindings = serde_json::from_str(text).expect("bindings");
        assert_eq!(
            read,
            bindings(&[("192.0.2.0/24", "us"), ("2001:db8::/32", "us")])
        );
        let again = serde_json::to_string(&read).expect("json");
        assert_eq!(again, r#"[["192.0.2.0/24","us"],["2001:db8::/32","us"]]"#);
        for wrong in [
            r#"[["192.0.2.0/33","eu"]]"#,
            r#"[["192.0.2.0/24","Not A Cluster"]]"#,
            r#"[["192.0.2.0/24"]]"#,
            r#"[["192.0.2.0/24","eu","eu"]]"#,
            r#"[[1,"eu"]]"#,
        ] {
            assert!(serde_json::from_str::<Bindings>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_table_numbers_only_so_many_clusters() {
        let prefix: ClientPrefix = "10.0.0.0/8".parse().expect("prefix");
        let named =
            |n: u32| -> Change { (prefix, Some(format!("c{n}").parse().expect("cluster"))) };
        assert!(Bindings::default().with((0..65_535).map(named)).is_ok());
        assert_eq!(
            Bindings::default().with((0..65_536).map(named)),
            Err(TooManyClusters)
        );
    }

    #[test]
    fn the_covering_prefix_is_found_for_a_short_client() {
        let table = bindings(&[("10.0.0.0/8", "eu"), ("10.0.0.0/16", "us")]);
        let found = table.covering("10.0.0.0/12".parse().expect("client"));
        assert_eq!(found.map(|(c, len)| (c.as_str(), len)), Some(("eu", 8)));
    }
}
