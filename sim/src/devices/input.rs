//! Nodes and pods of a recorded cluster.
//!
//! Columns as in the GPU cluster trace of Weng et al., "Beware of Fragmentation", USENIX ATC 2023: of a node `sn`, `cpu_milli`,
//! `memory_mib`, `gpu` (how many devices) and `model`; of a pod `name`, `cpu_milli`, `memory_mib`, `num_gpu` and `gpu_milli`
//! (thousandths of one device where `num_gpu` is 1, whole devices otherwise).

use std::path::Path;

use fdn_core::{MebiBytes, MilliCpu};
use fdn_scheduling::resource::{DeviceRequest, GpuMilli, NodeSpec, Request, Vector};
use serde::Deserialize;

use crate::Error;
use crate::input;

/// The most devices of a node: 10 bits each in a word of 128.
pub const DEVICES_MAX: u32 = 12;

/// A node of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its id.
    pub name: String,
    /// What its devices are.
    pub model: String,
    /// What it has; devices in thousandths.
    pub spec: NodeSpec,
}

#[derive(Debug, Deserialize)]
struct NodeRow {
    sn: String,
    cpu_milli: u64,
    memory_mib: u64,
    gpu: u32,
    #[serde(default)]
    model: String,
}

#[derive(Debug, Deserialize)]
struct PodRow {
    cpu_milli: u64,
    memory_mib: u64,
    num_gpu: u32,
    gpu_milli: u64,
}

/// The nodes of a file, in the order of their ids.
///
/// # Errors
/// When the file cannot be read, a line is not what it should be, an id is there twice, or no node has a device.
pub fn nodes(path: &Path) -> Result<Vec<Node>, Error> {
    let mut nodes = input::csv(path, |row: NodeRow| {
        if row.gpu > DEVICES_MAX {
            return Err(format!(
                "{} devices; a node has at most {DEVICES_MAX}",
                row.gpu
            ));
        }
        if row.cpu_milli.max(row.memory_mib) > QUANTITY_MAX {
            return Err(format!("more than {QUANTITY_MAX} of a class"));
        }
        let capacity = Vector::new(MilliCpu(row.cpu_milli), MebiBytes(row.memory_mib));
        Ok(Node {
            name: row.sn,
            model: row.model,
            spec: NodeSpec::new(capacity, row.gpu, GpuMilli::WHOLE.units()),
        })
    })?;
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(pair) = nodes.windows(2).find(|pair| pair[0].name == pair[1].name) {
        let expected = format!("there is more than one node {}", pair[0].name);
        return Err(Error::input(path, "column sn", expected));
    }
    if nodes.iter().all(|node| node.spec.devices == 0) {
        return Err(Error::input(path, "column gpu", "no node has a device"));
    }
    Ok(nodes)
}

/// More of a class than any machine has, and little enough to add up without thinking.
const QUANTITY_MAX: u64 = 1 << 48;

/// What the pods of a file want, those that want a device, in the order of the file.
///
/// # Errors
/// When the file cannot be read, a line is not what it should be, or no pod wants a device.
pub fn pods(path: &Path) -> Result<Vec<Request>, Error> {
    let pods = input::csv(path, |row: PodRow| {
        let devices = match (row.num_gpu, row.gpu_milli) {
            (0, _) => return Ok(None),
            (1, milli @ 1..=1000) => DeviceRequest::share(GpuMilli(milli).units()),
            (1, milli) => return Err(format!("gpu_milli {milli}, but a share is 1 to 1000")),
            (count @ 2..=DEVICES_MAX, _) => DeviceRequest::Whole(count),
            (count, _) => {
                return Err(format!("{count} devices; a node has at most {DEVICES_MAX}"));
            }
        };
        let classes = Vector::new(MilliCpu(row.cpu_milli), MebiBytes(row.memory_mib));
        Ok(Some(Request { classes, devices }))
    })?;
    let pods: Vec<Request> = pods.into_iter().flatten().collect();
    if pods.is_empty() {
        return Err(Error::input(
            path,
            "column num_gpu",
            "no pod wants a device",
        ));
    }
    Ok(pods)
}
