//! Events and actions of the state machine, and the form of the state on disk.

use std::collections::BTreeMap;

use fdn_core::api::AppsSnapshot;
use fdn_core::message::{AppDesired, AppPhase, AppSpec};
use fdn_core::{AppName, HostName, Revision, Timestamp};
use serde::{Deserialize, Serialize};

/// One version of an app's desired state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// The revision.
    pub revision: Revision,
    /// What to run.
    pub spec: AppSpec,
}

/// The state kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The revision of the last snapshot.
    pub floor: Revision,
    /// The apps.
    pub apps: BTreeMap<AppName, SavedApp>,
    /// Deleted apps with the revision of the deletion, where that is newer than the last snapshot.
    pub gone: BTreeMap<AppName, Revision>,
}

/// One app on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedApp {
    /// The desired version.
    pub wanted: Version,
    /// The version served last, if it was another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Version>,
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message about one app.
    Desired(AppDesired),
    /// A snapshot of all apps.
    Snapshot(AppsSnapshot),
    /// The node was removed from the network: it must keep nothing.
    Removed,
    /// A preparation has fetched its artifact and now compiles.
    Begun(AppName, Revision),
    /// A preparation has succeeded.
    Prepared(AppName, Revision),
    /// A preparation has failed.
    Failed {
        /// The app.
        app: AppName,
        /// The revision that was prepared.
        revision: Revision,
        /// Why it failed.
        reason: String,
        /// When to try again; decided by the shell, which has the clock and the randomness, from the number of failures.
        retry_at: Timestamp,
    },
    /// The revision is ready, but not in the chosen form, which nothing runs now; it is prepared again at this time.
    StandsIn(AppName, Revision, Timestamp),
    /// The served revision is broken and must be prepared again.
    Broken(AppName, Revision),
    /// The time is now this.
    Due(Timestamp),
}

/// An action for the shell.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Fetch, compile and load this version.
    Prepare(AppName, Box<Version>),
    /// Route calls to this version from now on.
    Serve(AppName, Revision),
    /// Route no calls to the app; hold them, because it is being prepared again.
    Withdraw(AppName),
    /// The app is gone: drop everything of it.
    Forget(AppName),
    /// Write the state to disk.
    Save,
}

/// The state of an app, for status reports and routes.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The app.
    pub app: AppName,
    /// The desired revision.
    pub revision: Revision,
    /// The host name: of the version that is served, or else of the desired one.
    pub host: HostName,
    /// The app's phase.
    pub phase: AppPhase,
}
