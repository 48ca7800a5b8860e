//! Fine-grained resources: which node, and which devices of it, take an instance.
//!
//! For most classes a node has one pool ([`Vector`]); of devices it has several, and an instance requests a slice of one or of `count` of
//! them ([`DeviceRequest`]). The quantities of all devices of a node are packed into one word ([`Layout`], [`Packed`]), which is queried
//! without unpacking ([`Threshold`], [`Matches`]). A [`Fleet`] holds all nodes; a [`Selector`] filters it, scores the rest ([`Score`])
//! and chooses devices ([`DeviceChoice`]). On the node itself a [`Ledger`] binds slices to instances and is authoritative.
//!
//! ```
//! use fdn_core::{MebiBytes, MilliCpu};
//! use fdn_scheduling::resource::{
//!     DeviceChoice, DeviceRequest, Fleet, GpuMilli, NodeSpec, Request, Score, Selector, Vector,
//! };
//!
//! # fn main() -> Result<(), fdn_scheduling::resource::ResourceError> {
//! // Two nodes with 8 devices each; a slice is a thousandth of a device.
//! let capacity = Vector::new(MilliCpu(64_000), MebiBytes(262_144));
//! let node = NodeSpec::new(capacity, 8, GpuMilli::WHOLE.units());
//! let mut fleet = Fleet::<u128>::new(&[node, node])?;
//!
//! // 470 thousandths of one device, packed.
//! let request = Request {
//!     classes: Vector::new(MilliCpu(4_000), MebiBytes(16_384)),
//!     devices: DeviceRequest::share(GpuMilli(470).units()),
//! };
//! let mut selector = Selector::new(Score::Packing, DeviceChoice::MostUsed, fleet.len());
//! for device in [0, 0, 1] {
//!     let choice = selector.choose(&fleet, &request).expect("there is room");
//!     assert_eq!((choice.node.get(), choice.devices.iter().next()), (0, Some(device)));
//!     fleet.take(choice.node, &request, choice.devices)?;
//! }
//! # Ok(())
//! # }
//! ```

mod error;
mod filter;
mod fleet;
mod fragment;
mod layout;
mod ledger;
mod query;
mod score;
mod select;
mod unit;
mod vector;
mod word;

pub use error::ResourceError;
pub use filter::NodeSet;
pub use fleet::{Fleet, NodeIndex, NodeSpec};
pub use fragment::{KINDS_MAX, Typical};
pub use layout::{Layout, Packed};
pub use ledger::{Binding, Ledger};
pub use query::{DeviceChoice, DeviceSet, Matches, Threshold};
pub use score::{Cost, Score, Usage};
pub use select::{Choice, Selector};
pub use unit::{GpuMilli, MegabitsPerSecond, MemoryUnit, Units, bits_for};
pub use vector::{Class, DeviceRequest, Request, Vector};
pub use word::Word;
