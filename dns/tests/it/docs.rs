//! The tests that the protocol document names exist.

use std::path::Path;

#[test]
fn every_test_named_in_the_document_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("../docs/dns.md")).expect("docs/dns.md");
    let named: Vec<(&str, &str)> = text
        .split('`')
        .filter_map(|code| code.split_once("::"))
        .filter(|(module, _)| !module.contains([' ', '_']) && *module != "handler")
        .collect();
    assert!(named.len() > 30, "{named:?}");
    for (module, test) in named {
        let file = root.join(format!("tests/it/{module}.rs"));
        let source =
            std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert!(
            source.contains(&format!("fn {test}(")),
            "docs/dns.md names {module}::{test}"
        );
    }
}
