use super::*;

/// Writes values in the MaxMind DB file format, version 2.0 (<https://maxmind.github.io/MaxMind-DB/>), as far as the tests need it.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn control(&mut self, kind: u8, size: usize) -> &mut Self {
        let size = u8::try_from(size).expect("small values only");
        if kind <= 7 {
            self.0.push(kind << 5 | size);
        } else {
            self.0.extend([size, kind - 7]);
        }
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.control(2, text.len()).0.extend(text.as_bytes());
        self
    }

    fn double(&mut self, value: f64) -> &mut Self {
        self.control(3, 8).0.extend(value.to_be_bytes());
        self
    }

    fn map(&mut self, entries: usize) -> &mut Self {
        self.control(7, entries)
    }

    /// `kind` 5 is a 16-bit number, 6 a 32-bit one.
    fn number(&mut self, kind: u8, value: u8) -> &mut Self {
        self.control(kind, 1).0.push(value);
        self
    }
}

/// A database that locates the upper half of the IPv4 addresses in New York.
fn database() -> Vec<u8> {
    let mut file = Writer::default();
    // One node of two 24-bit records: nothing (the number of nodes) on the left, the first byte of the data on the right.
    file.0.extend([0, 0, 1, 0, 0, 1 + 16]);
    file.0.extend([0; 16]);
    file.map(1)
        .text("location")
        .map(2)
        .text("latitude")
        .double(40.71)
        .text("longitude")
        .double(-74.01);
    file.0.extend(b"\xab\xcd\xefMaxMind.com");
    file.map(9)
        .text("binary_format_major_version")
        .number(5, 2)
        .text("binary_format_minor_version")
        .number(5, 0);
    file.text("build_epoch").control(9, 1).0.push(1);
    file.text("database_type")
        .text("Test-City")
        .text("description")
        .map(0)
        .text("languages")
        .control(11, 0);
    file.text("ip_version")
        .number(5, 4)
        .text("node_count")
        .number(6, 1)
        .text("record_size")
        .number(5, 24);
    file.0
}

#[test]
fn the_database_knows_those_who_are_not_configured() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("city.mmdb");
    std::fs::write(&path, database()).expect("written");
    let geo = Geo::open(&GeoSettings {
        database: Some(path),
        ..GeoSettings::default()
    })
    .expect("opened");
    let (point, len) = geo
        .look_up("203.0.113.7".parse().expect("client"))
        .expect("known");
    assert_eq!((point.lat(), point.lon(), len), (40.71, -74.01, 1));
    assert_eq!(geo.look_up("10.0.0.1".parse().expect("client")), None);
    assert_eq!(geo.look_up("2001:db8::1".parse().expect("client")), None);
}

#[test]
fn a_database_that_is_none_is_named() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("broken.mmdb");
    std::fs::write(&path, b"no database").expect("written");
    let error = Geo::open(&GeoSettings {
        database: Some(path),
        ..GeoSettings::default()
    })
    .err()
    .expect("refused");
    assert!(
        error.to_string().contains("geo.database") && error.to_string().contains("broken.mmdb")
    );
}

#[test]
fn locations_are_sorted_by_prefix() {
    let location = |prefix: &str| crate::settings::ClientLocation {
        prefix: prefix.parse().expect("prefix"),
        lat: 1.0,
        lon: 2.0,
    };
    let settings = GeoSettings {
        locations: vec![location("203.0.113.0/24"), location("192.0.2.0/24")],
        ..GeoSettings::default()
    };
    let geo = Geo::open(&settings).expect("opened");
    let prefixes: Vec<String> = geo
        .locations()
        .iter()
        .map(|(prefix, _)| prefix.to_string())
        .collect();
    assert_eq!(prefixes, ["192.0.2.0/24", "203.0.113.0/24"]);
}
