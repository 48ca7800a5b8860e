//! The compose file's settings are settings that the processes take.

use std::process::Command;

use fdn_e2e::{binary, root};
use serde_norway::Value;

#[test]
fn every_service_of_the_compose_file_has_valid_settings() {
    let text =
        std::fs::read_to_string(root().join("deploy/compose.yml")).expect("the compose file");
    let mut compose: Value = serde_norway::from_str(&text).expect("YAML");
    compose.apply_merge().expect("merge keys");
    let services = compose["services"].as_mapping().expect("services");
    let mut checked = 0;
    for (name, service) in services {
        let Some(program) = service["command"][0].as_str() else {
            continue;
        };
        let name = name.as_str().expect("a name");
        let mounted = service["volumes"][0]
            .as_str()
            .and_then(|v| v.split(':').next())
            .expect("the settings come first");
        let mut command = Command::new(binary(program));
        command
            .arg("--config")
            .arg(root().join("deploy").join(mounted))
            .arg("--check-config");
        for (key, value) in service["environment"].as_mapping().expect("environment") {
            command.env(
                key.as_str().expect("a name"),
                value.as_str().expect("a text"),
            );
        }
        let output = command.output().expect("the program starts");
        assert!(
            output.status.success(),
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        checked += 1;
    }
    assert_eq!(checked, 5, "controller, DNS and three agents");
}
