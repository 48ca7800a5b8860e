//! The conditions under which figures are taken.

use std::process::Command;

fn first_line(path: &str, prefix: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let line = text
        .lines()
        .find(|l| l.starts_with(prefix))
        .unwrap_or_default();
    line.split_once(':')
        .map_or(line, |(_, rest)| rest)
        .trim()
        .to_owned()
}

fn output(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output
        .map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
        .unwrap_or_else(|_| "absent".to_owned())
}

/// Processor and memory, system and compiler, revision, load: name and value.
pub(crate) fn all() -> [(&'static str, String); 4] {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    [
        (
            "machine",
            format!(
                "{cores} x {}, {} memory",
                first_line("/proc/cpuinfo", "model name"),
                first_line("/proc/meminfo", "MemTotal")
            ),
        ),
        (
            "system",
            format!(
                "{} {}",
                output("uname", &["-sr"]),
                output("rustc", &["--version"])
            ),
        ),
        (
            "revision",
            output("git", &["describe", "--always", "--dirty"]),
        ),
        (
            "load",
            std::fs::read_to_string("/proc/loadavg")
                .unwrap_or_default()
                .trim()
                .to_owned(),
        ),
    ]
}

/// Prints them.
pub(crate) fn print() {
    for (name, value) in all() {
        println!("{name:<9} {value}");
    }
}
