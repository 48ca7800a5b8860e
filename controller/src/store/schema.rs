//! The schema: the files of `migrations/`, embedded at build time.
//!
//! `sqlx::migrate!` is not used: its macro crate compiles both databases' drivers, SQLite itself included, a second time for the compiler's own use.

use std::sync::LazyLock;

use rust_embed::Embed;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::StoreError;

const SUFFIX: &str = ".sql";

#[derive(Embed)]
#[folder = "../migrations"]
struct Files;

/// All migrations, in the order of their versions.
pub static MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| {
    let migrations = Files::iter().map(|name| {
        let file = Files::get(&name).expect("a name that was just listed");
        let text = String::from_utf8(file.data.into_owned()).expect("migrations are text");
        migration(&name, text).expect("migrations are called VERSION_DESCRIPTION.sql")
    });
    Migrator::with_migrations(migrations.collect())
});

/// The last migration of this build.
#[must_use]
pub fn newest() -> i64 {
    MIGRATOR.iter().map(|each| each.version).max().unwrap_or(0)
}

/// Interprets a failure of the migrator. An applied migration later than all known ones was made by a newer release.
pub(super) fn refusal(error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) if found > newest() => StoreError::Newer {
            found,
            known: newest(),
        },
        error => StoreError::Migration(error),
    }
}

/// A migration, as sqlx reads it from a file of this name: the database stores its description and the checksum of its text.
fn migration(name: &str, text: String) -> Option<Migration> {
    let (version, description) = name.strip_suffix(SUFFIX)?.split_once('_')?;
    Some(Migration::new(
        version.parse().ok()?,
        description.replace('_', " ").into(),
        MigrationType::Simple,
        AssertSqlSafe(text).into_sql_str(),
        false,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_migration_and_they_go_by_version() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations");
        let files = std::fs::read_dir(folder).expect("the folder").count();
        let versions: Vec<i64> = MIGRATOR.iter().map(|each| each.version).collect();
        assert_eq!(versions.len(), files);
        assert!(versions.is_sorted());
    }

    #[test]
    fn a_database_knows_a_migration_again_by_name_and_text() {
        let made =
            migration("20260102030405_two_words.sql", "abc".to_owned()).expect("a migration");
        assert_eq!(
            (made.version, &*made.description),
            (20_260_102_030_405, "two words")
        );
        // SHA-384 of "abc": FIPS 180-4, example of NIST.
        assert_eq!(
            hex::encode(&*made.checksum),
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7"
        );
        for wrong in ["words.sql", "1_words.txt", "x_words.sql"] {
            assert!(migration(wrong, String::new()).is_none(), "{wrong}");
        }
    }
}
