//! The capacity and free resources of all nodes, stored by class so that a filter reads contiguous memory.
//!
//! **Invariants.** In every class and on every device, free never exceeds capacity and never goes below 0; a change happens completely or
//! not at all; the version of a node grows with every change.

use fdn_core::MebiBytes;

use super::error::ResourceError;
use super::layout::{Layout, Packed};
use super::query::DeviceSet;
use super::unit::{Units, bits_for};
use super::vector::{Class, Request, Vector};
use super::word::Word;

/// A node of a [`Fleet`]. Nodes are numbered in the order of their ids, so the smaller index is the smaller id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeIndex(usize);

impl NodeIndex {
    /// The node with this index.
    #[must_use]
    pub const fn new(index: usize) -> Self {
        Self(index)
    }

    /// The index.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

/// The capacity of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its capacity by class; 0 for a class that it lacks.
    pub capacity: Vector,
    /// The number of its devices.
    pub devices: u32,
    /// The capacity of each device.
    pub each: Units,
}

impl NodeSpec {
    /// A node with devices of `each` units.
    #[must_use]
    pub const fn new(capacity: Vector, devices: u32, each: Units) -> Self {
        Self {
            capacity,
            devices,
            each,
        }
    }

    /// A node with devices of this much memory, counted in this unit.
    #[must_use]
    pub const fn with_memory(
        capacity: Vector,
        devices: u32,
        memory: MebiBytes,
        unit: super::unit::MemoryUnit,
    ) -> Self {
        Self::new(capacity, devices, unit.capacity(memory))
    }
}

/// The nodes of a cluster.
#[derive(Clone, Debug)]
pub struct Fleet<W> {
    layout: Layout<W>,
    nodes: Vec<NodeSpec>,
    /// One list per class, so that classes that are not requested are not even read.
    free: [Vec<u64>; Class::ALL.len()],
    device_capacity: Vec<Packed<W>>,
    device_free: Vec<Packed<W>>,
    versions: Vec<u64>,
}

impl<W: Word> Fleet<W> {
    /// These nodes, in the order of their ids, with everything free, in a layout that is wide enough for all.
    ///
    /// # Errors
    /// When no layout of this word is wide enough.
    pub fn new(nodes: &[NodeSpec]) -> Result<Self, ResourceError> {
        let devices = nodes.iter().map(|node| node.devices).max().unwrap_or(0);
        let most = nodes.iter().map(|node| node.each).max().unwrap_or_default();
        Self::with_layout(Layout::new(devices.max(1), bits_for(most))?, nodes)
    }

    /// These nodes in a given layout.
    ///
    /// # Errors
    /// When a node has more devices, or larger ones, than the layout can hold.
    pub fn with_layout(layout: Layout<W>, nodes: &[NodeSpec]) -> Result<Self, ResourceError> {
        let device_capacity = nodes
            .iter()
            .map(|node| layout.fill(node.devices, node.each))
            .collect::<Result<Vec<_>, _>>()?;
        let free = Class::ALL.map(|class| nodes.iter().map(|n| n.capacity.get(class)).collect());
        Ok(Self {
            layout,
            nodes: nodes.to_vec(),
            free,
            device_free: device_capacity.clone(),
            device_capacity,
            versions: vec![0; nodes.len()],
        })
    }

    /// The number of nodes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The layout of packed device quantities.
    #[must_use]
    pub const fn layout(&self) -> &Layout<W> {
        &self.layout
    }

    /// The capacity of a node.
    ///
    /// # Panics
    /// If there is no such node; this holds for the other getters as well.
    #[must_use]
    pub fn spec(&self, node: NodeIndex) -> &NodeSpec {
        &self.nodes[node.0]
    }

    /// The free amount of a class.
    #[must_use]
    pub fn free(&self, node: NodeIndex, class: Class) -> u64 {
        self.free[class.index()][node.0]
    }

    /// The free amounts of all classes.
    #[must_use]
    pub fn free_vector(&self, node: NodeIndex) -> Vector {
        Vector::from_fn(|class| self.free(node, class))
    }

    /// The free amounts of all devices.
    #[must_use]
    pub fn device_free(&self, node: NodeIndex) -> Packed<W> {
        self.device_free[node.0]
    }

    /// The capacities of all devices.
    #[must_use]
    pub fn device_capacity(&self, node: NodeIndex) -> Packed<W> {
        self.device_capacity[node.0]
    }

    /// The version of a node, which grows with every change.
    #[must_use]
    pub fn version(&self, node: NodeIndex) -> u64 {
        self.versions[node.0]
    }

    /// Allocates the request of an instance on a node, on these devices.
    ///
    /// # Errors
    /// What is not available; nothing is allocated then.
    pub fn take(
        &mut self,
        node: NodeIndex,
        request: &Request,
        devices: DeviceSet,
    ) -> Result<(), ResourceError> {
        let each = self.agreed(node, request, devices)?;
        let free = self.free_vector(node).checked_sub(&request.classes)?;
        let mut device_free = self.device_free[node.0];
        for device in devices.iter() {
            device_free = self.layout.sub(device_free, device, each)?;
        }
        self.set(node, &free, device_free);
        Ok(())
    }

    /// Returns the resources of an instance.
    ///
    /// # Errors
    /// When a class or device would have more free than its capacity; nothing is returned then.
    pub fn give_back(
        &mut self,
        node: NodeIndex,
        request: &Request,
        devices: DeviceSet,
    ) -> Result<(), ResourceError> {
        let each = self.agreed(node, request, devices)?;
        let spec = self.nodes[node.0];
        let free = self
            .free_vector(node)
            .checked_add(&request.classes, &spec.capacity)?;
        let mut device_free = self.device_free[node.0];
        for device in devices.iter() {
            device_free = self.layout.add(device_free, device, each)?;
            let quantity = self.layout.get(device_free, device)?;
            let most = self.layout.get(self.device_capacity[node.0], device)?;
            if quantity > most {
                return Err(ResourceError::TooMuch {
                    device,
                    quantity,
                    most,
                });
            }
        }
        self.set(node, &free, device_free);
        Ok(())
    }

    /// The amount that the request takes of each device of the node, after checking node and number of devices.
    fn agreed(
        &self,
        node: NodeIndex,
        request: &Request,
        devices: DeviceSet,
    ) -> Result<Units, ResourceError> {
        let spec = self.nodes.get(node.0).ok_or(ResourceError::NoSuchNode {
            node: node.0,
            nodes: self.nodes.len(),
        })?;
        let wanted = request.devices.count();
        if devices.len() != wanted {
            return Err(ResourceError::NoDevice {
                wanted,
                fit: devices.len(),
            });
        }
        if let Some(device) = devices.iter().find(|device| *device >= spec.devices) {
            return Err(ResourceError::NoSuchDevice {
                device,
                devices: spec.devices,
            });
        }
        Ok(request.devices.each(spec.each))
    }

    fn set(&mut self, node: NodeIndex, free: &Vector, device_free: Packed<W>) {
        for class in Class::ALL {
            self.free[class.index()][node.0] = free.get(class);
        }
        self.device_free[node.0] = device_free;
        self.versions[node.0] += 1;
    }

    /// The free amounts of a class, by node.
    pub(super) fn free_list(&self, class: Class) -> &[u64] {
        &self.free[class.index()]
    }

    /// The free amounts of the devices, by node.
    pub(super) fn device_free_list(&self) -> &[Packed<W>] {
        &self.device_free
    }

    /// The capacities of the devices, by node.
    pub(super) fn device_capacity_list(&self) -> &[Packed<W>] {
        &self.device_capacity
    }
}
