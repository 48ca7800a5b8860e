//! Input by the user: passwords without echo, confirmations, files named on the command line.

use std::io::{self, IsTerminal, Read};
use std::path::Path;

use fdn_core::ErrorCode;
use fdn_service::secret::{self, Secret};

use crate::console::Console;
use crate::error::CliError;

/// The largest size of small files, in bytes.
const TEXT_MAX: u64 = 64 << 10;
/// The largest secret or password, in bytes.
const SECRET_MAX: u64 = 1 << 20;

/// A password: from the file, or else from the terminal without echo, or else the first line of standard input.
///
/// # Errors
/// When the file cannot be read, or there is no password.
pub fn password(file: Option<&Path>, user: &str, place: &str) -> Result<Secret, CliError> {
    if let Some(path) = file {
        return Ok(secret::read(path)?);
    }
    let text = if io::stdin().is_terminal() {
        typed(&format!("password of {user} at {place}: "))?
    } else {
        let mut line = String::new();
        io::stdin()
            .lock()
            .take(SECRET_MAX)
            .read_to_string(&mut line)?;
        line.lines().next().unwrap_or_default().to_owned()
    };
    if text.is_empty() {
        return Err(CliError::Usage(
            "no password was given: type it, hand it in on standard input, or use --password-file"
                .to_owned(),
        ));
    }
    Ok(Secret::new(text))
}

/// A newly chosen password, which only its owner could correct later: like [`password`], but typed twice on a terminal.
///
/// # Errors
/// As for [`password`], or when the two do not match.
pub fn chosen_password(file: Option<&Path>, user: &str, place: &str) -> Result<Secret, CliError> {
    let chosen = password(file, &format!("{user}, the new one,"), place)?;
    if file.is_none() && io::stdin().is_terminal() {
        same(&chosen, &typed("the same again: ")?)?;
    }
    Ok(chosen)
}

/// Reads a line from the terminal, without echo.
fn typed(question: &str) -> Result<String, CliError> {
    let terminal = console::Term::stderr();
    terminal.write_str(question)?;
    Ok(terminal.read_secure_line()?)
}

fn same(chosen: &Secret, again: &str) -> Result<(), CliError> {
    if chosen.matches(again) {
        return Ok(());
    }
    Err(CliError::Usage(
        "the two passwords are not the same; nothing was changed".to_owned(),
    ))
}

/// Reads a small text file, such as a public key.
///
/// # Errors
/// When it cannot be read, is not text, or is too large.
pub fn text_file(path: &Path) -> Result<String, CliError> {
    let failed = |reason: String| CliError::File {
        path: path.to_owned(),
        reason,
        code: ErrorCode::InputInvalid,
    };
    let size = path.metadata().map_err(|e| failed(e.to_string()))?.len();
    if size > TEXT_MAX {
        return Err(failed(format!("it is larger than {TEXT_MAX} bytes")));
    }
    std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))
}

/// Asks for confirmation. Without a terminal this fails, and the message names the flag that confirms beforehand.
///
/// # Errors
/// [`CliError::Declined`] for any answer but yes, [`CliError::Usage`] without a terminal.
pub fn confirm(console: &mut Console, question: &str) -> Result<(), CliError> {
    if !io::stdin().is_terminal() {
        return Err(CliError::Usage(format!(
            "{question} Standard input is no terminal: say yes beforehand with --yes"
        )));
    }
    console.note(&format!("{question} [y/N]"));
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    match line.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(CliError::Declined),
    }
}

/// The value of a secret: the whole file (or standard input for `-`), without one trailing newline.
///
/// # Errors
/// When it cannot be read, is too large or is not text.
pub fn secret_value(path: &Path) -> Result<String, CliError> {
    let failed = |reason: String| CliError::File {
        path: path.to_owned(),
        reason,
        code: ErrorCode::BadRequest,
    };
    let mut text = String::new();
    let read =
        |source: &mut dyn Read, text: &mut String| source.take(SECRET_MAX + 1).read_to_string(text);
    if path.as_os_str() == "-" {
        read(&mut io::stdin().lock(), &mut text).map_err(|e| failed(e.to_string()))?;
    } else {
        let mut file = std::fs::File::open(path).map_err(|e| failed(e.to_string()))?;
        read(&mut file, &mut text).map_err(|e| failed(e.to_string()))?;
    }
    if text.len() as u64 > SECRET_MAX {
        return Err(failed(format!(
            "a secret may have {SECRET_MAX} bytes at most"
        )));
    }
    if let Some(cut) = text.strip_suffix('\n') {
        text.truncate(cut.strip_suffix('\r').unwrap_or(cut).len());
    }
    Ok(text)
}

