//! Locations of clients: configured prefixes first, and a database in MaxMind's format for all other clients.

mod rtt;

use std::path::Path;

use fdn_core::{ClientPrefix, GeoPoint};
use maxminddb::Reader;
use serde::Deserialize;

use crate::Error;
use crate::settings::GeoSettings;
pub use rtt::{ClientTable, LinkTable, Links, RttTable, Sample};

/// Client locations.
pub struct Geo {
    locations: Vec<(ClientPrefix, GeoPoint)>,
    database: Option<Reader<Vec<u8>>>,
}

/// The part of a City record that is used.
#[derive(Deserialize)]
struct CityRecord {
    location: Option<CityLocation>,
}

#[derive(Deserialize)]
struct CityLocation {
    latitude: Option<f64>,
    longitude: Option<f64>,
}

impl Geo {
    /// Reads the configured locations and opens the database.
    ///
    /// # Errors
    /// When a location is not valid or the database cannot be read.
    pub fn open(settings: &GeoSettings) -> Result<Self, Error> {
        let mut locations = settings
            .locations
            .iter()
            .map(|l| Ok((l.prefix, l.point()?)))
            .collect::<Result<Vec<_>, Error>>()?;
        locations.sort_by_key(|(prefix, _)| *prefix);
        Ok(Self {
            locations,
            database: settings
                .database
                .as_deref()
                .map(open_database)
                .transpose()?,
        })
    }

    /// The configured locations, by prefix.
    #[must_use]
    pub fn locations(&self) -> &[(ClientPrefix, GeoPoint)] {
        &self.locations
    }

    /// The database's location of a client, with the prefix length for which it holds.
    #[must_use]
    pub fn look_up(&self, client: ClientPrefix) -> Option<(GeoPoint, u8)> {
        let found = self.database.as_ref()?.lookup(client.addr()).ok()?;
        let location = found.decode::<CityRecord>().ok()??.location?;
        let point = GeoPoint::new(location.latitude?, location.longitude?).ok()?;
        let network = found.network().ok()?;
        // In a tree of IPv6 addresses, IPv4 clients are below ::/96.
        let embedded = client.addr().is_ipv4() && network.is_ipv6();
        Some((
            point,
            network
                .prefix()
                .saturating_sub(if embedded { 96 } else { 0 }),
        ))
    }
}

fn open_database(path: &Path) -> Result<Reader<Vec<u8>>, Error> {
    Reader::open_readfile(path)
        .map_err(|e| Error::config(format!("geo.database, {}: {e}", path.display())))
}

#[cfg(test)]
mod tests;
