//! Decides whether a fault takes a device out of service.
//!
//! Xid numbers are the NVIDIA driver's (docs.nvidia.com/deploy/xid-errors). Some are the fault of the program that ran and leave the device
//! sound; the settings list them (`devices.ignored_xids`; the default is the list of NVIDIA's own Kubernetes plug-in). Every other one, and an
//! uncorrectable memory error, takes the device out of service until an operator puts it back, or the machine restarts.

use fdn_core::DeviceId;

/// An event of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthEvent {
    /// The device, or the GPU that it is a part of.
    pub device: DeviceId,
    /// What happened.
    pub what: Health,
}

/// The kinds of device events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The driver reported an Xid error, with its number if known.
    Xid(Option<u64>),
    /// An uncorrectable memory error.
    DoubleBitEcc,
    /// The device has fallen off the bus.
    Lost,
    /// The device can be used again.
    Recovered,
    /// The device's MIG instances have changed.
    Reconfigured,
}

impl Health {
    /// The kind as a metrics label, out of a fixed set.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Xid(_) => "xid",
            Self::DoubleBitEcc => "double_bit_ecc",
            Self::Lost => "lost",
            Self::Recovered => "recovered",
            Self::Reconfigured => "reconfigured",
        }
    }

    /// What the event leads to.
    #[must_use]
    pub fn action(self, ignored_xids: &[u64]) -> HealthAction {
        match self {
            Self::Xid(Some(number)) if ignored_xids.contains(&number) => HealthAction::Ignore,
            Self::Xid(Some(number)) => {
                HealthAction::TakeOut(format!("Xid {number}{}", meaning(number)))
            }
            Self::Xid(None) => HealthAction::TakeOut("an Xid error of unknown number".to_owned()),
            Self::DoubleBitEcc => {
                HealthAction::TakeOut("an error in its memory could not be corrected".to_owned())
            }
            Self::Lost => HealthAction::TakeOut("it has fallen off the bus".to_owned()),
            Self::Recovered => HealthAction::Restore,
            Self::Reconfigured => HealthAction::Rescan,
        }
    }
}

/// The consequence of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthAction {
    /// The device stays as it is.
    Ignore,
    /// The device goes out of service, for this reason.
    TakeOut(String),
    /// The device comes back into service.
    Restore,
    /// The machine's devices are scanned again.
    Rescan,
}

/// Describes the more frequent errors, for readers without NVIDIA's list.
const fn meaning(xid: u64) -> &'static str {
    match xid {
        48 => ", an uncorrectable error in its memory",
        62 | 64 | 74 | 110 | 119 | 120 => ", a fault of its hardware or firmware",
        63 => ", a page of its memory was retired",
        79 => ", it has fallen off the bus",
        92 => ", too many corrected errors in its memory",
        94 => ", a contained error in its memory",
        95 => ", an uncontained error in its memory",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::DevicesSettings;

    #[test]
    fn a_fault_of_the_program_leaves_the_device_in_service() {
        let ignored = DevicesSettings::default().ignored_xids;
        assert_eq!(Health::Xid(Some(31)).action(&ignored), HealthAction::Ignore);
        for (event, reason) in [
            (Health::Xid(Some(79)), "Xid 79, it has fallen off the bus"),
            (Health::Xid(Some(7)), "Xid 7"),
            (Health::Xid(None), "unknown number"),
            (Health::DoubleBitEcc, "could not be corrected"),
        ] {
            let HealthAction::TakeOut(said) = event.action(&ignored) else {
                panic!("{event:?} takes the device out of service");
            };
            assert!(said.contains(reason), "{said}");
        }
        assert_eq!(Health::Recovered.action(&ignored), HealthAction::Restore);
        assert!(matches!(
            Health::Xid(Some(31)).action(&[]),
            HealthAction::TakeOut(_)
        ));
    }
}
