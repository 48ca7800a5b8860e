//! The meters, and the integer units in which they count.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::BillingError;
use crate::error::ParseError;
use crate::usage::{UsageRecord, UsageSum};

/// The most that one record may claim of a meter, in smallest units: 64 GiB for two weeks. A larger value can only come from a broken clock
/// or counter.
const RECORD_MAX: u64 = 1 << 56;

/// A metered quantity. Its name contains the unit that prices refer to.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Meter {
    /// The number of calls.
    Invocations,
    /// Memory held by calls, integrated over time, in GiB-seconds.
    GibSeconds,
    /// CPU time, in seconds of one core.
    VcpuSeconds,
    /// GPU memory held by calls, integrated over time, in GiB-seconds.
    GpuGibSeconds,
    /// Sent response bodies, in GiB.
    EgressGib,
    /// Stored artifacts, integrated over time, in GiB-hours.
    StorageGibHours,
}

impl Meter {
    /// All meters.
    pub const ALL: [Self; 6] = [
        Self::Invocations,
        Self::GibSeconds,
        Self::VcpuSeconds,
        Self::GpuGibSeconds,
        Self::EgressGib,
        Self::StorageGibHours,
    ];

    /// The name used in JSON and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invocations => "invocations",
            Self::GibSeconds => "gib_seconds",
            Self::VcpuSeconds => "vcpu_seconds",
            Self::GpuGibSeconds => "gpu_gib_seconds",
            Self::EgressGib => "egress_gib",
            Self::StorageGibHours => "storage_gib_hours",
        }
    }

    /// The smallest unit, in which quantities are integers: the units in which records and artifacts are measured, multiplied, never divided.
    #[must_use]
    pub const fn smallest(self) -> &'static str {
        match self {
            Self::Invocations => "call",
            Self::GibSeconds | Self::GpuGibSeconds => "MiB*us",
            Self::VcpuSeconds => "us",
            Self::EgressGib => "byte",
            Self::StorageGibHours => "byte*ms",
        }
    }

    /// How many smallest units make up the unit that prices are for.
    #[must_use]
    pub const fn scale(self) -> i128 {
        match self {
            Self::Invocations => 1,
            Self::GibSeconds | Self::GpuGibSeconds => 1024 * 1_000_000,
            Self::VcpuSeconds => 1_000_000,
            Self::EgressGib => 1 << 30,
            Self::StorageGibHours => (1 << 30) * 3_600_000,
        }
    }

    /// A quantity in the unit that prices are for, for display: six decimals, truncated.
    #[must_use]
    pub fn in_units(self, quantity: Quantity) -> String {
        let (whole, rest) = (quantity.0 / self.scale(), quantity.0 % self.scale());
        let sign = if quantity.0 < 0 { "-" } else { "" };
        let whole = whole.unsigned_abs();
        if self == Self::Invocations {
            return format!("{sign}{whole}");
        }
        let millionths = rest.unsigned_abs() * 1_000_000 / self.scale().unsigned_abs();
        format!("{sign}{whole}.{millionths:06}")
    }
}

impl fmt::Display for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Meter {
    type Err = ParseError;

    fn from_str(s: &str) -> Result<Self, ParseError> {
        let found = Self::ALL.into_iter().find(|meter| meter.as_str() == s);
        found.ok_or_else(|| {
            ParseError::new(
                "meter",
                s,
                "invocations, gib_seconds, vcpu_seconds, gpu_gib_seconds, egress_gib or storage_gib_hours",
            )
        })
    }
}

/// A quantity in a meter's smallest unit; negative for corrections. It is a decimal integer as text, because a month of storage exceeds
/// what JSON numbers can hold.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String)]
pub struct Quantity(pub i128);

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<String> for Quantity {
    type Error = ParseError;

    fn try_from(s: String) -> Result<Self, ParseError> {
        s.parse()
            .map(Self)
            .map_err(|_| ParseError::new("quantity", s, "a whole number"))
    }
}

