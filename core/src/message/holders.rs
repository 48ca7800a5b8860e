//! Which clusters hold an app.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::ClusterId;

/// The clusters that hold an app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holders(Option<BTreeSet<ClusterId>>);

impl Holders {
    /// Every cluster, including future ones.
    pub const EVERYWHERE: Self = Self(None);

    /// Exactly these clusters.
    #[must_use]
    pub const fn only(clusters: BTreeSet<ClusterId>) -> Self {
        Self(Some(clusters))
    }

    /// Whether every cluster holds the app.
    #[must_use]
    pub const fn is_everywhere(&self) -> bool {
        self.0.is_none()
    }

    /// Whether `cluster` holds the app.
    #[must_use]
    pub fn has(&self, cluster: &ClusterId) -> bool {
        self.0
            .as_ref()
            .is_none_or(|clusters| clusters.contains(cluster))
    }

    /// The clusters; `None` if every cluster holds the app.
    #[must_use]
    pub const fn named(&self) -> Option<&BTreeSet<ClusterId>> {
        self.0.as_ref()
    }
}
