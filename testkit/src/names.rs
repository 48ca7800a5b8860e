//! Names that no two tests share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A name that no other test uses on a server, in whatever program. The process id alone would not be enough: the system reuses it
/// after a while, and databases and queues of ended tests stay on a shared server.
pub(crate) fn unique(separator: char) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static PROCESS: OnceLock<String> = OnceLock::new();
    let process = PROCESS.get_or_init(|| {
        let salt: u32 = rand::random();
        format!("{}{separator}{salt:08x}", std::process::id())
    });
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("fdn{separator}{process}{separator}{count}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_differ_and_fit_into_postgresql() {
        let names: BTreeSet<String> = (0..100).map(|_| unique('_')).collect();
        assert_eq!(names.len(), 100);
        // PostgreSQL truncates longer names.
        assert!(names.iter().all(|name| name.len() <= 63), "{names:?}");
    }
}
