//! Positions on the earth, and the round-trip time estimated from distance.
//!
//! Used until a round trip has been measured. The estimate is 2 ms plus 0.015 ms per kilometre: light in fibre takes 0.01 ms per
//! kilometre there and back, and real paths are about one and a half times the great circle. Compared with a published matrix of 13 cloud
//! regions, it is within about a fifth for pairs across an ocean.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::error::ParseError;
use crate::unit::Millis;

/// Mean radius of the earth in kilometres (IUGG).
const EARTH_RADIUS_KM: f64 = 6371.0;
const BASE_RTT_MS: f64 = 2.0;
const RTT_MS_PER_KM: f64 = 0.015;

/// A position in degrees: latitude `lat` from -90 to 90 (north positive), longitude `lon` from -180 to 180 (east positive).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "RawPoint")]
pub struct GeoPoint {
    lat: f64,
    lon: f64,
}

#[derive(Deserialize)]
struct RawPoint {
    lat: f64,
    lon: f64,
}

impl TryFrom<RawPoint> for GeoPoint {
    type Error = ParseError;

    fn try_from(raw: RawPoint) -> Result<Self, ParseError> {
        Self::new(raw.lat, raw.lon)
    }
}

impl GeoPoint {
    /// A position from latitude and longitude in degrees.
    ///
    /// # Errors
    /// When either angle is out of its range or not a number.
    pub fn new(lat: f64, lon: f64) -> Result<Self, ParseError> {
        if (-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lon) {
            Ok(Self { lat, lon })
        } else {
            Err(ParseError::new(
                "position",
                format!("{lat},{lon}"),
                "latitude -90 to 90 and longitude -180 to 180, in degrees",
            ))
        }
    }

    /// Latitude in degrees, north positive.
    #[must_use]
    pub const fn lat(&self) -> f64 {
        self.lat
    }

    /// Longitude in degrees, east positive.
    #[must_use]
    pub const fn lon(&self) -> f64 {
        self.lon
    }

    /// Great-circle distance in kilometres (haversine formula).
    #[must_use]
    pub fn distance_km(&self, other: &Self) -> f64 {
        let (lat_a, lat_b) = (self.lat.to_radians(), other.lat.to_radians());
        let half_lat = (lat_b - lat_a) / 2.0;
        let half_lon = (other.lon - self.lon).to_radians() / 2.0;
        let h = half_lat.sin().powi(2) + lat_a.cos() * lat_b.cos() * half_lon.sin().powi(2);
        2.0 * EARTH_RADIUS_KM * h.sqrt().min(1.0).asin()
    }

    /// The round-trip time estimated from the distance.
    #[must_use]
    pub fn rtt_estimate(&self, other: &Self) -> Millis {
        Millis::new(BASE_RTT_MS + RTT_MS_PER_KM * self.distance_km(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lat: f64, lon: f64) -> GeoPoint {
        GeoPoint::new(lat, lon).expect("valid position")
    }

    #[test]
    fn distances_of_known_cities() {
        let (frankfurt, dallas, sydney) = (
            point(50.11, 8.68),
            point(32.78, -96.80),
            point(-33.87, 151.21),
        );
        assert!((frankfurt.distance_km(&dallas) - 8250.0).abs() < 50.0);
        assert!((frankfurt.distance_km(&sydney) - 16_490.0).abs() < 60.0);
        assert!(frankfurt.distance_km(&frankfurt) < 1e-6);
        // Published monthly mean between the two regions: 123 ms.
        assert!((frankfurt.rtt_estimate(&dallas).get() - 123.0).abs() < 10.0);
    }

    #[test]
    fn the_date_line_is_no_wall() {
        assert!(point(0.0, 179.9).distance_km(&point(0.0, -179.9)) < 30.0);
    }

    #[test]
    fn positions_out_of_range_are_refused() {
        assert!(GeoPoint::new(91.0, 0.0).is_err());
        assert!(GeoPoint::new(0.0, f64::NAN).is_err());
        assert!(serde_json::from_str::<GeoPoint>(r#"{"lat":0,"lon":181}"#).is_err());
    }
}
