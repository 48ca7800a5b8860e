//! Which instance holds which slices of a node's devices.
//!
//! **Problem.** The node is authoritative for its devices: a choice made elsewhere on an older view is bound here or refused, and what an
//! instance held is returned when it ends, once, however often its end is reported.
//!
//! **Bound.** The most bindings are fixed at creation; a further one is refused with [`ResourceError::Full`].
//!
//! **Invariants.** On each device, free and bound amounts add up to its capacity, so never more is bound than it has; an instance holds
//! slices once; a refused call changes nothing.

use super::error::ResourceError;
use super::layout::{Layout, Packed};
use super::query::{DeviceChoice, DeviceSet};
use super::unit::Units;
use super::vector::DeviceRequest;
use super::word::Word;

/// The slices that an instance holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The devices.
    pub devices: DeviceSet,
    /// The amount of each.
    pub each: Units,
}

/// The devices of one node and the bindings of their slices. `K` is the type of an instance's id.
#[derive(Clone, Debug)]
pub struct Ledger<K, W> {
    layout: Layout<W>,
    devices: u32,
    each: Units,
    free: Packed<W>,
    /// Sorted by instance; allocated for `most` from the start.
    bindings: Vec<(K, Binding)>,
    most: usize,
}

impl<K: Ord + Copy, W: Word> Ledger<K, W> {
    /// A ledger for this many devices of this size, with at most `most` bindings.
    ///
    /// # Errors
    /// When the layout cannot hold them.
    pub fn new(
        layout: Layout<W>,
        devices: u32,
        each: Units,
        most: usize,
    ) -> Result<Self, ResourceError> {
        Ok(Self {
            free: layout.fill(devices, each)?,
            layout,
            devices,
            each,
            bindings: Vec::with_capacity(most),
            most,
        })
    }

    /// The free amount of each device.
    #[must_use]
    pub const fn free(&self) -> Packed<W> {
        self.free
    }

    /// The layout of packed device quantities.
    #[must_use]
    pub const fn layout(&self) -> &Layout<W> {
        &self.layout
    }

    /// The binding of an instance; `None` if it has none.
    #[must_use]
    pub fn get(&self, instance: K) -> Option<Binding> {
        let at = self.position(instance).ok()?;
        Some(self.bindings[at].1)
    }

    /// All bindings, sorted by instance.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(K, Binding)> {
        self.bindings.iter()
    }

    /// Binds an instance's request to devices selected by `choice`.
    ///
    /// # Errors
    /// [`ResourceError::AlreadyBound`], [`ResourceError::NoDevice`] or [`ResourceError::Full`].
    pub fn bind(
        &mut self,
        instance: K,
        request: DeviceRequest,
        choice: DeviceChoice,
    ) -> Result<Binding, ResourceError> {
        let (count, each) = (request.count(), request.each(self.each));
        if count == 0 {
            return self.bind_to(instance, DeviceSet::NONE, Units(0));
        }
        let among = self.layout.at_least(each).map(|t| t.matches(self.free));
        // A missing device is an empty field, which never matches, since more than zero is requested.
        let chosen =
            among.and_then(|among| self.layout.choose_many(self.free, among, count, choice));
        let devices = chosen.ok_or(ResourceError::NoDevice {
            wanted: count,
            fit: among.map_or(0, super::query::Matches::count),
        })?;
        self.bind_to(instance, devices, each)
    }

    /// Binds slices of given devices, as chosen elsewhere.
    ///
    /// # Errors
    /// [`ResourceError::AlreadyBound`], [`ResourceError::NoSuchDevice`], [`ResourceError::TooLittle`] or
    /// [`ResourceError::Full`].
    pub fn bind_to(
        &mut self,
        instance: K,
        devices: DeviceSet,
        each: Units,
    ) -> Result<Binding, ResourceError> {
        let Err(at) = self.position(instance) else {
            return Err(ResourceError::AlreadyBound);
        };
        if self.bindings.len() >= self.most {
            return Err(ResourceError::Full { most: self.most });
        }
        let mut free = self.free;
        for device in devices.iter() {
            if device >= self.devices {
                return Err(ResourceError::NoSuchDevice {
                    device,
                    devices: self.devices,
                });
            }
            free = self.layout.sub(free, device, each)?;
        }
        let binding = Binding { devices, each };
        self.free = free;
        self.bindings.insert(at, (instance, binding));
        Ok(binding)
    }

    /// Returns what an instance holds.
    ///
    /// # Errors
    /// [`ResourceError::NotBound`], as when its end is reported twice.
    pub fn unbind(&mut self, instance: K) -> Result<Binding, ResourceError> {
        let Ok(at) = self.position(instance) else {
            return Err(ResourceError::NotBound);
        };
        let binding = self.bindings[at].1;
        let mut free = self.free;
        for device in binding.devices.iter() {
            free = self.layout.add(free, device, binding.each)?;
        }
        self.free = free;
        self.bindings.remove(at);
        Ok(binding)
    }

    fn position(&self, instance: K) -> Result<usize, usize> {
        self.bindings.binary_search_by(|(of, _)| of.cmp(&instance))
    }
}
