//! Which clusters hold an app.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::id::ClusterId;

/// Which clusters hold an app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Holders(Option<BTreeSet<ClusterId>>);

impl Holders {
    /// Every cluster, also those that come later.
    pub const EVERYWHERE: Self = Self(None);

    /// These and no others.
    #[must_use]
    pub const fn only(clusters: BTreeSet<ClusterId>) -> Self {
        Self(Some(clusters))
    }

    /// Whether every cluster holds it.
    #[must_use]
    pub const fn is_everywhere(&self) -> bool {
        self.0.is_none()
    }

    /// Whether `cluster` holds it.
    #[must_use]
    pub fn has(&self, cluster: &ClusterId) -> bool {
        self.0
            .as_ref()
            .is_none_or(|clusters| clusters.contains(cluster))
    }

    /// The clusters, if not every one.
    #[must_use]
    pub const fn named(&self) -> Option<&BTreeSet<ClusterId>> {
        self.0.as_ref()
    }
}
