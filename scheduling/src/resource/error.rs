//! Errors of resource quantities.

use fdn_core::{Coded, ErrorCode};

use super::unit::Units;

/// A quantity cannot be stored, taken or returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The fields of all devices need more bits than the word has, or there are no fields.
    #[error("{devices} devices of {bits} bits do not fit into a word of {word} bits")]
    Layout {
        /// The number of devices.
        devices: u32,
        /// The bits per device.
        bits: u32,
        /// The bits of the word.
        word: u32,
    },
    /// There are more quantities than devices.
    #[error("{given} quantities for {devices} devices")]
    Devices {
        /// The number of quantities.
        given: usize,
        /// The number of devices.
        devices: u32,
    },
    /// There is no device with this index.
    #[error("no device {device}, there are {devices}")]
    NoSuchDevice {
        /// The index, from 0.
        device: u32,
        /// The number of devices.
        devices: u32,
    },
    /// A quantity exceeds what its field can hold, or the device's capacity.
    #[error("device {device}: {quantity} is more than the {most} it can hold")]
    TooMuch {
        /// The device's index, from 0.
        device: u32,
        /// The quantity that would result.
        quantity: Units,
        /// The largest possible one.
        most: Units,
    },
    /// A device has less free than is requested.
    #[error("device {device}: wants {wanted}, {has} there")]
    TooLittle {
        /// The device's index, from 0.
        device: u32,
        /// The requested amount.
        wanted: Units,
        /// The free amount.
        has: Units,
    },
    /// A word has bits set outside its fields.
    #[error("the word has bits set above its last device")]
    Stray,
    /// A node has less of a class free than is requested, or would have more free than its capacity.
    #[error("class {class}: {quantity} where only {most} can be")]
    Class {
        /// The name of the class.
        class: &'static str,
        /// The amount to be taken or returned.
        quantity: u64,
        /// The largest possible amount.
        most: u64,
    },
    /// There is no node with this index.
    #[error("no node {node}, there are {nodes}")]
    NoSuchNode {
        /// The index.
        node: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// Too few devices have enough free.
    #[error("wants {wanted} devices with enough room, {fit} have it")]
    NoDevice {
        /// The requested number of devices.
        wanted: u32,
        /// The number of devices with enough free.
        fit: u32,
    },
    /// The instance already holds slices.
    #[error("the instance already holds slices of devices")]
    AlreadyBound,
    /// The instance holds no slices.
    #[error("the instance holds no slices of devices")]
    NotBound,
    /// The ledger's bound on bindings is reached.
    #[error("the ledger is full: {most} bindings")]
    Full {
        /// The bound.
        most: usize,
    },
}

impl Coded for ResourceError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Layout { .. } | Self::Devices { .. } => ErrorCode::ConfigInvalid,
            Self::NoSuchDevice { .. } | Self::NoSuchNode { .. } | Self::NotBound => {
                ErrorCode::NotFound
            }
            Self::AlreadyBound => ErrorCode::Conflict,
            Self::TooMuch { .. } | Self::TooLittle { .. } | Self::Class { .. } | Self::Stray => {
                ErrorCode::BadRequest
            }
            Self::NoDevice { .. } | Self::Full { .. } => ErrorCode::Overloaded,
        }
    }
}
