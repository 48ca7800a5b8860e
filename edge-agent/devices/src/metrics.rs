//! Metrics of devices. The labels are the machine's devices and models, and a few fixed words.

use fdn_core::NodeId;
use fdn_core::device::DeviceStatus;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};

/// The metrics of a node's devices.
#[derive(Clone, Debug)]
pub struct DeviceMetrics {
    memory: IntGaugeVec,
    bound: IntGaugeVec,
    in_service: IntGaugeVec,
    slices: IntGaugeVec,
    lost: IntGauge,
    pub(crate) binds: IntCounterVec,
    pub(crate) events: IntCounterVec,
}

impl DeviceMetrics {
    /// Registers the metrics of `node`.
    ///
    /// # Errors
    /// When one of the names is already registered.
    pub fn new(registry: &Registry, node: &NodeId) -> Result<Self, prometheus::Error> {
        let opts = |name: &str, help: &str| {
            Opts::new(format!("fdn_agent_device{name}"), help).const_label("node", node.as_str())
        };
        let gauges = |name: &str, help: &str| -> Result<IntGaugeVec, prometheus::Error> {
            let gauges = IntGaugeVec::new(opts(name, help), &["device", "model"])?;
            registry.register(Box::new(gauges.clone()))?;
            Ok(gauges)
        };
        let counters = |name: &str, help: &str, label: &str| {
            let counters = IntCounterVec::new(opts(name, help), &[label])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let lost = IntGauge::with_opts(opts(
            "s_lost_instances",
            "Instances that lost their slices and have not ended.",
        ))?;
        registry.register(Box::new(lost.clone()))?;
        Ok(Self {
            memory: gauges("_memory_bytes", "Memory of a GPU device.")?,
            bound: gauges(
                "_bound_bytes",
                "Memory of a GPU device that instances hold.",
            )?,
            in_service: gauges("_in_service", "Whether slices of a device are given out.")?,
            slices: gauges("_slices", "Instances that hold slices of a device.")?,
            binds: counters("_binds_total", "Requests for slices.", "result")?,
            events: counters("_events_total", "Events of devices, by kind.", "kind")?,
            lost,
        })
    }

    /// Publishes the present devices; removes those that are gone.
    pub(crate) fn show(&self, devices: &[DeviceStatus], lost: usize) {
        for gauges in [&self.memory, &self.bound, &self.in_service, &self.slices] {
            gauges.reset();
        }
        let bytes = |mib: fdn_core::MebiBytes| i64::try_from(mib.get() << 20).unwrap_or(i64::MAX);
        for device in devices {
            let labels = [device.id.as_str(), device.model.as_str()];
            let set = |gauges: &IntGaugeVec, value| gauges.with_label_values(&labels).set(value);
            set(&self.memory, bytes(device.memory_mib));
            set(&self.bound, bytes(device.bound_mib));
            set(&self.in_service, i64::from(device.state.is_in_service()));
            set(
                &self.slices,
                i64::try_from(device.slices.len()).unwrap_or(i64::MAX),
            );
        }
        self.lost.set(i64::try_from(lost).unwrap_or(i64::MAX));
    }
}
