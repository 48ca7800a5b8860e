//! What can be wrong with quantities of resources.

use fdn_core::{Coded, ErrorCode};

use super::unit::Units;

/// Why a quantity cannot be kept, taken or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResourceError {
    /// The fields of all devices need more bits than the word has, or there is no field at all.
    #[error("{devices} devices of {bits} bits do not fit into a word of {word} bits")]
    Layout {
        /// How many devices.
        devices: u32,
        /// How many bits each.
        bits: u32,
        /// How many bits the word has.
        word: u32,
    },
    /// More quantities than devices.
    #[error("{given} quantities for {devices} devices")]
    Devices {
        /// How many quantities.
        given: usize,
        /// How many devices there are.
        devices: u32,
    },
    /// A device that is not there.
    #[error("no device {device}, there are {devices}")]
    NoSuchDevice {
        /// Its index, from 0.
        device: u32,
        /// How many there are.
        devices: u32,
    },
    /// A quantity that is larger than a field can hold, or than the device has.
    #[error("device {device}: {quantity} is more than the {most} it can hold")]
    TooMuch {
        /// The device's index, from 0.
        device: u32,
        /// What it would have to hold.
        quantity: Units,
        /// What it can.
        most: Units,
    },
    /// A device has less than is to be taken from it.
    #[error("device {device}: wants {wanted}, {has} there")]
    TooLittle {
        /// The device's index, from 0.
        device: u32,
        /// What is to be taken.
        wanted: Units,
        /// What is there.
        has: Units,
    },
    /// A word with bits outside its fields.
    #[error("the word has bits set above its last device")]
    Stray,
    /// A node has less than is to be taken from it, or would get back more than it has.
    #[error("class {class}: {quantity} where only {most} can be")]
    Class {
        /// The name of the class.
        class: &'static str,
        /// What is to be taken or given back.
        quantity: u64,
        /// What can be.
        most: u64,
    },
    /// A node that is not there.
    #[error("no node {node}, there are {nodes}")]
    NoSuchNode {
        /// Its index.
        node: usize,
        /// How many there are.
        nodes: usize,
    },
    /// Too few devices have enough free.
    #[error("wants {wanted} devices with enough room, {fit} have it")]
    NoDevice {
        /// How many are wanted.
        wanted: u32,
        /// How many fit.
        fit: u32,
    },
    /// The instance already holds slices.
    #[error("the instance already holds slices of devices")]
    AlreadyBound,
    /// The instance holds no slices.
    #[error("the instance holds no slices of devices")]
    NotBound,
    /// The ledger keeps no more bindings.
    #[error("the ledger is full: {most} bindings")]
    Full {
        /// How many it keeps.
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
