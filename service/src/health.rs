//! The readiness of a process, as named conditions that its components set.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;

/// The conditions of one process: it is ready when all that it needs hold.
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
    /// Whether the process is not ready without it; otherwise it is told and no more.
    #[serde(skip_serializing_if = "is_needed")]
    pub needed: bool,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes what it asks about by reference"
)]
const fn is_needed(needed: &bool) -> bool {
    *needed
}

impl Condition {
    /// A condition without which the process is not ready.
    #[must_use]
    pub fn needed(ok: bool, detail: impl Into<String>) -> Self {
        Self {
            ok,
            detail: detail.into(),
            needed: true,
        }
    }

    /// Whether the process can be ready as far as this is concerned.
    #[must_use]
    pub const fn permits(&self) -> bool {
        self.ok || !self.needed
    }
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
        let condition = Condition::needed(ok, detail);
        self.conditions
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, condition);
    }

    /// Sets a condition that the process needs to start with and can do without later: once it has held, it is told and no more.
    pub fn set_initial(&self, name: &'static str, ok: bool, detail: impl Into<String>) {
        let mut condition = Condition::needed(ok, detail);
        let mut conditions = self
            .conditions
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let has_held = conditions.get(name).is_some_and(Condition::permits);
        condition.needed = !has_held && !ok;
        conditions.insert(name, condition);
    }

    /// Whether every condition holds that the process needs.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.conditions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .values()
            .all(Condition::permits)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_needed_only_to_start_is_told_later() {
        let readiness = Readiness::waiting_for(&["broker", "store"]);
        readiness.set("store", true, "");
        readiness.set_initial("broker", false, "refused");
        assert!(!readiness.is_ready(), "it has never held");
        readiness.set_initial("broker", true, "");
        assert!(readiness.is_ready());
        for _ in 0..2 {
            readiness.set_initial("broker", false, "gone");
            assert!(readiness.is_ready());
            let told = serde_json::to_value(readiness.conditions()).expect("JSON");
            let expected = serde_json::json!({
                "broker": { "ok": false, "detail": "gone", "needed": false },
                "store": { "ok": true, "detail": "" },
            });
            assert_eq!(told, expected);
        }
        readiness.set("store", false, "gone");
        assert!(!readiness.is_ready());
    }
}
