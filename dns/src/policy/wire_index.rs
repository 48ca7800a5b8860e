//! Finds apps by the encoded names in queries, without constructing a name.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use hickory_proto::rr::Name;

use super::zone::AppTable;

/// The longest name in wire format (RFC 1035, section 2.3.4).
const NAME_MAX: usize = 255;

/// The index of each name's table, by a hash of the name.
///
/// The names themselves are in the tables; a match is compared with the name there. Of names with equal hashes, only the first is
/// included; the others are found by the slow path.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireIndex {
    hasher: RandomState,
    slots: HashMap<u64, usize>,
}

impl WireIndex {
    /// An index of the names of these tables.
    pub(crate) fn new(tables: &[Arc<AppTable>]) -> Self {
        let mut index = Self::default();
        let mut wire = Vec::with_capacity(NAME_MAX);
        for (slot, table) in tables.iter().enumerate() {
            wire.clear();
            for label in table.name.iter() {
                wire.push(u8::try_from(label.len()).unwrap_or(0));
                wire.extend_from_slice(label);
            }
            wire.push(0);
            if let Some(hash) = index.hash(&wire) {
                index.slots.entry(hash).or_insert(slot);
            }
        }
        index
    }

    /// Hashes a name in lower case, since names are case-insensitive (RFC 4343). `None` if it is too long.
    fn hash(&self, wire: &[u8]) -> Option<u64> {
        let mut lower = [0; NAME_MAX];
        let lower = lower.get_mut(..wire.len())?;
        lower.copy_from_slice(wire);
        lower.make_ascii_lowercase();
        let mut hasher = self.hasher.build_hasher();
        hasher.write(lower);
        Some(hasher.finish())
    }

    /// The table of the app with this uncompressed encoded name, if it is in the index.
    pub(crate) fn find<'a>(
        &self,
        wire: &[u8],
        tables: &'a [Arc<AppTable>],
    ) -> Option<&'a AppTable> {
        let table = tables.get(*self.slots.get(&self.hash(wire)?)?)?;
        same(wire, &table.name).then_some(table)
    }
}

fn same(mut wire: &[u8], name: &Name) -> bool {
    for known in name.iter() {
        let Some((len, rest)) = wire.split_first() else {
            return false;
        };
        match rest.split_at_checked(usize::from(*len)) {
            Some((label, rest)) if label.eq_ignore_ascii_case(known) => wire = rest,
            _ => return false,
        }
    }
    wire == [0]
}
