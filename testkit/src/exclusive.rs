//! Taking turns: tests that start many processes run one after another, so that two whole networks never share a small machine.
//!
//! The turn is per test program. It passes on when the guard is dropped, also if the test that holds it has failed.

use tokio::sync::{Mutex, MutexGuard};

/// There is no data: only holding the lock matters.
static LOCK: Mutex<()> = Mutex::const_new(());

/// Waits until no other test of this program has its turn. A test that starts more than four processes holds the guard until they have ended.
pub async fn lock() -> MutexGuard<'static, ()> {
    LOCK.lock().await
}
