//! Files of users: plain or gzip, CSV or JSON, refused with the file, the line or JSON path, and what was expected.

mod data;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::de::DeserializeOwned;

use crate::Error;

pub use data::{DATA_DIRECTORY, data_directory};

/// The most bytes a file may have once unpacked.
pub const UNPACKED_MAX: u64 = 1 << 30;

/// The first bytes of gzip (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1F, 0x8B];

/// A file's bytes, unpacked if it is gzip, whatever its name says.
///
/// # Errors
/// When it cannot be read or unpacked, or is larger than [`UNPACKED_MAX`].
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let failed = |source| Error::Read {
        path: path.to_owned(),
        source,
    };
    let mut head = Vec::new();
    let mut file = File::open(path).map_err(failed)?;
    file.by_ref()
        .take(2)
        .read_to_end(&mut head)
        .map_err(failed)?;
    let whole = head.as_slice().chain(file);
    let mut bytes = Vec::new();
    let source: Box<dyn Read> = if head == GZIP {
        Box::new(MultiGzDecoder::new(whole))
    } else {
        Box::new(whole)
    };
    source
        .take(UNPACKED_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > UNPACKED_MAX {
        let expected = format!("larger than {UNPACKED_MAX} bytes unpacked; split it");
        return Err(Error::input(path, "its size", expected));
    }
    Ok(bytes)
}

/// A JSON file.
///
/// # Errors
/// As [`read`], and with the JSON path of the first value that is not what it should be.
pub fn json<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let bytes = read(path)?;
    let mut deserializer = serde_json::Deserializer::from_slice(&bytes);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let at = match error.path().to_string().as_str() {
            "." => "the whole file".to_owned(),
            at => at.to_owned(),
        };
        Error::input(path, at, error.inner().to_string())
    })?;
    deserializer
        .end()
        .map_err(|error| Error::input(path, "its end", error.to_string()))?;
    Ok(value)
}

/// A CSV file with a header: one `T` per line, each handed to `check` with its line number for what serde cannot see.
///
/// Columns are found by their names; further ones are passed over.
///
/// # Errors
/// As [`read`], and with the line of the first record that is not what it should be.
pub fn csv<T: DeserializeOwned, U>(
    path: &Path,
    mut check: impl FnMut(T) -> Result<U, String>,
) -> Result<Vec<U>, Error> {
    let bytes = read(path)?;
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(bytes.as_slice());
    let headers = reader
        .headers()
        .map_err(|error| Error::input(path, "line 1", error.to_string()))?
        .clone();
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    loop {
        let line = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(false) => return Ok(rows),
            Ok(true) => {}
            Err(error) => return Err(csv_error(path, line, &headers, &error)),
        }
        let line = record.position().map_or(line, csv::Position::line);
        let row = record
            .deserialize(Some(&headers))
            .map_err(|error| csv_error(path, line, &headers, &error))?;
        let row =
            check(row).map_err(|expected| Error::input(path, format!("line {line}"), expected))?;
        rows.push(row);
    }
}

fn csv_error(path: &Path, line: u64, headers: &csv::StringRecord, error: &csv::Error) -> Error {
    let (at, expected) = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => {
            let column = err
                .field()
                .and_then(|at| headers.get(usize::try_from(at).ok()?));
            let at = match column {
                Some(column) => format!("line {line}, column {column}"),
                None => format!("line {line}"),
            };
            (at, err.kind().to_string())
        }
        csv::ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => (
            format!("line {line}"),
            format!("{len} fields, but the header has {expected_len}"),
        ),
        _ => (format!("line {line}"), error.to_string()),
    };
    Error::input(path, at, expected)
}

#[cfg(test)]
mod tests;
