//! Whatever happens to the agent, the instances and the machine, in any order: no device is ever over its memory.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// An event in the life of a node.
#[derive(Clone, Debug)]
enum Step {
    /// An instance is requested; it starts, or the agent dies before that.
    Bind {
        mib: u64,
        count: u32,
        cores: Option<u8>,
        started: bool,
    },
    /// A running instance ends; the agent learns of it or not.
    End {
        which: usize,
        heard: bool,
    },
    /// The agent restarts, with its allocation table or without.
    Restart {
        allocations: Kept,
    },
    Fault {
        device: usize,
    },
    Back {
        device: usize,
    },
    /// The machine now has this many devices of this size.
    Machine {
        count: u32,
        gib: u64,
    },
    /// The instances that lost their slices are ended.
    EndLost,
}

#[derive(Clone, Copy, Debug)]
enum Kept {
    Newest,
    /// As it was before the last change, as if the disk had not synced.
    Older,
    Nothing,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cores = proptest::option::weighted(0.3, 1u8..=100);
    let kept =
        prop_oneof![4 => Just(Kept::Newest), 1 => Just(Kept::Older), 1 => Just(Kept::Nothing)];
    let step = prop_oneof![
        8 => (1u64..90_000, 1u32..4, cores, proptest::bool::weighted(0.9))
            .prop_map(|(mib, count, cores, started)| Step::Bind { mib, count, cores, started }),
        4 => (any::<usize>(), proptest::bool::weighted(0.8)).prop_map(|(which, heard)| Step::End { which, heard }),
        2 => kept.prop_map(|allocations| Step::Restart { allocations }),
        1 => (0usize..8).prop_map(|device| Step::Fault { device }),
        1 => (0usize..8).prop_map(|device| Step::Back { device }),
        1 => (6u32..=8, prop_oneof![2 => Just(80u64), 1 => Just(64), 1 => Just(96)])
            .prop_map(|(count, gib)| Step::Machine { count, gib }),
        2 => Just(Step::EndLost),
    ];
    proptest::collection::vec(step, 1..80)
}

/// A machine with its instances, independent of the allocation table that is tested.
struct World {
    allocations: AllocationTable,
    saved: [SavedAllocations; 2],
    devices: Vec<Device>,
    running: BTreeMap<InstanceId, Binding>,
    out: BTreeSet<DeviceId>,
    next: u128,
}

impl World {
    fn new() -> Self {
        let devices = gpus(8, 80 * GIB);
        let allocations = allocations(devices.clone());
        let saved = allocations.to_saved("boot");
        Self {
            allocations,
            saved: [saved.clone(), saved],
            devices,
            running: BTreeMap::new(),
            out: BTreeSet::new(),
            next: 0,
        }
    }

