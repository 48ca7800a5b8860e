//! Describes what a file that is not WebAssembly looks like, because "wrong magic number" helps nobody.

/// First bytes of a file, and its description.
const MAGIC: &[(&[u8], &str)] = &[
    (b"\x7fELF", "an ELF executable (a native Linux program)"),
    (b"MZ", "a PE executable (a native Windows program)"),
    (
        b"\xfe\xed\xfa\xce",
        "a Mach-O executable (a native macOS program)",
    ),
    (
        b"\xfe\xed\xfa\xcf",
        "a Mach-O executable (a native macOS program)",
    ),
    (
        b"\xce\xfa\xed\xfe",
        "a Mach-O executable (a native macOS program)",
    ),
    (
        b"\xcf\xfa\xed\xfe",
        "a Mach-O executable (a native macOS program)",
    ),
    (
        b"\xca\xfe\xba\xbe",
        "a Java class or a universal Mach-O executable",
    ),
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (b"\x1f\x8b", "a gzip file"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"!<arch>\n", "a static library"),
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"%PDF", "a PDF document"),
    (b"#!", "a script"),
];

/// A description of the file, with the article.
pub(crate) fn describe_content(bytes: &[u8]) -> String {
    if let Some((_, name)) = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return (*name).to_owned();
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return "a tar archive".to_owned();
    }
    let head = &bytes[..bytes.len().min(4096)];
    match std::str::from_utf8(head) {
        // A character truncated at the end of the head does not mean that the file is not text.
        Err(error) if error.error_len().is_some() || error.valid_up_to() == 0 => {
            "a binary file of an unknown kind".to_owned()
        }
        Err(error) => describe_text(&String::from_utf8_lossy(&head[..error.valid_up_to()])),
        Ok(text) => describe_text(text),
    }
}

fn describe_text(text: &str) -> String {
    if text.contains('\0') {
        return "a binary file of an unknown kind".to_owned();
    }
    let start = text.trim_start_matches('\u{feff}').trim_start();
    let lower = start.to_ascii_lowercase();
    let line = |words: &[&str]| {
        start.lines().any(|line| {
            let line = line.trim_start();
            words.iter().any(|word| line.starts_with(word))
        })
    };
    let kind = if lower.starts_with("<!doctype html") || lower.starts_with("<html") {
        "an HTML page (was a download answered with an error page?)"
    } else if lower.starts_with("<?xml") {
        "an XML document"
    } else if start.starts_with("(module") || start.starts_with("(component") {
        "WebAssembly in text form (convert it with `wasm-tools parse`)"
    } else if start.starts_with('{') || start.starts_with('[') {
        "a JSON or TOML document"
    } else if line(&["def ", "from ", "class ", "import "])
        && !line(&["import {", "export ", "const ", "let ", "var "])
        && !start.contains(';')
    {
        "Python source (build it first; `fdn new --lang python` shows how)"
    } else if line(&[
        "import ",
        "export ",
        "const ",
        "let ",
        "var ",
        "function ",
        "addEventListener",
    ]) {
        "JavaScript source (build it first; `fdn new --lang js` shows how)"
    } else if line(&["fn ", "pub fn ", "use ", "#include", "int main"]) {
        "source code (build it first)"
    } else {
        "plain text"
    };
    kind.to_owned()
}

#[cfg(test)]
mod tests {
    use super::describe_content;

    #[test]
    fn common_mistakes_are_named() {
        let mut tar = vec![b'a'; 300];
        tar[257..262].copy_from_slice(b"ustar");
        for (bytes, expected) in [
            (&b"\x7fELF\x02\x01\x01"[..], "an ELF executable"),
            (b"MZ\x90", "a PE executable"),
            (b"\xcf\xfa\xed\xfe", "a Mach-O executable"),
            (b"PK\x03\x04", "a zip archive"),
            (b"\x1f\x8b\x08", "a gzip file"),
            (&tar, "a tar archive"),
            (b"#!/bin/sh\necho", "a script"),
            (b"\n<!DOCTYPE html><html>", "an HTML page"),
            (
                b"import { x } from 'y';\nexport const z = 1;",
                "JavaScript source",
            ),
            (
                b"from spin_sdk import http\n\nclass A:\n    pass\n",
                "Python source",
            ),
            (b"(component)", "WebAssembly in text form"),
            (b"hello there", "plain text"),
            (b"\x01\x02\xff\xfe", "a binary file of an unknown kind"),
            (b"\0\0\0", "a binary file of an unknown kind"),
        ] {
            let found = describe_content(bytes);
            assert!(found.starts_with(expected), "{found} is not {expected}");
        }
    }
}
