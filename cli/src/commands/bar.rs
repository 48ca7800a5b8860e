//! Draws a device and its slices as one line of text.

use fdn_core::device::{DeviceState, DeviceStatus};

/// A cell of a slice.
const HELD: char = '#';
/// A free cell.
const FREE: char = '·';
/// The border between two slices.
const BORDER: char = '|';
/// A free cell of a device that is out of service.
const OUT: char = 'x';

/// The slices of a device in `width` cells, and the memory that they hold: `[#####|##·········] 12.5/80 GiB`.
///
/// The slices are in the order of the status, each as long as its part of the memory, rounded, but at least one cell; free memory
/// has at least one cell, too. If there are more slices than cells, only their sum is drawn. A device that is out of service has the reason added:
/// `[#####|##xxxxxxxxx] 12.5/80 GiB, out of service: Xid 79`.
pub(super) fn bar(device: &DeviceStatus, width: usize) -> String {
    let slices: Vec<u64> = device.slices.iter().map(|s| s.memory_mib.get()).collect();
    let held: u64 = slices.iter().sum();
    let all = device.memory_mib.get().max(held);
    let borders = slices.len().saturating_sub(1);
    let alone = slices.len() + borders + usize::from(held < all);
    let free = if device.state.is_in_service() {
        FREE
    } else {
        OUT
    };
    let cells = if alone <= width {
        drawn(&slices, all, width - borders, free)
    } else {
        drawn(&[held], all, width, free)
    };
    let (bound, memory) = (gib(device.bound_mib.get()), gib(device.memory_mib.get()));
    let mut line = format!("[{cells}] {bound}/{memory} GiB");
    if let DeviceState::OutOfService { reason, .. } = &device.state {
        line.push_str(", out of service: ");
        line.push_str(reason);
    }
    line
}

/// The cells of the slices, with a border between each two.
fn drawn(slices: &[u64], all: u64, cells: usize, free: char) -> String {
    let held: u64 = slices.iter().sum();
    let spare = usize::from(held < all);
    let mut left = cells;
    let mut out = String::new();
    let mut before = 0_u64;
    for (at, slice) in slices.iter().filter(|slice| **slice > 0).enumerate() {
        if at > 0 {
            out.push(BORDER);
        }
        let after = before + slice;
        // Compute positions of borders, not lengths, so that rounding errors do not add up.
        let part = position(after, all, cells).saturating_sub(position(before, all, cells));
        let later = slices.len() - at - 1 + spare;
        let part = part.clamp(1, left.saturating_sub(later).max(1)).min(left);
        out.extend(std::iter::repeat_n(HELD, part));
        left -= part;
        before = after;
    }
    out.extend(std::iter::repeat_n(free, left));
    out
}

fn position(at: u64, all: u64, cells: usize) -> usize {
    let all = u128::from(all.max(1));
    let scaled = (u128::from(at) * 2 * cells as u128 + all) / (2 * all);
    usize::try_from(scaled).unwrap_or(cells).min(cells)
}

/// Mebibytes in gibibytes with at most one decimal.
fn gib(mib: u64) -> String {
    let tenths = (mib * 10 + 512) / 1024;
    match tenths % 10 {
        0 => format!("{}", tenths / 10),
        tenth => format!("{}.{tenth}", tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use fdn_core::device::{DeviceKind, SliceStatus};
    use fdn_core::{InstanceId, MebiBytes, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn device(memory: u64, slices: &[u64]) -> DeviceStatus {
        DeviceStatus {
            id: "GPU-1".parse().expect("id"),
            kind: DeviceKind::Gpu,
            model: "NVIDIA A100-SXM4-80GB".into(),
            parent: None,
            memory_mib: MebiBytes(memory),
            bound_mib: MebiBytes(slices.iter().sum()),
            state: DeviceState::InService,
            slices: slices
                .iter()
                .zip(1..)
                .map(|(mib, n)| SliceStatus {
                    instance: InstanceId::from_uuid(uuid::Uuid::from_u128(n)),
                    app: "thumbs".parse().expect("app"),
                    memory_mib: MebiBytes(*mib),
                    cores: None,
                })
                .collect(),
        }
    }

    #[test]
    fn slices_are_drawn_to_scale() {
        let of = |memory: u64, slices: &[u64]| bar(&device(memory, slices), 16);
        let gib = 1024;
        assert_eq!(of(80 * gib, &[]), "[················] 0/80 GiB");
        assert_eq!(
            of(80 * gib, &[40 * gib, 10 * gib]),
            "[########|#······] 50/80 GiB"
        );
        assert_eq!(
            of(80 * gib, &[10 * gib, 2560]),
            "[##|#············] 12.5/80 GiB"
        );
        assert_eq!(of(80 * gib, &[80 * gib]), "[################] 80/80 GiB");
        // However little is free, it is visible, and so is every small slice.
        assert_eq!(
            of(80 * gib, &[80 * gib - 1]),
            "[###############·] 80/80 GiB"
        );
        assert_eq!(of(80 * gib, &[1]), "[#···············] 0/80 GiB");
        // Too many slices to draw each.
        assert_eq!(of(16 * gib, &[gib; 12]), "[############····] 12/16 GiB");
    }

    #[test]
    fn a_device_out_of_service_says_why() {
        let mut device = device(80 << 10, &[20 << 10]);
        device.state = DeviceState::OutOfService {
            reason: "Xid 79".into(),
            since: Timestamp(1),
        };
        assert_eq!(
            bar(&device, 8),
            "[##xxxxxx] 20/80 GiB, out of service: Xid 79"
        );
    }

    proptest! {
        #[test]
        fn a_bar_has_its_width_and_every_slice(
            slices in proptest::collection::vec(1u64..20_000, 0..12),
            spare in 0u64..20_000,
            width in 1usize..60,
        ) {
            let held: u64 = slices.iter().sum();
            let line = bar(&device(held + spare, &slices), width);
            let cells = line.trim_start_matches('[').split(']').next().unwrap().to_owned();
            prop_assert_eq!(cells.chars().count(), width, "{}", line);
            let drawn = cells.split(BORDER).filter(|part| part.contains(HELD)).count();
            if slices.len() * 2 <= width {
                prop_assert_eq!(drawn, slices.len(), "{}", line);
                prop_assert_eq!(cells.contains(FREE), spare > 0 || held == 0, "{}", line);
            }
        }
    }
}
