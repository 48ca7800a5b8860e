//! What single machines see of the state, and how changes are applied to it. No I/O.

use std::collections::BTreeMap;

use fdn_core::enrol::{Machine, Role};
use fdn_core::feed::{AppFrame, FeedError, Frame, Plain};
use fdn_core::fleet::FleetDesired;
use fdn_core::message::{AppDesired, BindingsChanged, Holders};
use fdn_core::{AppName, Revision, SecretName};

use super::change::{AppEntry, BindingsEntry};

/// The part of the fleet that a machine must know: trusted and revoked certificates; for nodes, also cordoned nodes, stage-call addresses, and
/// requests to restore its devices.
#[must_use]
pub(super) fn fleet_for(machine: &Machine, fleet: &FleetDesired) -> FleetDesired {
    let shared = FleetDesired {
        revision: fleet.revision,
        revoked: fleet.revoked.clone(),
        authorities: fleet.authorities.clone(),
        ..FleetDesired::default()
    };
    let name = &machine.name;
    match machine.role {
        Role::Dns => shared,
        Role::Node => FleetDesired {
            // Nodes of a cluster do not send calls to cordoned ones.
            cordoned: fleet.cordoned.clone(),
            stage_calls: fleet.stage_calls.clone(),
            restored: fleet
                .restored
                .get_key_value(name)
                .map(|(name, devices)| (name.clone(), devices.clone()))
                .into_iter()
                .collect(),
            ..shared
        },
    }
}

/// Whether two fleets are the same, apart from the revision.
#[must_use]
pub(super) fn is_same_fleet(a: &FleetDesired, b: &FleetDesired) -> bool {
    a.cordoned == b.cordoned
        && a.revoked == b.revoked
        && a.authorities == b.authorities
        && a.stage_calls == b.stage_calls
        && a.restored == b.restored
}

/// Applies a change to the bindings that are at its base revision.
pub(super) fn apply(held: &mut BindingsEntry, change: &BindingsChanged) {
    held.revision = change.revision;
    let Some(state) = &mut held.state else {
        return;
    };
    for (prefix, cluster) in &change.changes {
        match cluster {
            Some(cluster) => state.bindings.insert(*prefix, cluster.clone()),
            None => state.bindings.remove(prefix),
        };
    }
    if let Some(holders) = &change.holders {
        state.holders.clone_from(holders);
    }
}

/// An app as nodes are told it, with the values of its functions' secrets.
///
/// # Errors
/// When a frame cannot be serialized, which would be a bug.
pub(super) fn app(
    desired: AppDesired,
    secrets: Vec<BTreeMap<SecretName, Plain>>,
) -> Result<AppEntry, FeedError> {
    let Some(spec) = &desired.spec else {
        return app_gone(&desired.app, desired.revision);
    };
    let gone = app_gone(&desired.app, desired.revision)?.frame;
    let holders = spec.holders.clone();
    let digests = spec
        .functions
        .iter()
        .flat_map(|function| function.digests())
        .collect();
    let (app, revision) = (desired.app.clone(), desired.revision);
    let frame = Frame::App(Box::new(AppFrame { desired, secrets })).encode()?;
    Ok(AppEntry {
        app,
        revision,
        holders,
        digests,
        frame: frame.into(),
        gone,
        exists: true,
    })
}

/// The entry of a deleted app.
///
/// # Errors
/// As [`app`].
pub(super) fn app_gone(app: &AppName, revision: Revision) -> Result<AppEntry, FeedError> {
    let frame = Frame::App(Box::new(AppFrame {
        desired: AppDesired {
            app: app.clone(),
            revision,
            spec: None,
        },
        secrets: Vec::new(),
    }));
    let frame: bytes::Bytes = frame.encode()?.into();
    Ok(AppEntry {
        app: app.clone(),
        revision,
        holders: Holders::EVERYWHERE,
        digests: Vec::new(),
        gone: frame.clone(),
        frame,
        exists: false,
    })
}
