//! The check whether the network has the devices that a function requests. If it has none, the function is accepted all the same, since a node
//! that has them may join later; the response says so.

use std::time::Instant;

use fdn_core::api::ValidationStep;
use fdn_core::device::GpuRequest;
use fdn_core::manifest::Manifest;
use fdn_core::{ClusterId, Millis};

use crate::reconcile::serving::InstanceRequirements;
use crate::state::State;

/// The most clusters that are named in the result.
const NAMED: usize = 3;

/// The clusters in which the function could run; `None` if it requests no devices.
pub(super) fn validation_step(state: &State, manifest: &Manifest) -> Option<ValidationStep> {
    let gpu = manifest.gpu.as_ref()?;
    let begin = Instant::now();
    let world = state.world(fdn_service::now());
    let (phases, need) = (world.phases(), InstanceRequirements::of(manifest));
    let all = world.clusters().iter().enumerate();
    let having = all.filter(|(at, _)| phases.holds(*at, &need));
    let having: Vec<&ClusterId> = having.map(|(_, cluster)| &cluster.id).collect();
    Some(ValidationStep {
        step: "devices".to_owned(),
        result: describe(gpu, &having),
        took: Millis::from(begin.elapsed()),
    })
}

/// The result as text.
fn describe(gpu: &GpuRequest, having: &[&ClusterId]) -> String {
    let (count, s) = (gpu.count, if gpu.count == 1 { "" } else { "s" });
    let model = gpu.model.as_ref();
    let model = model.map_or_else(String::new, |model| format!(" of model {model}"));
    let wanted = format!("{count} device{s}{model} with {}", gpu.memory);
    if having.is_empty() {
        return format!(
            "no node of any cluster that runs containers has {wanted}: calls are refused until one joins, or [gpu] of the manifest asks for less"
        );
    }
    let named: Vec<&str> = having.iter().take(NAMED).map(|id| id.as_str()).collect();
    let more = having.len() - named.len();
    let more = match more {
        0 => String::new(),
        _ => format!(" and {more} more"),
    };
    format!("{wanted}: in {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use fdn_core::ByteSize;

    use super::*;

    #[test]
    fn who_has_the_devices_is_named_and_that_nobody_has() {
        let ids: Vec<ClusterId> = ["a", "b", "c", "d", "e"]
            .map(|id| id.parse().expect("a cluster"))
            .into();
        let ids: Vec<&ClusterId> = ids.iter().collect();
        let one = GpuRequest::of_memory(ByteSize::from_mib(12 << 10));
        assert_eq!(describe(&one, &ids[..2]), "1 device with 12GiB: in a, b");
        assert!(describe(&one, &ids).ends_with("in a, b, c and 2 more"));
        let two = GpuRequest {
            count: 2,
            model: Some("H200".parse().expect("a model")),
            ..one
        };
        let none = describe(&two, &[]);
        assert!(
            none.starts_with(
                "no node of any cluster that runs containers has 2 devices of model H200 with 12GiB: calls are refused"
            ),
            "{none}"
        );
    }
}
