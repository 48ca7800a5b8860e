//! Orders and keep-alive policies by the names that commands and reports give them.

use clap::ValueEnum;
use fdn_core::Millis;
use fdn_scheduling::invocation::{
    Fixed, Gdsf, Guard, Histogram, HistogramSettings, KeepAlive, Lru, Order, QUANTUM, Settings,
};

use crate::Error;

/// In which order invocations start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum PolicyName {
    /// Smallest expected memory-time first, cold start included
    Funcsched,
    /// As funcsched, but an invocation waits for a busy container of its function where that is free sooner than a new one
    /// is loaded
    QueueOrCold,
    /// As queue-or-cold, and an idle container for whose function invocations wait serves them before it is evicted
    UseOrEvict,
    /// First come, first served
    Fcfs,
    /// Shortest execution first
    Sjf,
    /// Smallest memory first
    Srf,
    /// Round robin with a quantum of 100 ms
    Rr,
    /// Shortest remaining time first, with a quantum of 100 ms
    Srtf,
}

impl PolicyName {
    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Funcsched => "funcsched",
            Self::QueueOrCold => "queue-or-cold",
            Self::UseOrEvict => "use-or-evict",
            Self::Fcfs => "fcfs",
            Self::Sjf => "sjf",
            Self::Srf => "srf",
            Self::Rr => "rr",
            Self::Srtf => "srtf",
        }
    }

    const fn order(self) -> Order {
        match self {
            Self::Funcsched | Self::QueueOrCold | Self::UseOrEvict => Order::FuncSched,
            Self::Fcfs => Order::Fcfs,
            Self::Sjf => Order::Sjf,
            Self::Srf => Order::Srf,
            Self::Rr => Order::RoundRobin { quantum: QUANTUM },
            Self::Srtf => Order::Srtf { quantum: QUANTUM },
        }
    }
}

/// How idle containers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum KeepAliveName {
    /// For a fixed time; the least recently used goes first where room is needed
    Fixed,
    /// While there is room; the least recently used goes first
    Lru,
    /// While there is room; what is cheap to load again for its memory goes first
    Gdsf,
    /// By a histogram of the function's idle times
    Hist,
}

impl KeepAliveName {
    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Lru => "lru",
            Self::Gdsf => "gdsf",
            Self::Hist => "hist",
        }
    }
}

/// Everything that decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The order.
    pub name: PolicyName,
    /// How idle containers are kept.
    pub keep_alive: KeepAliveName,
    /// For how long by the fixed policy.
    pub keep: Millis,
    /// The settings of the histogram.
    pub histogram: HistogramSettings,
    /// What is done for those that wait too long.
    pub starvation: Option<Guard>,
}

impl Policy {
    /// An order and a keep-alive policy, set for traces in which a minute passes in 625 ms.
    #[must_use]
    pub fn new(name: PolicyName, keep_alive: KeepAliveName) -> Self {
        let histogram = HistogramSettings::compressed();
        Self {
            name,
            keep_alive,
            keep: histogram.default,
            histogram,
            starvation: None,
        }
    }

    pub(super) fn settings(&self) -> Settings {
        let mut settings = Settings {
            order: self.name.order(),
            queue_or_cold: matches!(self.name, PolicyName::QueueOrCold | PolicyName::UseOrEvict),
            use_before_evicting: self.name == PolicyName::UseOrEvict,
            starvation: self.starvation,
            ..Settings::default()
        };
        // What the trace says all waits; what a refusal would do is not what is compared.
        settings.queue.total = 1 << 30;
        settings.queue.per_function = 1 << 30;
        settings
    }

    pub(super) fn keep_alive(&self) -> Result<Box<dyn KeepAlive>, Error> {
        Ok(match self.keep_alive {
            KeepAliveName::Fixed => Box::new(Fixed::new(self.keep)),
            KeepAliveName::Lru => Box::new(Lru),
            KeepAliveName::Gdsf => Box::new(Gdsf::default()),
            KeepAliveName::Hist => {
                let histogram = Histogram::new(self.histogram);
                Box::new(histogram.map_err(|error| Error::Usage(error.to_string()))?)
            }
        })
    }
}
