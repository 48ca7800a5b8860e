//! Golden files: expected texts in `tests/golden/`, rewritten with `UPDATE_GOLDEN=1`.

use std::path::Path;

/// Compares `actual` with the golden file of this name.
pub(crate) fn check(name: &str, actual: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, actual).expect("the golden file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == actual,
        "{} differs; if that is meant, run the tests with UPDATE_GOLDEN=1\n--- expected\n{expected}\n--- actual\n{actual}",
        path.display()
    );
}