    fn device(n: usize) -> DeviceId {
        format!("SIM-{n}").parse().expect("id")
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Bind {
                mib,
                count,
                cores,
                started,
            } => {
                let cores = cores.map(|c| c.try_into().expect("percent"));
                let request = GpuRequest {
                    count,
                    cores,
                    ..ask(mib)
                };
                self.bind(&request, started);
            }
            Step::End { which, heard } => {
                let among: Vec<InstanceId> = self.running.keys().copied().collect();
                if let Some(instance) = among.get(which.checked_rem(among.len()).unwrap_or(0)) {
                    self.running.remove(instance);
                    if heard {
                        self.allocations.unbind(*instance).expect("it was bound");
                    } else {
                        self.restart(Kept::Newest);
                    }
                }
            }
            Step::Restart { allocations } => self.restart(allocations),
            Step::Fault { device } => {
                let fault = self.allocations.take_out_of_service(
                    &Self::device(device),
                    "Xid 79",
                    Timestamp(1),
                );
                self.out.extend(fault.devices);
            }
            Step::Back { device } => {
                self.allocations.return_to_service(&Self::device(device));
                self.out.remove(&Self::device(device));
            }
            Step::Machine { count, gib } => {
                self.devices = gpus(count, gib * GIB);
                self.allocations
                    .inventory(self.devices.clone())
                    .expect("devices");
            }
            Step::EndLost => {
                let lost: Vec<InstanceId> = self.allocations.lost().collect();
                for instance in lost {
                    self.running.remove(&instance);
                    self.allocations.unbind(instance).expect("it was known");
                }
            }
        }
        let [_, newer] = &mut self.saved;
        let older = std::mem::replace(newer, self.allocations.to_saved("boot"));
        self.saved[0] = older;
    }

    fn bind(&mut self, request: &GpuRequest, started: bool) {
        self.next += 1;
        let usable: BTreeSet<DeviceId> = self
            .allocations
            .status()
            .into_iter()
            .filter(|d| d.state.is_in_service())
            .map(|d| d.id)
            .collect();
        if let Ok(bound) = self.allocations.bind(id(self.next), &app(), request) {
            assert_eq!(bound.devices.len(), request.count as usize);
            assert!(bound.devices.is_subset(&usable), "{bound:?} of {usable:?}");
            assert!(
                bound.devices.is_disjoint(&self.out),
                "{bound:?} is out of service"
            );
            if started {
                self.running.insert(bound.instance, bound);
            } else {
                self.restart(Kept::Newest);
            }
        }
    }

    fn restart(&mut self, kept: Kept) {
        let options = DevicesSettings::default().allocations();
        let saved = match kept {
            Kept::Newest => Some(self.allocations.to_saved("boot")),
            Kept::Older => Some(self.saved[0].clone()),
            Kept::Nothing => None,
        };
        let fresh = saved.is_none();
        self.allocations = match saved {
            Some(saved) => AllocationTable::from_saved(options, saved).expect("allocations"),
            None => AllocationTable::new(options),
        };
        self.allocations
            .inventory(self.devices.clone())
            .expect("devices");
        self.allocations
            .reconcile(self.running.values().cloned())
            .expect("reconciled");
        if fresh || matches!(kept, Kept::Older) {
            // Outages may be forgotten together with the table; the device's next fault reports them again.
            let status = self.allocations.status();
            let out = status.iter().filter(|d| matches!(&d.state, DeviceState::OutOfService { reason, .. } if reason == "Xid 79"));
            self.out = out.map(|d| d.id.clone()).collect();
        }
    }

    /// Checks the bounds independently of the allocation table.
    fn check(&self) {
        let memory: BTreeMap<&DeviceId, u64> = self
            .devices
            .iter()
            .map(|d| (&d.id, d.memory.get()))
            .collect();
        let status = self.allocations.status();
        let held = |instance: &InstanceId| self.allocations.get(*instance).is_some();
        for device in &status {
            let slices: u64 = device.slices.iter().map(|s| s.memory_mib.get()).sum();
            let cores: u64 = device
                .slices
                .iter()
                .filter_map(|s| s.cores)
                .map(|c| u64::from(c.get()))
                .sum();
            let most = memory.get(&device.id).copied().unwrap_or(0);
            assert!(
                slices <= most,
                "{}: {slices} of {most} MiB bound",
                device.id
            );
            assert!(
                device.bound_mib.get() <= most && slices <= device.bound_mib.get(),
                "{device:?}"
            );
            assert!(cores <= 100, "{}: {cores} % bound", device.id);
            if device.state.is_in_service() {
                // Not only the bindings: what really runs on the device fits too, whether it is bound or not.
                let used: u64 = self
                    .running
                    .values()
                    .filter(|b| b.devices.contains(&device.id))
                    .map(|b| b.memory.get())
                    .sum();
                assert!(used <= most, "{}: {used} of {most} MiB used", device.id);
            }
        }
        for (instance, bound) in &self.running {
            let lost = self.allocations.lost().any(|lost| lost == *instance);
            assert!(
                held(instance) != lost,
                "{instance} is either bound or has to end"
            );
            if held(instance) {
                assert_eq!(self.allocations.get(*instance), Some(bound));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// 8 devices, whatever happens to agent, instances and machine.
    #[test]
    fn no_device_is_ever_over_its_memory(steps in steps()) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
        // With everything ended, everything is free.
        world.running.clear();
        world.restart(Kept::Newest);
        prop_assert!(world.allocations.is_empty());
        prop_assert!(world.allocations.status().iter().all(|d| d.bound_mib == MebiBytes(0)));
    }
}
