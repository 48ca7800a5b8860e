//! Packs the quantities of all devices of a node into one word.
//!
//! **Problem.** For each instance a scheduler examines the free slices of every device of thousands of nodes. One word per node instead
//! of a list per node turns that into a few operations on contiguous memory.
//!
//! **Source.** Patent CN111381957A, fine-grained scheduling of service instances for distributed platforms (formula 11):
//! `pack(N_1..N_n) = sum over i of N_i << ((i-1)*b)`, `get(K,i) = (K >> ((i-1)*b)) & (2^b - 1)`.
//!
//! **Readings.** Devices are counted from 0 here. The source does not say what happens when a quantity needs more than `b` bits; here
//! that is a typed error, and addition and subtraction are checked, so no device overflows into its neighbour.
//!
//! **Complexity.** All operations are O(1) in the number of devices except [`Layout::pack`] and [`Layout::unpack`], O(n), and
//! [`Layout::total`], O(log n).
//!
//! **Invariants.** `n*b` is at most the word's bits; every quantity is below `2^b` and below 2^64; bits above the last field are 0.

use super::error::ResourceError;
use super::unit::Units;
use super::word::Word;

/// The number of levels of pairwise sums for at most 128 fields.
const LEVELS: usize = 7;

/// The quantities of all devices of one node. The layout is kept separately, since many nodes share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct Packed<W>(pub(super) W);

impl<W: Word> Packed<W> {
    /// All quantities zero.
    pub const NOTHING: Self = Self(W::ZERO);

    /// The packed word.
    #[must_use]
    pub const fn word(self) -> W {
        self.0
    }
}

/// The number of devices per word and the bits of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout<W> {
    devices: u32,
    bits: u32,
    /// A field of ones, at device 0.
    field: W,
    /// The lowest bit of every field.
    pub(super) low: W,
    /// The highest bit of every field: the guard bits of comparisons.
    pub(super) high: W,
    /// By level of the sum: a mask of the left halves of its pairs.
    halves: [W; LEVELS],
}

impl<W: Word> Layout<W> {
    /// A layout for this many devices with this many bits each.
    ///
    /// # Errors
    /// [`ResourceError::Layout`] when there are no fields, or they do not fit into the word.
    pub fn new(devices: u32, bits: u32) -> Result<Self, ResourceError> {
        let fits = devices.checked_mul(bits).is_some_and(|all| all <= W::BITS);
        if !fits || devices == 0 || bits == 0 {
            return Err(ResourceError::Layout {
                devices,
                bits,
                word: W::BITS,
            });
        }
        let field = W::MAX >> (W::BITS - bits);
        let fill = |what: W, which: &dyn Fn(u32) -> bool| {
            (0..devices)
                .filter(|&device| which(device))
                .fold(W::ZERO, |word, device| word | (what << (device * bits)))
        };
        let low = fill(W::ONE, &|_| true);
        let mut halves = [W::ZERO; LEVELS];
        for (level, half) in (0..).zip(&mut halves) {
            *half = fill(field, &|device| (device >> level) & 1 == 0);
        }
        Ok(Self {
            devices,
            bits,
            field,
            low,
            high: low << (bits - 1),
            halves,
        })
    }

    /// The number of devices.
    #[must_use]
    pub const fn devices(&self) -> u32 {
        self.devices
    }

    /// The bits per device.
    #[must_use]
    pub const fn bits(&self) -> u32 {
        self.bits
    }

    /// The largest quantity of a device.
    #[must_use]
    pub fn most(&self) -> Units {
        Units(if self.bits >= u64::BITS {
            u64::MAX
        } else {
            self.field.low_u64()
        })
    }

    /// Packs the quantities of the first devices; the others get zero.
    ///
    /// # Errors
    /// [`ResourceError::Devices`] for more quantities than devices, [`ResourceError::TooMuch`] for one that its field cannot hold.
    pub fn pack(&self, quantities: &[Units]) -> Result<Packed<W>, ResourceError> {
        if quantities.len() > self.devices as usize {
            return Err(ResourceError::Devices {
                given: quantities.len(),
                devices: self.devices,
            });
        }
        let mut word = W::ZERO;
        for (device, &quantity) in (0..).zip(quantities) {
            self.hold(device, quantity)?;
            word = word | self.shifted(device, quantity);
        }
        Ok(Packed(word))
    }

