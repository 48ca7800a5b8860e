//! Settings of a controller: defaults, then the TOML file, then the environment, then flags (see `fdn_service::config`).
//!
//! Every queue, cache, body and retry of the controller has its limit here. Secrets are given as the names of files that contain them.

mod api;
mod apps;
mod console;
mod edge;
mod events;
mod jobs;
mod oidc;
mod planner;
mod repository;
mod sections;

use std::net::SocketAddr;

use fdn_core::HostName;
use fdn_core::manifest::ManifestBounds;
use fdn_service::logs::LogSettings;
use serde::{Deserialize, Serialize};

use crate::Error;
pub use api::{ApiSettings, ApiTlsSettings};
pub use apps::{DomainSettings, RecordSettings, RolloutSettings, SecretSettings};
pub use console::ConsoleSettings;
pub use edge::EdgeSettings;
pub use events::EventSettings;
pub use jobs::{JobSettings, WebhookSettings};
pub use oidc::{GroupRole, OidcSettings};
pub use planner::PlannerSettings;
pub use repository::RepositorySettings;
pub use sections::{
    AccountSettings, ArtifactSettings, BillingSettings, BrokerSettings, ClientLocation,
    DatabaseSettings, DispatchSettings, EnrolmentSettings, FunctionLogSettings, GeoSettings,
    NetworkSettings, S3Settings, SingletonSettings, UploadSettings, UsageSettings,
};

/// All settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The address on which API, console, health and metrics are served.
    pub listen: SocketAddr,
    /// The zone under which apps get their host names.
    pub zone: HostName,
    /// The address at which Smart DNS can be queried directly; told to the command line.
    pub dns: Option<SocketAddr>,
    /// The port of the gateways; told to the command line.
    pub gateway_port: u16,
    /// The number of threads that serve HTTP.
    pub workers: usize,
    /// Files shared by the processes of the network.
    pub network: NetworkSettings,
    /// Enrolment of machines.
    pub enrolment: EnrolmentSettings,
    /// The listener for enrolled machines.
    pub edge: EdgeSettings,
    /// Coordination of several controllers on one database.
    pub singletons: SingletonSettings,
    /// The metadata store.
    pub database: DatabaseSettings,
    /// The artifact store.
    pub artifacts: ArtifactSettings,
    /// The message broker.
    pub broker: BrokerSettings,
    /// Users and tokens.
    pub accounts: AccountSettings,
    /// Logins with an identity provider; `None` without one.
    pub oidc: Option<OidcSettings>,
    /// The API.
    pub api: ApiSettings,
    /// Uploads.
    pub uploads: UploadSettings,
    /// The code repository.
    pub repository: RepositorySettings,
    /// The most that a manifest may ask for.
    pub bounds: ManifestBounds,
    /// Placement.
    pub planner: PlannerSettings,
    /// Locations of clients.
    pub geo: GeoSettings,
    /// Messages between controllers through the broker.
    pub dispatch: DispatchSettings,
    /// Secrets of functions.
    pub secrets: SecretSettings,
    /// Watching new versions against objectives.
    pub rollouts: RolloutSettings,
    /// Custom domains of apps.
    pub domains: DomainSettings,
    /// TXT records that are set through the API.
    pub records: RecordSettings,
    /// Usage reports of nodes.
    pub usage: UsageSettings,
    /// Bills.
    pub billing: BillingSettings,
    /// Jobs.
    pub jobs: JobSettings,
    /// Events, streamed to readers.
    pub events: EventSettings,
    /// The console beyond the network's state.
    pub console: ConsoleSettings,
    /// Logs of functions.
    pub function_logs: FunctionLogSettings,
    /// The controller's own log.
    pub log: LogSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8600)),
            zone: "fn.test".parse().expect("a host name"),
            dns: None,
            gateway_port: 8080,
            workers: 2,
            network: NetworkSettings::default(),
            enrolment: EnrolmentSettings::default(),
            edge: EdgeSettings::default(),
            singletons: SingletonSettings::default(),
            database: DatabaseSettings::default(),
            artifacts: ArtifactSettings::default(),
            broker: BrokerSettings::default(),
            accounts: AccountSettings::default(),
            oidc: None,
            api: ApiSettings::default(),
            uploads: UploadSettings::default(),
            repository: RepositorySettings::default(),
            bounds: ManifestBounds::default(),
            planner: PlannerSettings::default(),
            geo: GeoSettings::default(),
            dispatch: DispatchSettings::default(),
            secrets: SecretSettings::default(),
            rollouts: RolloutSettings::default(),
            domains: DomainSettings::default(),
            records: RecordSettings::default(),
            usage: UsageSettings::default(),
            billing: BillingSettings::default(),
            jobs: JobSettings::default(),
            events: EventSettings::default(),
            console: ConsoleSettings::default(),
            function_logs: FunctionLogSettings::default(),
            log: LogSettings::default(),
        }
    }
}

