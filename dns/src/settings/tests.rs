use std::path::Path;

use super::*;

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/config/dns.toml")
}

#[test]
fn the_sample_is_valid_and_names_every_key_under_a_comment() {
    let settings: Settings =
        fdn_service::config::load(Some(&sample()), &[]).expect("the sample file");
    settings.validate().expect("valid");
    let text = std::fs::read_to_string(sample()).expect("the sample file");
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.trim_start_matches("#:").trim())
        .collect();
    let printed = fdn_service::config::print(&Settings {
        // Absent values are not printed, so set all of them.
        zone: ZoneSettings {
            contact: "x.test".parse().ok(),
            dnssec: DnssecSettings {
                key_file: Some("x".into()),
                master_key_file: Some("x".into()),
                master_key_variable: Some("X".to_owned()),
                ..DnssecSettings::default()
            },
            ..ZoneSettings::default()
        },
        centre: ControllerLinkSettings {
            proxy: Some("http://x.test:1".to_owned()),
            ..ControllerLinkSettings::default()
        },
        identity: IdentitySettings {
            nsid: Some("x".to_owned()),
            version: Some("x".to_owned()),
        },
        cookie: CookieSettings {
            key_file: Some("x".into()),
            ..CookieSettings::default()
        },
        encrypted: EncryptedSettings {
            certificate_file: Some("x".into()),
            key_file: Some("x".into()),
            ..EncryptedSettings::default()
        },
        health: HealthSettings {
            ca_file: Some("x".into()),
            ..HealthSettings::default()
        },
        geo: GeoSettings {
            database: Some("x".into()),
        },
        ..Settings::default()
    });
    for line in printed
        .expect("toml")
        .lines()
        .filter(|line| line.contains(" = "))
    {
        let key = line.split(" = ").next().expect("a key");
        let at = lines
            .iter()
            .position(|l| l.starts_with(&format!("{key} =")))
            .unwrap_or_else(|| panic!("dns.toml lacks {key}"));
        assert!(lines[at - 1].starts_with("# "), "no comment above {key}");
    }
}

fn signed() -> DnssecSettings {
    DnssecSettings {
        key_file: Some("x".into()),
        master_key_variable: Some("X".to_owned()),
        ..DnssecSettings::default()
    }
}

#[test]
fn values_that_cannot_work_are_named() {
    type Break = (&'static str, fn(&mut Settings));
    let broken: [Break; 18] = [
        ("listen", |s| s.listen.clear()),
        ("health.fall", |s| s.health.fall = 0),
        ("health.ca_file", |s| s.health.ca_file = Some("x".into())),
        ("tcp.idle", |s| s.tcp.idle = DurationMs::from_secs(0)),
        ("answer.udp_size", |s| s.answer.udp_size = 100),
        ("master_key_file", |s| {
            s.zone.dnssec.key_file = Some("x".into());
        }),
        ("zone.dnssec.validity", |s| {
            s.zone.dnssec = signed();
            s.zone.dnssec.validity = DurationMs::from_secs(3600);
        }),
        ("zone.dnssec.drain", |s| {
            s.zone.dnssec = signed();
            s.zone.dnssec.drain = DurationMs::from_secs(60);
        }),
        ("zone.dnssec.denial_signatures", |s| {
            s.zone.dnssec = signed();
            s.zone.dnssec.denial_signatures = 0;
        }),
        ("encrypted.certificate_file", |s| {
            s.encrypted.https = s.listen.clone();
        }),
        ("encrypted.key_file", |s| {
            s.encrypted.tls = s.listen.clone();
            s.encrypted.certificate_file = Some("x".into());
        }),
        ("encrypted.handshakes", |s| s.encrypted.handshakes = 0),
        ("transfer.keys", |s| {
            let key = TransferKey {
                name: "x.test".to_owned().try_into().expect("a name"),
                algorithm: crate::handler::tsig::Algorithm::Sha256,
                secret_file: "x".into(),
            };
            s.transfer.keys = vec![key.clone(), key];
        }),
        ("transfer.notify", |s| {
            s.transfer.notify = vec![NotifySettings {
                address: s.listen[0],
                key: "x.test".to_owned().try_into().ok(),
            }];
        }),
        ("centre.controllers", |s| {
            s.centre.controllers = vec!["mailto:x@y".to_owned()];
        }),
        ("zone.servers", |s| {
            s.zone.servers = vec![NameServer {
                name: "ns.fn.test".parse().expect("name"),
                addresses: vec![],
            }];
        }),
        // Clients cannot reach such an address, so it must not be published.
        ("zone.servers", |s| {
            s.listen = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 53))];
        }),
        ("zone.servers", |s| {
            s.zone.servers = vec![NameServer {
                name: "ns.fn.test".parse().expect("name"),
                addresses: vec!["::".parse().expect("an address")],
            }];
        }),
    ];
    for (key, change) in broken {
        let mut settings = Settings::default();
        change(&mut settings);
        let error = settings.validate().expect_err(key).to_string();
        assert!(error.contains(key), "{error}");
    }
    Settings::default()
        .validate()
        .expect("the defaults are valid");
    let mut settings = Settings::default();
    settings.zone.dnssec = signed();
    settings.validate().expect("a signed zone is valid");
}
