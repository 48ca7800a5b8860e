//! The profiles and forms that versions declare for their functions, for plans.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use fdn_core::form::FormManifest;
use fdn_core::manifest::{Manifest, RuntimeKind};
use fdn_core::workflow::{Stage, Workflow};
use fdn_core::{FunctionName, Resources, VersionNumber};
use fdn_scheduling::dag::Holding;
use fdn_scheduling::workflow::Profile;

use super::forms::{Variants, variants};
use crate::store::version::VersionRow;

/// By stage: the forms of functions that have several.
#[must_use]
pub fn variants_of(workflow: &Workflow, versions: &[VersionRow]) -> Variants {
    Versions::new(versions).variants(workflow)
}

/// The profile that a stage's manifest declares.
#[must_use]
pub fn expected(stage: &Stage, versions: &[VersionRow]) -> Profile {
    Versions::new(versions).expected(stage)
}

/// Versions, indexed by function and number.
pub(super) struct Versions<'a>(BTreeMap<(&'a FunctionName, VersionNumber), &'a VersionRow>);

impl<'a> Versions<'a> {
    pub(super) fn new(rows: &'a [VersionRow]) -> Self {
        Self(
            rows.iter()
                .map(|row| ((&row.function, row.number), row))
                .collect(),
        )
    }

    pub(super) fn expected(&self, stage: &Stage) -> Profile {
        self.0.get(&(&stage.function, stage.version)).map_or_else(
            || profile(&Manifest::default()),
            |version| version.profile(),
        )
    }

    /// By stage: the forms of functions that have several.
    pub(super) fn variants(&self, workflow: &Workflow) -> Variants {
        let known = workflow.stages().iter().filter_map(|stage| {
            let version = self.0.get(&(&stage.function, stage.version))?;
            let forms = version.forms.iter().map(|form| &form.manifest);
            let variants = variants(&version.manifest, forms);
            (!variants.is_empty()).then(|| (stage.name.clone(), variants))
        });
        known.collect()
    }
}

/// The profile that a manifest declares.
#[must_use]
pub fn profile(manifest: &Manifest) -> Profile {
    Profile {
        work: manifest.expected_millis(),
        demand: manifest.resources(),
        holding: match manifest.runtime {
            RuntimeKind::Wasm => Holding::Calls,
            RuntimeKind::Docker => {
                Holding::Instances(NonZeroU32::new(manifest.concurrency).unwrap_or(NonZeroU32::MIN))
            }
        },
        mean_ratio: 1.0,
    }
}

/// The profile over all forms of a function: the resources of an instance are the minimum over the forms, so that no cluster is
/// considered too small that could hold one of them.
#[must_use]
pub fn profile_of<'a>(
    manifest: &Manifest,
    others: impl IntoIterator<Item = &'a FormManifest>,
) -> Profile {
    let mut profile = profile(manifest);
    for form in others {
        let own = form.over(manifest).resources();
        let least = profile.demand;
        profile.demand = Resources {
            cpu_milli: least.cpu_milli.min(own.cpu_milli),
            memory_mib: least.memory_mib.min(own.memory_mib),
            gpu_memory_mib: least.gpu_memory_mib.min(own.gpu_memory_mib),
        };
    }
    profile
}

impl VersionRow {
    /// The profile that the version declares.
    #[must_use]
    pub fn profile(&self) -> Profile {
        profile_of(&self.manifest, self.forms.iter().map(|form| &form.manifest))
    }
}
