//! Common parts of the text forms of clusters and nodes.

use fdn_core::device::DeviceStatus;
use fdn_core::message::StageCounts;
use fdn_core::{Resources, Timestamp};

use super::bar::bar;
use crate::output::age;

/// The width of a device's bar in cells.
const BAR: usize = 24;

/// Rows of two cells.
pub(super) fn rows<const N: usize>(cells: [(&str, String); N]) -> Vec<Vec<String>> {
    cells
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect()
}

/// The free part of the capacity.
pub(super) fn free(free: &Resources, capacity: &Resources) -> Vec<Vec<String>> {
    let of = |free: String, all: String| format!("{free} of {all} free");
    let cpu = of(free.cpu_milli.to_string(), capacity.cpu_milli.to_string());
    let memory = of(free.memory_mib.to_string(), capacity.memory_mib.to_string());
    let mut all = rows([("cpu", cpu), ("memory", memory)]);
    if capacity.gpu_memory_mib.get() > 0 {
        let gpu = of(
            free.gpu_memory_mib.to_string(),
            capacity.gpu_memory_mib.to_string(),
        );
        all.extend(rows([("gpu memory", gpu)]));
    }
    all
}

/// A device with its slices as a bar.
pub(super) fn device(device: &DeviceStatus) -> String {
    format!("{}  {}, {}", device.id, device.model, bar(device, BAR))
}

/// How the room for instances was found, by stage of the search.
pub(super) fn stages(counts: Option<StageCounts>) -> String {
    counts.map_or_else(
        || "-".to_owned(),
        |counts| {
            format!(
                "{} local, {} probe, {} global, {} refused",
                counts.local, counts.probe, counts.global, counts.refused
            )
        },
    )
}

/// The time left until `at`, or that it has passed.
pub(super) fn left(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        format!("{} left", age(now, at))
    } else {
        "over".to_owned()
    }
}
