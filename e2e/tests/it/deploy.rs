//! The compose file's settings are settings that the processes take.

use std::path::PathBuf;
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
        let name = name.as_str().expect("a name");
        let Some((program, settings)) = started(service) else {
            continue;
        };
        let mut command = Command::new(binary(&program));
        command
            .arg("--config")
            .arg(mounted(service, &settings))
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

/// The program of FDN that a service becomes, and its `--config`: by its command, or by the last line of the script that this names.
fn started(service: &Value) -> Option<(String, String)> {
    let command = service["command"].as_sequence()?;
    let mut words: Vec<String> = command
        .iter()
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect();
    if words.first()? == "sh" {
        let script = std::fs::read_to_string(mounted(service, words.get(1)?)).expect("a script");
        let line = script.lines().last()?.strip_prefix("exec ")?.to_owned();
        words = line.split_whitespace().map(str::to_owned).collect();
    }
    let at = words.iter().position(|word| word == "--config")?;
    Some((words.first()?.clone(), words.get(at + 1)?.clone()))
}

/// The file of the repository that a service finds there.
fn mounted(service: &Value, there: &str) -> PathBuf {
    let volumes = service["volumes"].as_sequence().expect("volumes");
    let mut volumes = volumes.iter().filter_map(Value::as_str);
    let here = volumes.find_map(|volume| {
        let (here, rest) = volume.split_once(':')?;
        (rest.split(':').next() == Some(there)).then_some(here)
    });
    root().join("deploy").join(here.expect("it is mounted"))
}
