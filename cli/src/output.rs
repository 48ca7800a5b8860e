//! The output formats of results: `-o table|wide|json|yaml|name`.
//!
//! `json` and `yaml` print exactly the API's answer, so that scripts can rely on `docs/api`; `name` prints only names, one per
//! line, for pipes; `table` and `wide` are for people and may change.

use clap::ValueEnum;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use fdn_core::{ByteSize, Timestamp};
use serde::Serialize;

use crate::error::CliError;

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table with the columns that matter most.
    #[default]
    Table,
    /// A table with all columns.
    Wide,
    /// JSON, as the API answers.
    Json,
    /// The same as YAML.
    Yaml,
    /// Names alone, one a line.
    Name,
}

/// A result in human-readable form.
pub trait Report {
    /// The text for `table` (or `wide`), with a trailing newline.
    fn text(&self, wide: bool) -> String;

    /// The names that `name` prints.
    fn names(&self) -> Vec<String>;
}

/// A list of results.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Listing<'a, T> {
    /// The rows.
    pub rows: &'a [T],
    /// The text if there are no rows.
    #[serde(skip)]
    pub nothing: &'static str,
    /// The current time, for ages.
    #[serde(skip)]
    pub now: Timestamp,
}

/// A value that can be a row of a [`Listing`].
pub trait Row {
    /// The names of the columns; those from [`Row::NARROW`] on are shown by `wide` only.
    const COLUMNS: &'static [&'static str];
    /// The number of columns that `table` shows.
    const NARROW: usize;

    /// The cells, one per column.
    fn cells(&self, now: Timestamp) -> Vec<String>;

    /// Its name.
    fn name(&self) -> String;
}

impl<T: Row> Report for Listing<'_, T> {
    fn text(&self, wide: bool) -> String {
        if self.rows.is_empty() {
            return format!("{}\n", self.nothing);
        }
        let count = if wide { T::COLUMNS.len() } else { T::NARROW };
        let rows = self.rows.iter().map(|row| cells_of(row, self.now, count));
        table(&T::COLUMNS[..count], rows)
    }

    fn names(&self) -> Vec<String> {
        self.rows.iter().map(Row::name).collect()
    }
}

/// Renders a result.
///
/// # Errors
/// When the value cannot be written in this format.
pub fn render<R: Report + Serialize>(format: Format, report: &R) -> Result<String, CliError> {
    let failed = |e: String| CliError::Output(std::io::Error::other(e));
    Ok(match format {
        Format::Table => report.text(false),
        Format::Wide => report.text(true),
        Format::Json => {
            serde_json::to_string_pretty(report).map_err(|e| failed(e.to_string()))? + "\n"
        }
        Format::Yaml => serde_norway::to_string(report).map_err(|e| failed(e.to_string()))?,
        Format::Name => report.names().into_iter().map(|name| name + "\n").collect(),
    })
}

/// The first `count` cells of a row. Some say what a function or another user wrote: that must not steer the terminal.
fn cells_of<T: Row>(row: &T, now: Timestamp, count: usize) -> Vec<String> {
    let cells = row.cells(now).into_iter().take(count);
    cells.map(|cell| printable(&cell)).collect()
}

/// A table without lines: columns are two spaces apart, without trailing spaces.
#[must_use]
pub fn table(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if !columns.is_empty() {
        table.set_header(columns.to_vec());
    }
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// The text indented by `by` spaces.
#[must_use]
pub fn indented(text: &str, by: usize) -> String {
    text.lines()
        .map(|line| format!("{}{line}\n", " ".repeat(by)))
        .collect()
}

/// An age in at most the two largest units: `4s`, `3m`, `2h10m`, `5d`.
#[must_use]
pub fn age(since: Timestamp, now: Timestamp) -> String {
    // Items from before times were recorded have none.
    if since == Timestamp(0) {
        return "-".to_owned();
    }
    let seconds = now.since(since).as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        3600..86_400 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A time in RFC 3339 format, in UTC with milliseconds.
#[must_use]
pub fn time(at: Timestamp) -> String {
    // The format ends with the year 9999; a later time comes from a wrong clock.
    let at = at.get().min(253_402_300_799_999);
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(at);
    humantime::format_rfc3339_millis(time).to_string()
}

/// A number of bytes with about three digits: `84.1 KiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [(u32, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        if bytes >> shift > 0 {
            let tenths = (u128::from(bytes) * 10) >> shift;
            return format!("{}.{} {unit}", tenths / 10, tenths % 10);
        }
    }
    format!("{} B", ByteSize::from_bytes(bytes).as_bytes())
}

/// A number of milliseconds with two decimals; `-` if it is infinite, which means unknown.
#[must_use]
pub fn millis(ms: fdn_core::Millis) -> String {
    if ms.is_finite() {
        format!("{:.2}", ms.get())
    } else {
        "-".to_owned()
    }
}

/// Escapes control characters, so that a function's output cannot control the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c.is_control() && c != '\t' {
                c.escape_default().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned_and_end_without_spaces() {
        let rows = vec![
            vec!["a".into(), "1".into()],
            vec!["longer".into(), "2".into()],
        ];
        assert_eq!(
            table(&["NAME", "N"], rows),
            "NAME    N\na       1\nlonger  2\n"
        );
    }

    #[test]
    fn ages_sizes_and_times_read_well() {
        let ago = |s: u64| age(Timestamp(1), Timestamp(s * 1000 + 1));
        assert_eq!(
            [ago(0), ago(59), ago(60), ago(7800), ago(7200), ago(200_000)],
            ["0s", "59s", "1m", "2h10m", "2h", "2d"]
        );
        assert_eq!(age(Timestamp(0), Timestamp(5)), "-", "nobody knows");
        assert_eq!(
            [
                size(0),
                size(1023),
                size(1024),
                size(86_118),
                size(u64::MAX)
            ],
            ["0 B", "1023 B", "1.0 KiB", "84.0 KiB", "17179869183.9 GiB"]
        );
        assert_eq!(
            time(Timestamp(1_795_000_000_123)),
            "2026-11-18T11:06:40.123Z"
        );
        assert_eq!(time(Timestamp(u64::MAX)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn a_function_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\tc\r"), "a\\u{1b}[2Jb\tc\\r");
    }
}
