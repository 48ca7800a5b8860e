use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Deserialize;
use tempfile::NamedTempFile;

use super::*;

#[derive(Debug, Deserialize, PartialEq)]
struct Row {
    name: String,
    count: u32,
}

fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file
}

fn rows(bytes: &[u8]) -> Result<Vec<Row>, String> {
    let file = file(bytes);
    let cut = file.path().display().to_string().len();
    csv(file.path(), |row: Row| {
        if row.count == 13 {
            Err("13 is not allowed".to_owned())
        } else {
            Ok(row)
        }
    })
    .map_err(|error| error.to_string()[cut..].to_owned())
}

#[test]
fn gzip_is_told_by_its_content() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(b"name,count\na,1\n").expect("packed");
    let packed = gzip.finish().expect("packed");
    assert_eq!(rows(&packed), rows(b"name,count\na,1\n"));
    assert_eq!(rows(b"count,more,name\n2,x,b\n").expect("rows")[0].count, 2);
    assert!(read(file(&packed[..12]).path()).is_err());
    assert_eq!(read(file(b"").path()).expect("empty"), b"");
    assert_eq!(read(file(b"x").path()).expect("one byte"), b"x");
}

#[test]
fn a_fault_in_a_csv_file_names_line_and_column() {
    for (bytes, text) in [
        (
            &b"name,count\na,1\nb,x\n"[..],
            ": line 3, column count: invalid digit found in string",
        ),
        (
            b"name,count\na,1\nb\n",
            ": line 3: 1 fields, but the header has 2",
        ),
        (b"name\na\n", ": line 2: missing field `count`"),
        (b"name,count\na,1\nb,13\n", ": line 3: 13 is not allowed"),
        (
            b"name,count\na,-1\n",
            ": line 2, column count: invalid digit found in string",
        ),
    ] {
        assert_eq!(rows(bytes), Err(text.to_owned()));
    }
}

#[test]
fn a_fault_in_a_json_file_names_its_path() {
    for (bytes, text) in [
        (
            &br#"[{"name":"a","count":1},{"name":"b","count":-1}]"#[..],
            ": [1].count: invalid value",
        ),
        (br#"[{"name":"a"}]"#, ": [0]: missing field `count`"),
        (b"{", ": the whole file: "),
        (b"[] []", ": its end: trailing characters"),
    ] {
        let file = file(bytes);
        let error = json::<Vec<Row>>(file.path())
            .expect_err("refused")
            .to_string();
        assert!(error.contains(text), "{error}");
    }
}
