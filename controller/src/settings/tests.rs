use std::path::Path;

use super::*;

fn sample() -> String {
    std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/config/controller.toml"
    ))
    .expect("the sample file")
}

#[test]
fn the_sample_file_is_valid_and_explains_every_key() {
    let path = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../deploy/config/controller.toml"
    ));
    let settings: Settings = fdn_service::config::load(Some(path), &[]).expect("valid");
    settings.check().expect("sensible");
    // A line that sets a key, or would if it were uncommented, must follow a comment in words.
    let mut explained = false;
    for line in sample().lines() {
        let text = line.trim_start_matches("# ");
        let sets = text.split_once(" = ").is_some_and(|(key, _)| {
            key.bytes()
                .all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
        });
        assert!(!sets || explained, "{line} is not explained");
        explained = line.starts_with('#') && !sets || sets && line.starts_with('#') && explained;
    }
}

#[test]
fn the_sample_file_shows_every_key() {
    let mut settings = Settings {
        dns: Some(SocketAddr::from(([127, 0, 0, 1], 5300))),
        ..Settings::default()
    };
    settings.edge.name = "controller-1".parse().ok();
    settings.enrolment.ca_file = Some("ca.crt".into());
    let all = toml::Table::try_from(&settings).expect("settings are TOML");
    let text = sample();
    for (section, value) in &all {
        let keys: Vec<&String> = value
            .as_table()
            .map_or_else(|| vec![section], |table| table.keys().collect());
        for key in keys {
            assert!(
                text.contains(&format!("{key} = ")) || text.contains(&format!("{key}]")),
                "{section}.{key} is missing"
            );
        }
    }
}

#[test]
fn names_of_the_release_before_are_taken() {
    let text = "[repository]\ntenant_octets = \"3MiB\"\n[records]\nvalue_octets = 77\n";
    let settings: Settings = toml::from_str(text).expect("valid");
    assert_eq!(settings.repository.tenant_bytes.as_bytes(), 3 << 20);
    assert_eq!(settings.records.value_bytes, 77);
}

#[test]
fn what_makes_no_sense_is_named() {
    let mut settings = Settings::default();
    settings.planner.margin = 1.0;
    assert!(
        settings
            .check()
            .expect_err("too large")
            .to_string()
            .contains("planner.margin")
    );
    let mut settings = Settings::default();
    settings.geo.locations = vec![ClientLocation {
        prefix: "192.0.2.0/24".parse().expect("prefix"),
        lat: 91.0,
        lon: 0.0,
    }];
    assert!(
        settings
            .check()
            .expect_err("off the earth")
            .to_string()
            .contains("192.0.2.0/24")
    );
}

#[test]
fn the_api_listens_with_tls_as_the_sample_shows() {
    let sample = sample();
    let section = sample
        .split("\n\n")
        .find(|section| section.contains("[api.tls]"));
    let commented = section
        .expect("the section")
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .filter(|line| line.starts_with("[[") || line.contains(" = \""));
    let text: Vec<&str> = commented.collect();
    let settings: Settings = toml::from_str(&text.join("\n")).expect("valid");
    let [one] = settings.api.tls.certificates.as_slice() else {
        panic!("one certificate: {text:?}");
    };
    assert!(one.certificate_file != one.key_file);
    settings.check().expect("sensible");
    let mut never = settings;
    never.api.tls.handshake = fdn_core::DurationMs::from_millis(0);
    let error = never.check().expect_err("no time").to_string();
    assert!(error.contains("api.tls.handshake"), "{error}");
}

#[test]
fn all_bodies_have_room_for_one_report_and_one_batch_of_usage() {
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.check().map_err(|e| e.to_string())
    };
    assert_eq!(
        with(|all| all.edge.bodies_size = all.usage.body_limit),
        Ok(())
    );
    for (change, words) in [
        (
            (|all| all.usage.body_limit = fdn_core::ByteSize::from_mib(257)) as fn(&mut Settings),
            ["edge.bodies_size", "usage.body_limit"],
        ),
        (
            |all| all.edge.report_limit = fdn_core::ByteSize::from_mib(257),
            ["edge.bodies_size", "edge.report_limit"],
        ),
    ] {
        let error = with(change).expect_err("too small");
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn an_identity_provider_is_asked_over_tls_only() {
    let with = |text: &str| {
        let base = "issuer = \"https://id.example\"\nclient_id = \"fdn\"\nredirect_url = \"https://fdn.example/v1/oidc/callback\"\n";
        let mut table: toml::Table = base.parse().expect("TOML");
        table.extend(text.parse::<toml::Table>().expect("TOML"));
        let oidc: OidcSettings = table.try_into().expect("settings");
        let settings = Settings {
            oidc: Some(oidc),
            ..Settings::default()
        };
        settings.check().map_err(|e| e.to_string())
    };
    assert_eq!(with(""), Ok(()));
    assert_eq!(with("issuer = \"http://127.0.0.1:9\""), Ok(()));
    for (text, word) in [
        ("issuer = \"http://id.example\"", "issuer"),
        ("issuer = \"http://localhost.evil.example\"", "issuer"),
        ("redirect_url = \"https://fdn.example/\"", "redirect_url"),
        ("client_id = \"\"", "client_id"),
        ("groups = [{ group = \"a\", role = \"owner\" }]", "groups"),
    ] {
        let error = with(text).expect_err(text);
        assert!(error.contains(&format!("oidc.{word}")), "{error}");
    }
}

/// The section that is commented out in the sample is valid.
#[test]
fn the_identity_provider_of_the_sample_file_is_valid() {
    let text = sample();
    let lines = text.lines().skip_while(|line| *line != "# [oidc]");
    let lines = lines.take_while(|line| !line.is_empty());
    let sets = |line: &&str| line.contains(" = ") || line.starts_with("# [");
    let section: Vec<&str> = lines.filter(sets).map(|line| &line[2..]).collect();
    let mut settings: Settings = toml::from_str(&section.join("\n")).expect("valid");
    settings.zone = Settings::default().zone;
    settings.check().expect("sensible");
    let oidc = settings.oidc.expect("a provider");
    assert_eq!(oidc.groups.len(), 1);
    assert!(oidc.invite_only);
}
