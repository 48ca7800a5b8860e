//! Tables: one content, as text for a terminal, as Markdown for documents, as JSON for programs.

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, ContentArrangement, TableStyle};
use serde::{Serialize, Serializer};

/// One field of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Words.
    Text(String),
    /// A number and how many digits behind the point are shown; JSON has all of them.
    Number(f64, usize),
    /// There is nothing to say here.
    Empty,
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Number(number, _) => serializer.serialize_f64(*number),
            Self::Empty => serializer.serialize_none(),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as f64, 0)
    }
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number, digits) => format!("{number:.digits$}"),
            Self::Empty => "–".to_owned(),
        }
    }
}

/// A table with a title.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The columns, units in their names.
    pub columns: Vec<String>,
    /// The rows, a cell for each column.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(title: impl Into<String>, columns: &[&str]) -> Self {
        Self {
            title: title.into(),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) -> &mut Self {
        let mut cells: Vec<Cell> = cells.into_iter().collect();
        cells.resize(self.columns.len(), Cell::Empty);
        self.rows.push(cells);
        self
    }

    /// For a terminal: columns two spaces apart.
    #[must_use]
    pub fn text(&self) -> String {
        let lines: String = self
            .render(NOTHING, (0, 2))
            .lines()
            .map(|line| line.trim_end().to_owned() + "\n")
            .collect();
        format!("{}\n\n{lines}", self.title)
    }

    /// As Markdown, under a heading of its own.
    #[must_use]
    pub fn markdown(&self) -> String {
        format!(
            "### {}\n\n{}\n",
            self.title,
            self.render(ASCII_MARKDOWN, (1, 1))
        )
    }

    fn render(&self, style: TableStyle, padding: (u16, u16)) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(style)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(self.columns.clone())
            .add_rows(self.rows.iter().map(|row| row.iter().map(Cell::text)));
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding(padding);
            let is_number = |row: &Vec<Cell>| !matches!(row[at], Cell::Text(_));
            if !self.rows.is_empty() && self.rows.iter().all(is_number) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }
}

/// A number with four significant digits or so.
#[must_use]
pub fn short(number: f64) -> String {
    let size = number.abs();
    if size >= 1000.0 || number.fract() == 0.0 {
        format!("{number:.0}")
    } else if size >= 10.0 {
        format!("{number:.2}")
    } else if size >= 0.01 {
        format!("{number:.3}")
    } else {
        format!("{number:.2e}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new("Sizes", &["name", "size_ms"]);
        table.row(["a".into(), Cell::Number(1.25, 1)]);
        table.row([Cell::from("bc")]);
        table
    }

    #[test]
    fn one_content_in_three_forms() {
        assert_eq!(
            table().text(),
            "Sizes\n\nname  size_ms\na         1.2\nbc          –\n"
        );
        let markdown = table().markdown();
        assert!(markdown.contains("| a    |     1.2 |"), "{markdown}");
        let json = serde_json::to_value(table()).expect("JSON");
        assert_eq!(json["rows"], serde_json::json!([["a", 1.25], ["bc", null]]));
    }

    #[test]
    fn numbers_are_shown_short() {
        let shown = [12345.6, 42.0, 42.123, 0.5, 0.0001].map(short);
        assert_eq!(shown, ["12346", "42", "42.12", "0.500", "1.00e-4"]);
    }
}
