//! Rebuilds the crate when what it embeds gets new files, which the compiler has not seen before: the migrations and the
//! console that `npm run build` makes in `web/`.

use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

const CONSOLE: &str = "../web/dist";

fn main() {
    println!("cargo::rerun-if-changed=../migrations");
    // Of a folder that is not there cargo thinks that it changed, at every build. An empty, old one means the same and does not.
    if !Path::new(CONSOLE).exists() && fs::create_dir_all(CONSOLE).is_ok() {
        let aged =
            File::open(CONSOLE).and_then(|folder| folder.set_modified(SystemTime::UNIX_EPOCH));
        if let Err(error) = aged {
            println!("cargo::warning={CONSOLE}: {error}");
        }
    }
    println!("cargo::rerun-if-changed={CONSOLE}");
}
