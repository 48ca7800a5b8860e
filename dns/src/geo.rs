//! Client locations, from a database in MaxMind DB format that is read into memory at start.

use std::path::Path;

use fdn_core::{ClientPrefix, GeoPoint};
use maxminddb::{Reader, geoip2};

use crate::error::Error;
use crate::policy::nearest_clusters::Locate;

/// A geographic database.
pub struct GeoDatabase {
    reader: Reader<Vec<u8>>,
}

impl GeoDatabase {
    /// Reads the database from a file.
    ///
    /// # Errors
    /// When it cannot be read or is not a MaxMind DB.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::GeoDatabase {
            path: path.to_owned(),
            source,
        };
        let bytes = std::fs::read(path).map_err(|e| failed(e.into()))?;
        Self::from_bytes(bytes).map_err(failed)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, maxminddb::MaxMindDbError> {
        Reader::from_source(bytes).map(|reader| Self { reader })
    }
}

impl Locate for GeoDatabase {
    fn locate(&self, client: ClientPrefix) -> (Option<GeoPoint>, u8) {
        // An IPv6 client in an IPv4-only database: nothing is known of any such client, so the scope is 0.
        let Ok(found) = self.reader.lookup(client.addr()) else {
            return (None, 0);
        };
        let len = found.network().map_or(0, |network| network.prefix());
        let point = found
            .decode::<geoip2::City<'_>>()
            .ok()
            .flatten()
            .and_then(|city| {
                let (lat, lon) = city.location.latitude.zip(city.location.longitude)?;
                GeoPoint::new(lat, lon).ok()
            });
        (point, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data section of one record, `{"location": {"latitude": LAT, "longitude": LON}}`, as the format's specification defines it:
    /// the type is in the top three bits: 7 is a map, 2 a string, 3 a double.
    fn location(lat: f64, lon: f64) -> Vec<u8> {
        let text = |s: &str| {
            [
                &[2 << 5 | u8::try_from(s.len()).expect("short")],
                s.as_bytes(),
            ]
            .concat()
        };
        let double = |v: f64| [&[3 << 5 | 8], v.to_be_bytes().as_slice()].concat();
        [
            vec![7 << 5 | 1],
            text("location"),
            vec![7 << 5 | 2],
            text("latitude"),
            double(lat),
            text("longitude"),
            double(lon),
        ]
        .concat()
    }

    /// An IPv4 database with one network, given by address and prefix length, at this location.
    pub(super) fn database(network: [u8; 4], len: u32, lat: f64, lon: f64) -> Vec<u8> {
        let bits = u32::from_be_bytes(network);
        let mut out = Vec::new();
        for depth in 0..len {
            // A record equal to the number of nodes means "not found"; a larger one points into the data section, plus 16 bytes.
            let next = if depth + 1 == len {
                len + 16
            } else {
                depth + 1
            };
            let pair = if bits >> (31 - depth) & 1 == 0 {
                [next, len]
            } else {
                [len, next]
            };
            for record in pair {
                out.extend_from_slice(&record.to_be_bytes()[1..]);
            }
        }
        out.extend_from_slice(&[0; 16]);
        out.extend(location(lat, lon));
        out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
        let text = |s: &str| {
            [
                &[2 << 5 | u8::try_from(s.len()).expect("short")],
                s.as_bytes(),
            ]
            .concat()
        };
        let u16_of = |v: u16| [&[5 << 5 | 2], v.to_be_bytes().as_slice()].concat();
        let u32_of = |v: u32| [&[6 << 5 | 4], v.to_be_bytes().as_slice()].concat();
        out.push(7 << 5 | 9);
        let numbers = [
            ("binary_format_major_version", 2),
            ("binary_format_minor_version", 0),
            ("ip_version", 4),
            ("record_size", 24),
        ];
        for (key, value) in numbers {
            // Strings of 29 bytes or more encode their length minus 29 in a further byte.
            assert!(key.len() < 29);
            out.extend([text(key), u16_of(value)].concat());
        }
        out.extend([text("node_count"), u32_of(len)].concat());
        // Type 9, an unsigned 64-bit number, is an extended type: its number minus 7 is in the byte after the length.
        out.extend([text("build_epoch"), vec![8, 2, 0, 0, 0, 0, 0, 0, 0, 1]].concat());
        out.extend([text("database_type"), text("Test-City")].concat());
        // An array is extended type 11.
        out.extend([text("languages"), vec![0, 4]].concat());
        out.extend([text("description"), vec![7 << 5]].concat());
        out
    }

    #[test]
    fn a_network_is_located_and_its_length_told() {
        let db =
            GeoDatabase::from_bytes(database([203, 0, 112, 0], 20, 1.35, 103.8)).expect("valid");
        let (point, len) = db.locate("203.0.113.0/24".parse().expect("client"));
        let point = point.expect("located");
        assert!((point.lat() - 1.35).abs() < 1e-9 && (point.lon() - 103.8).abs() < 1e-9);
        assert_eq!(len, 20);
        // The lookup of 128.0.0.0 leaves the tree after the second bit: every address with these two bits is equally unknown.
        assert_eq!(db.locate("128.0.0.1".parse().expect("client")), (None, 2));
        assert_eq!(db.locate("2001:db8::1".parse().expect("client")), (None, 0));
    }

    #[test]
    fn impossible_places_are_no_places() {
        let db = GeoDatabase::from_bytes(database([10, 0, 0, 0], 8, 91.0, 0.0)).expect("valid");
        assert_eq!(db.locate("10.1.2.3".parse().expect("client")), (None, 8));
    }

    #[test]
    fn what_is_no_database_is_refused_with_its_path() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let error = GeoDatabase::open(file.path())
            .err()
            .expect("refused")
            .to_string();
        assert!(
            error.contains(&file.path().display().to_string()) && error.contains("geo.database"),
            "{error}"
        );
    }
}
