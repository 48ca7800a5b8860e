//! The machine words that quantities are packed into.

use std::fmt::Debug;
use std::ops::{BitAnd, BitOr, BitXor, Not, Shl, Shr};

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for u128 {}
}

/// A word that holds the quantities of all devices of a node: `u64` or `u128`.
pub trait Word:
    sealed::Sealed
    + Copy
    + Debug
    + Default
    + Eq
    + Send
    + Sync
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + BitXor<Output = Self>
    + Not<Output = Self>
    + Shl<u32, Output = Self>
    + Shr<u32, Output = Self>
    + 'static
{
    /// The number of bits.
    const BITS: u32;
    /// No bit set.
    const ZERO: Self;
    /// The lowest bit set.
    const ONE: Self;
    /// Every bit set.
    const MAX: Self;

    /// A small number as a word.
    fn from_u64(value: u64) -> Self;
    /// The word as a number.
    fn to_u128(self) -> u128;
    /// `self + other` of fields that are known not to overflow into each other.
    #[must_use]
    fn plus(self, other: Self) -> Self;
    /// `self - other` of fields that are known not to borrow from each other.
    #[must_use]
    fn minus(self, other: Self) -> Self;
    /// `self * factor` of fields that are known not to overflow into each other.
    #[must_use]
    fn times(self, factor: u64) -> Self;
    /// How many bits are set.
    fn count_ones(self) -> u32;
    /// How many bits below the lowest one that is set.
    fn trailing_zeros(self) -> u32;

    /// The lowest 64 bits.
    fn low_u64(self) -> u64 {
        self.to_u128() as u64
    }
}

macro_rules! word {
    ($type:ty) => {
        impl Word for $type {
            const BITS: u32 = <$type>::BITS;
            const ZERO: Self = 0;
            const ONE: Self = 1;
            const MAX: Self = <$type>::MAX;

            #[inline]
            fn from_u64(value: u64) -> Self {
                Self::from(value)
            }

            #[inline]
            fn to_u128(self) -> u128 {
                u128::from(self)
            }

            #[inline]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline]
            fn times(self, factor: u64) -> Self {
                self.wrapping_mul(Self::from(factor))
            }

            #[inline]
            fn count_ones(self) -> u32 {
                self.count_ones()
            }

            #[inline]
            fn trailing_zeros(self) -> u32 {
                self.trailing_zeros()
            }
        }
    };
}

word!(u64);
word!(u128);
