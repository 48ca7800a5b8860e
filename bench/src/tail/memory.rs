//! Resident memory of other processes (proc(5): status).

use std::path::PathBuf;

use anyhow::{Context, Result};

fn file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// Bytes of a process that are resident.
pub(super) fn resident(pid: u32) -> Result<f64> {
    field(pid, "VmRSS:")
}

/// The most that they were since [`forget`], or since the process began.
pub(super) fn highest(pid: u32) -> Result<f64> {
    field(pid, "VmHWM:")
}

/// The most is from now on counted anew.
pub(super) fn forget(pid: u32) -> Result<()> {
    std::fs::write(file(pid, "clear_refs"), "5")
        .with_context(|| format!("counting the memory of process {pid} anew"))
}

fn field(pid: u32, name: &str) -> Result<f64> {
    let text = std::fs::read_to_string(file(pid, "status"))
        .with_context(|| format!("process {pid} has ended"))?;
    let kib = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = kib.and_then(|rest| rest.split_whitespace().next());
    let kib: f64 = kib.with_context(|| format!("no {name}"))?.parse()?;
    Ok(kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_process_is_read() {
        let pid = std::process::id();
        let resident = resident(pid).expect("this process is there");
        assert!(resident > 65_536.0);
        assert!(highest(pid).expect("this process is there") > 65_536.0);
    }
}
