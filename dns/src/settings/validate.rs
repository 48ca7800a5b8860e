//! Checks that the types of the settings cannot make, and the zone that the settings describe.

use std::net::IpAddr;

use fdn_core::{DurationMs, HostName};

use super::Settings;
use crate::error::Error;
use crate::health::client::Scheme;
use crate::policy::zone::ZoneData;

impl Settings {
    /// Checks the settings beyond their types.
    ///
    /// # Errors
    /// Names the first invalid setting, and what it needs.
    pub fn validate(&self) -> Result<(), Error> {
        let at_least_one = [
            ("answer.max_addresses", self.answer.max_addresses),
            ("tcp.connections", self.tcp.connections),
            ("tcp.per_client", self.tcp.per_client),
            ("demand.capacity", self.demand.capacity),
            ("demand.told", self.demand.told),
            ("demand.strangers", self.demand.strangers),
            ("health.concurrency", self.health.concurrency),
            ("health.fall", self.health.fall as usize),
            ("health.rise", self.health.rise as usize),
            ("query_log.queue", self.query_log.queue),
        ];
        let not_zero = [
            ("tcp.idle", self.tcp.idle),
            ("demand.interval", self.demand.interval),
            ("health.interval", self.health.interval),
            ("health.timeout", self.health.timeout),
        ];
        let fail = |key, reason: &str| {
            Err(Error::Setting {
                key,
                reason: reason.to_owned(),
            })
        };
        if let Some((key, _)) = at_least_one.iter().find(|(_, n)| *n == 0) {
            return fail(key, "must be at least 1");
        }
        if let Some((key, _)) = not_zero.iter().find(|(_, d)| d.as_millis() == 0) {
            return fail(key, "must be longer than 0s");
        }
        if self.server.is_empty() || self.server.len() > 63 {
            return fail("server", "must be a name of 1 to 63 characters");
        }
        self.centre.check()?;
        if self.listen.is_empty() {
            return fail("listen", "must name at least one address");
        }
        if !(512..=4096).contains(&self.answer.udp_size) {
            return fail("answer.udp_size", "must be between 512 and 4096");
        }
        let shed = &self.shed;
        // Written so that NaN fails too.
        if !(shed.below > 0.0 && shed.below < shed.above && shed.above.is_finite()) {
            return fail("shed.below", "must be above 0 and less than shed.above");
        }
        if !(shed.speed > 0.0 && shed.speed <= 1.0 && shed.most > 0.0 && shed.most <= 1.0) {
            return fail("shed", "speed and most must be above 0 and at most 1");
        }
        if self.health.ca_file.is_some() && self.health.scheme == Scheme::Http {
            return fail(
                "health.ca_file",
                "is of use with health.scheme = \"https\" alone",
            );
        }
        if !(512..=65_535).contains(&self.tcp.request.as_usize()) {
            return fail("tcp.request", "must be between 512 and 65535 bytes");
        }
        self.validate_guard()?;
        self.validate_dnssec()?;
        self.validate_encrypted()?;
        self.validate_transfer()?;
        self.zone_data(self.listen[0].ip()).map(drop)
    }

    /// The zone, with defaults derived from its name and from the listening address.
    ///
    /// # Errors
    /// Names the first invalid setting, and what it needs.
    pub fn zone_data(&self, listening: IpAddr) -> Result<ZoneData, Error> {
        let fail = |key, reason: String| Error::Setting { key, reason };
        let zone = &self.zone;
        let under = |label: &str, key| {
            format!("{label}.{}", zone.name)
                .parse::<HostName>()
                .map_err(|e| fail(key, e.to_string()))
        };
        if zone.servers.is_empty() && listening.is_unspecified() {
            return Err(fail(
                "zone.servers",
                format!(
                    "needs the name servers with their addresses, because nobody can ask at {listening}, the first of `listen`"
                ),
            ));
        }
        let servers = if zone.servers.is_empty() {
            vec![(under("ns1", "zone.name")?, vec![listening])]
        } else {
            zone.servers
                .iter()
                .map(|server| (server.name.clone(), server.addresses.clone()))
                .collect()
        };
        let suffix = format!(".{}", zone.name);
        for (name, addresses) in &servers {
            if let Some(address) = addresses.iter().find(|address| address.is_unspecified()) {
                return Err(fail(
                    "zone.servers",
                    format!("has {address} for {name}, where nobody can ask"),
                ));
            }
            if addresses.is_empty() && (name.as_str().ends_with(&suffix) || *name == zone.name) {
                return Err(fail(
                    "zone.servers",
                    format!("needs addresses for {name}, which lies in the zone"),
                ));
            }
        }
        let contact = zone
            .contact
            .clone()
            .map_or_else(|| under("hostmaster", "zone.name"), Ok)?;
        let seconds = |key, value: DurationMs| {
            i32::try_from(value.as_millis() / 1000)
                .map_err(|_| fail(key, "must be below 2^31 seconds".to_owned()))
        };
        let ttl = seconds("zone.ttl", zone.ttl)?.unsigned_abs();
        Ok(ZoneData {
            name: zone.name.clone(),
            records: zone.named_records(&servers, ttl)?,
            app_service: zone.service_of_apps()?,
            servers,
            contact,
            ttl,
            negative_ttl: seconds("zone.negative_ttl", zone.negative_ttl)?.unsigned_abs(),
            serial: zone.serial,
            timers: [
                seconds("zone.refresh", zone.refresh)?,
                seconds("zone.retry", zone.retry)?,
                seconds("zone.expire", zone.expire)?,
            ],
        })
    }
}
