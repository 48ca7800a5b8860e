//! Statement lines as comma-separated values (RFC 4180), safe against formula injection in spreadsheets.

use super::{Kind, Line};

/// The header line, with its line end.
pub const CSV_COLUMNS: &str = "month,kind,meter,app,function,region,cluster,price_list,from,to,quantity,unit,units,amount,currency\r\n";

/// A cell. Text that a spreadsheet could take for a formula is prefixed with an apostrophe; numbers stay numbers.
#[must_use]
pub fn csv_cell(text: &str) -> String {
    let number = !text.is_empty()
        && text
            .trim_start_matches('-')
            .bytes()
            .all(|b| b.is_ascii_digit() || b == b'.');
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']) && !number;
    let text = if formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

/// A statement line, with its line end.
#[must_use]
pub fn csv_line(line: &Line) -> String {
    let text =
        |value: Option<&dyn std::fmt::Display>| value.map(ToString::to_string).unwrap_or_default();
    let kind = match line.kind {
        Kind::Usage => "usage",
        Kind::FreeTier => "free_tier",
    };
    let cells = [
        line.month.to_string(),
        kind.to_owned(),
        line.meter.to_string(),
        text(line.app.as_ref().map(|v| v as _)),
        text(line.function.as_ref().map(|v| v as _)),
        text(line.region.as_ref().map(|v| v as _)),
        text(line.cluster.as_ref().map(|v| v as _)),
        text(line.price_list.as_ref().map(|v| v as _)),
        line.from.to_string(),
        line.to.to_string(),
        line.quantity.to_string(),
        line.unit.clone(),
        line.units.clone(),
        line.amount.decimal(),
        line.amount.currency.to_string(),
    ];
    cells.map(|cell| csv_cell(&cell)).join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula() {
        for (text, cell) in [
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\t=1"),
            ("=\"a\",1", "\"'=\"\"a\"\",1\""),
            ("-12.50", "-12.50"),
            ("-", "-"),
            ("hello", "hello"),
            ("", ""),
        ] {
            assert_eq!(csv_cell(text), cell, "{text}");
        }
    }
}