/// Reads a text file, or standard input for `-`, of at most `max` bytes.
///
/// # Errors
/// When it cannot be read, is too large or is not text.
pub fn text(path: &Path, max: u64) -> Result<String, CliError> {
    let failed = |reason: String| CliError::File {
        path: path.to_owned(),
        reason,
        code: ErrorCode::BadRequest,
    };
    let mut text = String::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().take(max + 1).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).map_err(|e| failed(e.to_string()))?;
        file.take(max + 1).read_to_string(&mut text)
    };
    read.map_err(|e| failed(e.to_string()))?;
    if text.len() as u64 > max {
        return Err(failed(format!("it may have {max} bytes at most")));
    }
    Ok(text)
}

/// Opens a file to be uploaded. Returns it with its size. It must be a readable regular file that is not empty.
///
/// # Errors
/// When it cannot be used; an empty file has its own error code.
pub fn upload(path: &Path) -> Result<(std::fs::File, u64), CliError> {
    let failed = |reason: &str, code| CliError::File {
        path: path.to_owned(),
        reason: reason.to_owned(),
        code,
    };
    let file = std::fs::File::open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => failed("there is no such file", ErrorCode::BadRequest),
        _ => failed(&e.to_string(), ErrorCode::BadRequest),
    })?;
    let metadata = file
        .metadata()
        .map_err(|e| failed(&e.to_string(), ErrorCode::BadRequest))?;
    if metadata.is_dir() {
        return Err(failed(
            "it is a folder; name the .wasm file that its build makes, or the tar file of an image",
            ErrorCode::BadRequest,
        ));
    }
    if metadata.is_file() && metadata.len() == 0 {
        return Err(failed("the file is empty", ErrorCode::UploadEmpty));
    }
    if !metadata.is_file() {
        return Err(failed("it is not a regular file", ErrorCode::BadRequest));
    }
    Ok((file, metadata.len()))
}

#[cfg(test)]
mod tests {
    use fdn_core::Coded as _;

    use super::*;

    #[test]
    fn cheap_mistakes_are_found_before_anything_is_sent() {
        let folder = tempfile::tempdir().expect("folder");
        let missing = upload(&folder.path().join("none.wasm")).expect_err("missing");
        assert!(
            missing.to_string().contains("there is no such file"),
            "{missing}"
        );
        let directory = upload(folder.path()).expect_err("folder");
        assert!(
            directory.to_string().contains("it is a folder"),
            "{directory}"
        );
        let empty = folder.path().join("empty.wasm");
        std::fs::write(&empty, "").expect("write");
        assert_eq!(
            upload(&empty).expect_err("empty").code(),
            ErrorCode::UploadEmpty
        );
        std::fs::write(&empty, "x").expect("write");
        assert_eq!(upload(&empty).expect("fine").1, 1);
    }

    #[test]
    fn a_password_that_was_mistyped_is_not_taken() {
        let chosen = Secret::new("correct horse");
        assert!(same(&chosen, "correct horse").is_ok());
        for again in ["correct hoarse", "correct horse ", ""] {
            let error = same(&chosen, again).expect_err("another one").to_string();
            assert!(!error.contains("horse"), "{error}");
        }
    }

    #[test]
    fn one_newline_at_the_end_of_a_secret_is_the_editors() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("secret");
        for (text, expected) in [
            ("a\n", "a"),
            ("a\n\n", "a\n"),
            ("a\r\n", "a"),
            ("a", "a"),
            (" a b ", " a b "),
            ("", ""),
        ] {
            std::fs::write(&path, text).expect("write");
            assert_eq!(secret_value(&path).expect("read"), expected, "{text:?}");
        }
        std::fs::write(&path, [0xff]).expect("write");
        assert!(secret_value(&path).is_err());
    }
}