    /// Accepts a word that was packed elsewhere.
    ///
    /// # Errors
    /// [`ResourceError::Stray`] when bits are set above the last field, or a field exceeds the range of [`Units`].
    pub fn adopt(&self, word: W) -> Result<Packed<W>, ResourceError> {
        let packed = Packed(word);
        let whole = self.low.to_u128().wrapping_mul(self.field.to_u128());
        let countable = self.bits <= u64::BITS || word.to_u128() <= u128::from(u64::MAX);
        if word.to_u128() & !whole != 0 || !countable {
            return Err(ResourceError::Stray);
        }
        Ok(packed)
    }

    /// The same quantity on the first `devices` devices.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub fn fill(&self, devices: u32, quantity: Units) -> Result<Packed<W>, ResourceError> {
        if devices > self.devices {
            return Err(ResourceError::Devices {
                given: devices as usize,
                devices: self.devices,
            });
        }
        self.hold(0, quantity)?;
        Ok((0..devices).fold(Packed::NOTHING, |packed, device| {
            Packed(packed.0 | self.shifted(device, quantity))
        }))
    }

    /// The quantity of a device.
    ///
    /// # Errors
    /// [`ResourceError::NoSuchDevice`].
    pub fn get(&self, packed: Packed<W>, device: u32) -> Result<Units, ResourceError> {
        self.known(device)?;
        Ok(self.field_of(packed, device))
    }

    /// The quantities of all devices, in order; for display and tests, since decisions use the packed word.
    pub fn unpack(&self, packed: Packed<W>) -> impl Iterator<Item = Units> + use<'_, W> {
        (0..self.devices).map(move |device| self.field_of(packed, device))
    }

    /// Adds to the quantity of a device.
    ///
    /// # Errors
    /// [`ResourceError::NoSuchDevice`], or [`ResourceError::TooMuch`] when the field cannot hold the sum; nothing is changed then.
    pub fn add(
        &self,
        packed: Packed<W>,
        device: u32,
        quantity: Units,
    ) -> Result<Packed<W>, ResourceError> {
        let has = self.get(packed, device)?;
        let sum = has.get().checked_add(quantity.get()).map(Units);
        if sum.is_none_or(|sum| sum > self.most()) {
            let sum = Units(has.get().saturating_add(quantity.get()));
            return Err(self.too_much(device, sum));
        }
        Ok(Packed(packed.0.plus(self.shifted(device, quantity))))
    }

    /// Subtracts from the quantity of a device.
    ///
    /// # Errors
    /// [`ResourceError::NoSuchDevice`], or [`ResourceError::TooLittle`] when the device has less; nothing is changed then.
    pub fn sub(
        &self,
        packed: Packed<W>,
        device: u32,
        quantity: Units,
    ) -> Result<Packed<W>, ResourceError> {
        let has = self.get(packed, device)?;
        if has < quantity {
            return Err(ResourceError::TooLittle {
                device,
                wanted: quantity,
                has,
            });
        }
        Ok(Packed(packed.0.minus(self.shifted(device, quantity))))
    }

    /// The sum over all devices without unpacking: pairs, pairs of pairs and so on are added in parallel.
    #[must_use]
    pub fn total(&self, packed: Packed<W>) -> u128 {
        let mut sum = packed.0;
        let mut width = self.bits;
        let mut fields = self.devices;
        for half in self.halves {
            if fields == 1 {
                break;
            }
            // The sum of a pair has one bit more than its parts and room for twice as many.
            sum = (sum & half).plus((sum >> width) & half);
            width *= 2;
            fields = fields.div_ceil(2);
        }
        sum.to_u128()
    }

    pub(super) fn known(&self, device: u32) -> Result<(), ResourceError> {
        if device < self.devices {
            return Ok(());
        }
        Err(ResourceError::NoSuchDevice {
            device,
            devices: self.devices,
        })
    }

    fn hold(&self, device: u32, quantity: Units) -> Result<(), ResourceError> {
        if quantity <= self.most() {
            return Ok(());
        }
        Err(self.too_much(device, quantity))
    }

    fn too_much(&self, device: u32, quantity: Units) -> ResourceError {
        ResourceError::TooMuch {
            device,
            quantity,
            most: self.most(),
        }
    }

    fn field_of(&self, packed: Packed<W>, device: u32) -> Units {
        Units(((packed.0 >> (device * self.bits)) & self.field).low_u64())
    }

    pub(super) fn shifted(&self, device: u32, quantity: Units) -> W {
        W::from_u64(quantity.get()) << (device * self.bits)
    }
}