impl From<Quantity> for String {
    fn from(value: Quantity) -> Self {
        value.0.to_string()
    }
}

/// One quantity per meter, in smallest units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantities([i128; Meter::ALL.len()]);

impl Quantities {
    /// The quantities of a record.
    ///
    /// # Errors
    /// When it claims more than a single call can use.
    pub fn of(record: &UsageRecord) -> Result<Self, BillingError> {
        let bounded = |meter: Meter, value: Option<u64>| {
            value
                .filter(|value| *value <= RECORD_MAX)
                .map(i128::from)
                .ok_or(BillingError::OutOfRange(meter.as_str()))
        };
        let held = |mib: u64| mib.checked_mul(record.duration_us);
        let mut all = Self::default();
        for (meter, value) in [
            (Meter::Invocations, Some(1)),
            (Meter::GibSeconds, held(record.memory_mib.get())),
            (Meter::VcpuSeconds, Some(record.cpu_us)),
            (Meter::GpuGibSeconds, held(record.gpu_memory_mib.get())),
            (Meter::EgressGib, Some(record.egress_bytes)),
        ] {
            all.0[meter as usize] = bounded(meter, value)?;
        }
        Ok(all)
    }

    /// The quantities of a node's usage sum.
    ///
    /// # Errors
    /// When it claims more than that number of records can.
    pub fn of_sum(sum: &UsageSum) -> Result<Self, BillingError> {
        let terms = i128::from(sum.records);
        let mut all = Self::default();
        for (meter, value, most) in [
            (Meter::Invocations, sum.calls, 1),
            (Meter::GibSeconds, sum.memory, RECORD_MAX),
            (Meter::VcpuSeconds, sum.cpu, RECORD_MAX),
            (Meter::GpuGibSeconds, sum.gpu, RECORD_MAX),
            (Meter::EgressGib, sum.egress, RECORD_MAX),
        ] {
            let value = i128::from(value);
            if value.abs() > terms * i128::from(most) {
                return Err(BillingError::OutOfRange(meter.as_str()));
            }
            all.0[meter as usize] = value;
        }
        Ok(all)
    }

    /// A quantity of one meter, and zero of the others.
    #[must_use]
    pub fn one(meter: Meter, quantity: i128) -> Self {
        let mut all = Self::default();
        all.0[meter as usize] = quantity;
        all
    }

    /// The quantity of a meter, in smallest units.
    #[must_use]
    pub const fn get(&self, meter: Meter) -> i128 {
        self.0[meter as usize]
    }

    /// Whether all quantities are zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|quantity| *quantity == 0)
    }

    /// Adds, meter by meter.
    ///
    /// # Errors
    /// When a sum overflows.
    pub fn add(&mut self, other: &Self) -> Result<(), BillingError> {
        self.join(other, i128::checked_add)
    }

    /// Subtracts, meter by meter.
    ///
    /// # Errors
    /// When a difference overflows.
    pub fn sub(&mut self, other: &Self) -> Result<(), BillingError> {
        self.join(other, i128::checked_sub)
    }

    fn join(
        &mut self,
        other: &Self,
        op: impl Fn(i128, i128) -> Option<i128>,
    ) -> Result<(), BillingError> {
        let mut sums = *self;
        for meter in Meter::ALL {
            let sum = op(self.get(meter), other.get(meter));
            sums.0[meter as usize] = sum.ok_or(BillingError::Overflow("a sum of usage"))?;
        }
        *self = sums;
        Ok(())
    }

    /// The quantities that are not zero, by meter.
    #[must_use]
    pub fn to_map(&self) -> BTreeMap<Meter, Quantity> {
        let all = Meter::ALL
            .into_iter()
            .map(|meter| (meter, Quantity(self.get(meter))));
        all.filter(|(_, quantity)| quantity.0 != 0).collect()
    }
}
