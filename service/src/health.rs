//! The readiness of a process, as named conditions that its components set.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;

/// The conditions of one process: it is ready when all of them hold.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<RwLock<BTreeMap<&'static str, Condition>>>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// Whether it holds.
    pub ok: bool,
    /// Why it does not hold, or its current state.
    pub detail: String,
}

impl Readiness {
    /// Readiness with each of `names` as a condition that does not hold yet.
    #[must_use]
    pub fn waiting_for(names: &[&'static str]) -> Self {
        let readiness = Self::default();
        for name in names {
            readiness.set(name, false, "starting");
        }
        readiness
    }

    /// Sets a condition.
    pub fn set(&self, name: &'static str, ok: bool, detail: impl Into<String>) {
        let condition = Condition {
            ok,
            detail: detail.into(),
        };
        self.conditions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, condition);
    }

    /// Whether every condition holds.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .all(|c| c.ok)
    }

    /// All conditions, by name.
    #[must_use]
    pub fn conditions(&self) -> BTreeMap<&'static str, Condition> {
        self.conditions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
