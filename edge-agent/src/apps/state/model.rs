//! What goes in and out of the state machine, and what is kept on disk.

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
    /// What is to be run.
    pub spec: AppSpec,
}

/// What is kept on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The revision of the last snapshot.
    pub floor: Revision,
    /// The apps.
    pub apps: BTreeMap<AppName, SavedApp>,
    /// Apps that are gone, with the revision that said so, where that is newer than the last snapshot.
    pub gone: BTreeMap<AppName, Revision>,
}

/// One app on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedApp {
    /// What it should be.
    pub wanted: Version,
    /// What was served last, if that was something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Version>,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message about one app.
    Desired(AppDesired),
    /// The state of all apps.
    Snapshot(AppsSnapshot),
    /// The node was removed from the network: nothing of it is this node's any more.
    Removed,
    /// A preparation has its artifacts and compiles now.
    Begun(AppName, Revision),
    /// A preparation has succeeded.
    Prepared(AppName, Revision),
    /// A preparation has failed.
    Failed {
        /// The app.
        app: AppName,
        /// What was prepared.
        revision: Revision,
        /// Why.
        reason: String,
        /// When it is tried again, given how often it failed before: decided by the shell, which has clock and randomness.
        retry_at: Timestamp,
    },
    /// What was just prepared is ready in another form than was chosen, because nothing runs that one now; it is prepared once more then.
    StandsIn(AppName, Revision, Timestamp),
    /// What is served turned out to be broken and has to be made anew.
    Broken(AppName, Revision),
    /// Time has passed.
    Due(Timestamp),
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Fetch, compile and load this version.
    Prepare(AppName, Box<Version>),
    /// Send calls to this version from now on.
    Serve(AppName, Revision),
    /// Send no calls to the app any more, but hold them: it is being made anew.
    Withdraw(AppName),
    /// The app is gone.
    Forget(AppName),
    /// Write the state to disk.
    Save,
}

/// How an app is, for status and routes.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// The app.
    pub app: AppName,
    /// What is wanted.
    pub revision: Revision,
    /// The host name it is called under: of what is served, else of what is wanted.
    pub host: HostName,
    /// How far it is.
    pub phase: AppPhase,
}
