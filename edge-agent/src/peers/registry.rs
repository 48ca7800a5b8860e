//! The function versions of which this node can start instances.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fdn_core::Millis;
use fdn_instances::StartSpec;

use super::order::Key;

/// The deployed versions. A version that is registered again with other secrets exists twice for a moment: the newer one counts.
#[derive(Debug, Default)]
pub(super) struct Registry {
    specs: Mutex<BTreeMap<Key, BTreeMap<u64, RegisteredVersion>>>,
    next: AtomicU64,
}

/// A registered version.
#[derive(Clone, Debug)]
pub(super) struct RegisteredVersion {
    /// The specification of its instances.
    pub(super) spec: StartSpec,
    /// The expected time of a call.
    pub(super) expected: Millis,
}

/// Keeps a version registered until dropped.
#[derive(Debug)]
pub(super) struct RegistrationGuard {
    registry: Arc<Registry>,
    key: Key,
    number: u64,
}

impl Registry {
    pub(super) fn add(self: &Arc<Self>, spec: &StartSpec, expected: Millis) -> RegistrationGuard {
        let key = Key::of(&spec.description);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut specs = self.specs.lock().unwrap_or_else(PoisonError::into_inner);
        let of = specs.entry(key.clone()).or_default();
        let spec = spec.clone();
        of.insert(number, RegisteredVersion { spec, expected });
        drop(specs);
        RegistrationGuard {
            registry: Arc::clone(self),
            key,
            number,
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<RegisteredVersion> {
        let specs = self.specs.lock().unwrap_or_else(PoisonError::into_inner);
        specs
            .get(key)?
            .last_key_value()
            .map(|(_, known)| known.clone())
    }
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        let specs = &self.registry.specs;
        let mut specs = specs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = specs.get_mut(&self.key) {
            of.remove(&self.number);
            if of.is_empty() {
                specs.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::{Digest, InstanceId, Resources};
    use fdn_instances::{Image, ImageSource};

    use super::*;

    fn spec(pids: u32) -> StartSpec {
        let image = Image {
            digest: Digest::of(b"x"),
            source: ImageSource::Archive { path: "x".into() },
        };
        let id = InstanceId::from_uuid(uuid::Uuid::nil());
        let name = "x".parse().expect("app");
        let function = "x".parse().expect("function");
        let mut spec = StartSpec::new(id, name, function, image, Resources::default());
        spec.pids = pids;
        spec
    }

    #[test]
    fn the_newest_of_a_version_counts_until_it_is_gone() {
        let registry = Arc::new(Registry::default());
        let key = Key::of(&spec(0).description);
        let pids = || registry.get(&key).map(|known| known.spec.pids);
        let old = registry.add(&spec(1), Millis::ZERO);
        let new = registry.add(&spec(2), Millis::ZERO);
        assert_eq!(pids(), Some(2));
        drop(old);
        assert_eq!(pids(), Some(2));
        drop(new);
        assert_eq!(pids(), None);
    }
}