impl Settings {
    /// Checks what the types alone cannot ensure.
    ///
    /// # Errors
    /// When a setting is not valid: the first one, named by its key.
    pub fn check(&self) -> Result<(), Error> {
        rule(self.workers > 0, "workers must be at least 1")?;
        rule(
            self.database.max_connections > 1,
            "database.max_connections must be at least 2",
        )?;
        self.planner.terms()?;
        rule(
            self.singletons.lease.as_millis() >= 1000,
            "singletons.lease must be at least 1s",
        )?;
        rule(
            self.planner.move_share > 0.0 && self.planner.move_share <= 1.0,
            "planner.move_share must be above 0 and at most 1",
        )?;
        rule(
            self.planner.move_interval.as_millis() > 0
                && self.planner.demand_memory.as_millis() > 0,
            "planner.move_interval and planner.demand_memory must be positive",
        )?;
        rule(
            self.planner.drain_after > self.planner.ttl,
            "planner.drain_after must be longer than planner.ttl: so long old answers live",
        )?;
        rule(
            self.planner.ttl.as_millis() >= 1000,
            "planner.ttl must be at least 1s",
        )?;
        rule(
            (0.0..=1.0).contains(&self.geo.rtt_weight),
            "geo.rtt_weight must be from 0 to 1",
        )?;
        rule(self.geo.rtt_change > 0.0, "geo.rtt_change must be positive")?;
        rule(
            self.geo.rtt_keep.as_millis() >= self.geo.rtt_interval.as_millis().saturating_mul(10),
            "geo.rtt_keep must be at least ten times geo.rtt_interval",
        )?;
        rule(
            self.uploads.parallel > 0,
            "uploads.parallel must be at least 1",
        )?;
        rule(
            self.uploads.limit.as_bytes() > 0 && self.uploads.image_limit.as_bytes() > 0,
            "uploads.limit and uploads.image_limit must be positive",
        )?;
        self.check_accounts()?;
        self.api.check()?;
        self.repository.check()?;
        self.oidc.iter().try_for_each(OidcSettings::check)?;
        self.artifacts.check()?;
        rule(
            self.dispatch.batch > 0 && self.dispatch.prefetch > 0,
            "dispatch.batch and dispatch.prefetch must be at least 1",
        )?;
        let intervals = [
            ("planner.interval", self.planner.interval),
            ("planner.watch_interval", self.planner.watch_interval),
            (
                "planner.status_write_interval",
                self.planner.status_write_interval,
            ),
            ("dispatch.interval", self.dispatch.interval),
        ];
        for (key, value) in intervals {
            rule(
                value.as_millis() >= 10,
                &format!("{key} must be at least 10ms"),
            )?;
        }
        rule(
            self.usage.keep >= self.usage.remember && self.usage.remember.as_millis() >= 86_400_000,
            "usage.remember must be at least 24h, and usage.keep no less than that",
        )?;
        self.billing.check()?;
        self.jobs.check()?;
        if let Some(problem) = self.events.problem() {
            return Err(Error::config(problem));
        }
        if let Some(problem) = self.edge.problem() {
            return Err(Error::config(problem));
        }
        // A larger body would be asked to come again for ever.
        rule(
            self.edge.bodies_size >= self.usage.body_limit,
            "edge.bodies_size must hold usage of usage.body_limit",
        )?;
        if let Some(problem) = self.console.problem() {
            return Err(Error::config(problem));
        }
        self.check_apps()?;
        self.check_enrolment()?;
        self.geo
            .locations
            .iter()
            .try_for_each(|location| location.point().map(drop))?;
        crate::store::dialect::Dialect::of(&self.database.url)?;
        Ok(())
    }

    fn check_enrolment(&self) -> Result<(), Error> {
        let enrolment = &self.enrolment;
        rule(
            enrolment.certificate_lifetime.as_millis() >= 3_600_000,
            "enrolment.certificate_lifetime must be at least 1h",
        )?;
        rule(
            enrolment.authority_lifetime.as_millis() / 4
                >= enrolment.certificate_lifetime.as_millis()
                    + enrolment.authority_settle.as_millis(),
            "enrolment.authority_lifetime must be at least four times certificate_lifetime and authority_settle together",
        )?;
        rule(
            enrolment.lease_max.as_millis() >= 1000,
            "enrolment.lease_max must be at least 1s",
        )?;
        rule(
            enrolment.token_uses_max > 0 && enrolment.tokens_max > 0,
            "enrolment.token_uses_max and tokens_max must be at least 1",
        )
    }

    fn check_apps(&self) -> Result<(), Error> {
        self.secrets.check()?;
        self.rollouts.check()?;
        self.domains.check()?;
        self.records.check()
    }

    fn check_accounts(&self) -> Result<(), Error> {
        rule(
            self.accounts.login_parallel > 0,
            "accounts.login_parallel must be at least 1",
        )?;
        rule(
            self.accounts.admin.parse::<fdn_core::UserName>().is_ok(),
            "accounts.admin must have 1 to 63 characters that can be printed, and no slash",
        )?;
        rule(
            (8..=128).contains(&self.accounts.password_min),
            "accounts.password_min must be from 8 to 128",
        )
    }
}

/// An error with `text`, unless `ok`.
fn rule(ok: bool, text: &str) -> Result<(), Error> {
    if ok {
        Ok(())
    } else {
        Err(Error::config(text.to_owned()))
    }
}

#[cfg(test)]
mod tests;
