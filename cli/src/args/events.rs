//! Arguments of `fdn events`.

use clap::Args;
use fdn_core::AppName;
use fdn_core::account::TenantRef;
use fdn_core::event::EventKind;

use super::LogOutput;
use super::shared::ConnectArgs;

/// Arguments of `fdn events`.
#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Of this app only
    #[arg(long, value_name = "APP")]
    pub app: Option<AppName>,
    /// Of this kind only: app, ready, plan, policy, traffic, tenant, billing, node or other; may be given several times
    #[arg(long = "kind", value_name = "KIND")]
    pub kinds: Vec<EventKind>,
    /// Of this tenant only (its name or id)
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantRef>,
    /// Go on with what happens from now on
    #[arg(long, short)]
    pub follow: bool,
    /// Begin after the event of this number; without it, with the oldest that is kept, or with --follow, now
    #[arg(long, value_name = "ID")]
    pub after: Option<u64>,
    /// How to print the events
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: LogOutput,
    /// Which network.
    #[command(flatten)]
    pub connect: ConnectArgs,
}
